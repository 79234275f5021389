"""Find commits that a compaction missed, so no reader would see them: Hudi's commits below our compaction, or ours
below Hudi's.

    ours    ── T ──────────────── C ─────┐
    Hudi's            b (plan) ───┼──── base file b       C < b: the log is in the slice that this base file has ended

Hudi's commit lands below our compaction if the clock of its writer is behind the table's, or if both run at once.
Hudi's compaction misses our commit if the writer died before projecting it. The plan beside Hudi's completed file shows
this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from crdt_mor.errors import StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.format.commit import CompactionOperation, decode_compaction_plan
from crdt_mor.hudi.adoption_instants import HudiInstant
from crdt_mor.log.steps import Steps, Walk, delete_for_good, read_named
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import COMMIT, COMPACTION, BaseFileName, TimelineFileName, data_file_name, is_own_token
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup

Written = tuple[DataFile, Completion]


def bases_of(completions: Iterable[Completion]) -> dict[FileGroup, InstantTime]:
    bases: dict[FileGroup, InstantTime] = {}
    for completion in completions:
        for file in completion.files if not completion.adopted else ():
            if file.is_base:
                bases[file.group] = max(file.name.instant, bases.get(file.group, EPOCH))
    return bases


def group_below(
    completion: Completion, barriers: Mapping[FileGroup, InstantTime]
) -> tuple[FileGroup, InstantTime] | None:
    """Return a file group in which a Hudi commit wrote to a slice older than our base file, and that file's barrier.
    Hudi's compactions write no new rows and do not count.
    """
    if completion.action == COMMIT:
        return None
    touched = [(file.group, file.name.instant if file.is_base else completion.completed) for file in completion.files]
    touched += [(group, completion.completed) for group in completion.replaced]
    lost = ((group, barriers[group]) for group, since in touched if since <= barriers.get(group, EPOCH))
    return next(lost, None)


def refuse_below(bases: Mapping[FileGroup, InstantTime], completions: Iterable[Completion]) -> None:
    for completion in completions:
        if (lost := group_below(completion, bases)) is not None:
            (partition, file_id), base = lost
            raise UnsupportedFeatureError(
                "a commit of Hudi completed below a compaction of ours, so no reader would see its rows: the clock "
                "of Hudi's writer is behind, or both ran at the same moment. Undo it with Hudi's "
                "rollback_to_instant, or move the files of its instant out of the timeline's folder, then write its "
                f"rows again. instant={completion.requested} completed={completion.completed} compaction={base} "
                f"partition={partition!r} file_group={file_id}"
            )


def refuse_uncovering(
    folder: str, completions: Sequence[Completion], hudi_instants: Sequence[HudiInstant], plans: Collection[InstantTime]
) -> Steps[None]:
    """Raise for a compaction of Hudi that misses an earlier commit of ours, or any commit if the plan was ours.

    completions: the value's completions. hudi_instants: Hudi's instants. plans: barriers of our uncompleted plans.
    """
    compactions = [i for i in hudi_instants if not i.own and i.completion.action == COMMIT]
    if not compactions or all(c.adopted for c in completions):
        return
    written: dict[FileGroup, list[Written]] = {}
    for commit in (*completions, *(instant.completion for instant in hudi_instants if not instant.own)):
        for file in commit.files:
            written.setdefault(file.group, []).append((file, commit))
    for instant in compactions:
        barrier = instant.completion.requested
        inputs = {f.group: _inputs(written[f.group], barrier) for f in instant.completion.files if f.is_base}
        is_plan = barrier in plans
        if any(is_plan or not commit.adopted for files in inputs.values() for _, commit in files):
            record = f"{folder}/{TimelineFileName(barrier, COMPACTION, 'requested')}"
            plan = instant.plan or (yield from read_named(record))
            for operation in decode_compaction_plan(plan, str(barrier)).operations if plan else ():
                files = inputs.get((operation.partition_path or "", operation.file_id or ""), [])
                for file, commit in _left_out(operation, files):
                    if is_plan or not commit.adopted:
                        raise _uncovered_error(instant.completion, commit, file)


def _inputs(written: Iterable[Written], barrier: InstantTime) -> list[Written]:
    bases = [(file, commit) for file, commit in written if file.is_base and file.name.instant < barrier]
    newest = max((file.name.instant for file, _ in bases), default=EPOCH)
    logs = [(file, commit) for file, commit in written if not file.is_base and newest <= commit.completed < barrier]
    return [*((file, commit) for file, commit in bases if file.name.instant == newest), *logs]


def _left_out(operation: CompactionOperation, files: Iterable[Written]) -> Iterator[Written]:
    """Return the files that an operation does not read. Of two executions of an earlier plan, one suffices."""
    base = BaseFileName.parse(operation.data_file or "")
    logs = {name.rpartition("/")[2] for name in operation.delta_files}
    for file, commit in files:
        read = base is not None and file.name.instant <= base.instant if file.is_base else str(file.name) in logs
        if not read:
            yield file, commit


def _uncovered_error(compaction: Completion, commit: Completion, file: DataFile) -> UnsupportedFeatureError:
    bases = [base.path for base in compaction.files if base.is_base]
    return UnsupportedFeatureError(
        "a compaction by Hudi misses an earlier commit, so no reader would see its rows: a process died before "
        "projecting it, or both ran at the same moment. Move the files of the compaction's instant out of the "
        "timeline's folder, and its base files out of the table. Then run crdt-mor maintain, and compact again with "
        f"Hudi. compaction={compaction.requested} commit={commit.requested} completed={commit.completed} "
        f"partition={file.partition!r} file_group={file.group[1]} base_files={bases}"
    )


def remove_own_outputs(value: Timeline) -> Steps[None]:
    """Remove our outputs of plans that Hudi executed. hudi-rs refuses two base files of one instant in a group."""
    fresh = [c for c in value.completions if c.version == value.version and c.adopted and c.nonce]
    executed = {c.requested: {file.path for file in c.files} for c in fresh}
    if not executed:
        return
    with suppress(StorageUnavailableError):
        named = [(stat.path, data_file_name(stat.path)) for stat in (yield Walk())]
        ours = [(path, name.instant) for path, name in named if name is not None and is_own_token(name.token)]
        yield from delete_for_good([path for path, instant in ours if path not in executed.get(instant, {path})])
