"""Commits that no reader would see, as a compaction did not know them: one of Hudi's below ours, or ours below Hudi's.

    ours    ── T ──────────────── C ─────┐
    Hudi's            b (plan) ───┼──── base file b       C < b: the log is in the slice that this base file has ended

A commit of Hudi's appears below a compaction of ours where the clock of its writer is behind the table's, or both work
at one moment. A commit of ours is missing from a compaction of Hudi's where Hudi was not told of it before: its process
died after its version was put. What a compaction of Hudi's knew is in its plan, which stands beside its completed file.
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
"""A data file, and the commit that wrote it."""


def bases_of(completions: Iterable[Completion]) -> dict[FileGroup, InstantTime]:
    """The instant of our newest base file of each file group."""
    bases: dict[FileGroup, InstantTime] = {}
    for completion in completions:
        for file in completion.files if not completion.adopted else ():
            if file.is_base:
                bases[file.group] = max(file.name.instant, bases.get(file.group, EPOCH))
    return bases


def group_below(
    completion: Completion, barriers: Mapping[FileGroup, InstantTime]
) -> tuple[FileGroup, InstantTime] | None:
    """A file group in which a commit of Hudi's wrote to a slice that is older than our barrier, and that barrier.

    A compaction of Hudi's writes nothing new.
    """
    if completion.action == COMMIT:
        return None
    touched = [(file.group, file.name.instant if file.is_base else completion.completed) for file in completion.files]
    touched += [(group, completion.completed) for group in completion.replaced]
    lost = ((group, barriers[group]) for group, since in touched if since <= barriers.get(group, EPOCH))
    return next(lost, None)


def refuse_below(bases: Mapping[FileGroup, InstantTime], completions: Iterable[Completion]) -> None:
    """Raise for a commit of Hudi's that completed below a base file of ours, in a file group that it wrote to."""
    for completion in completions:
        if (lost := group_below(completion, bases)) is not None:
            (partition, file_id), base = lost
            raise UnsupportedFeatureError(
                "a commit of Hudi's completed at a time that a compaction of ours had passed already, so that no "
                "reader would see its rows: the clock of Hudi's writer is behind the table's, or it wrote at the same "
                "moment. Take that commit back, with Hudi's rollback_to_instant or by moving the files of its instant "
                f"out of the timeline's folder, and write its rows again. instant={completion.requested} "
                f"completed={completion.completed} compaction={base} partition={partition!r} file_group={file_id}"
            )


def refuse_uncovering(
    folder: str, known: Sequence[Completion], found: Sequence[HudiInstant], plans: Collection[InstantTime]
) -> Steps[None]:
    """Raise for a compaction of Hudi's that does not contain a commit of ours which completed before it.

    Of a plan of ours that Hudi has executed, the commits of Hudi's are asked as well: it cannot know all of them.

    folder: Hudi's timeline. known: the completions of the value. found: what stands there beside them. plans: the
        barriers of the plans of ours that were not completed.
    """
    compactions = [i for i in found if not i.own and i.completion.action == COMMIT]
    if not compactions or all(c.adopted for c in known):
        return
    written: dict[FileGroup, list[Written]] = {}
    for commit in (*known, *(instant.completion for instant in found if not instant.own)):
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
    """The files of a file group that make its slice below a barrier."""
    bases = [(file, commit) for file, commit in written if file.is_base and file.name.instant < barrier]
    newest = max((file.name.instant for file, _ in bases), default=EPOCH)
    logs = [(file, commit) for file, commit in written if not file.is_base and newest <= commit.completed < barrier]
    return [*((file, commit) for file, commit in bases if file.name.instant == newest), *logs]


def _left_out(operation: CompactionOperation, files: Iterable[Written]) -> Iterator[Written]:
    """The files that an operation of a plan does not read; of two executions of an earlier plan it reads one."""
    base = BaseFileName.parse(operation.data_file or "")
    logs = {name.rpartition("/")[2] for name in operation.delta_files}
    for file, commit in files:
        read = base is not None and file.name.instant <= base.instant if file.is_base else str(file.name) in logs
        if not read:
            yield file, commit


def _uncovered_error(compaction: Completion, commit: Completion, file: DataFile) -> UnsupportedFeatureError:
    bases = [base.path for base in compaction.files if base.is_base]
    return UnsupportedFeatureError(
        "a compaction that Hudi executed does not contain a commit that completed before it, so no reader would see "
        "the rows of that commit. Hudi was not told of the commit: its process died, or both worked at the same "
        "moment. Move the files of the compaction's instant out of the timeline's folder, and its base files out of "
        "the table. Then run crdt-mor maintain, and let Hudi compact again. "
        f"compaction={compaction.requested} commit={commit.requested} completed={commit.completed} "
        f"partition={file.partition!r} file_group={file.group[1]} base_files={bases}"
    )


def remove_own_outputs(value: Timeline) -> Steps[None]:
    """Remove what executors of ours wrote for the plans that Hudi executed, as this very version says.

    hudi-rs refuses a file group with two base files of one instant. What cannot be removed is left to a sweep.
    """
    fresh = [c for c in value.completions if c.version == value.version and c.adopted and c.nonce]
    executed = {c.requested: {file.path for file in c.files} for c in fresh}
    if not executed:
        return
    with suppress(StorageUnavailableError):
        named = [(stat.path, data_file_name(stat.path)) for stat in (yield Walk())]
        ours = [(path, name.instant) for path, name in named if name is not None and is_own_token(name.token)]
        yield from delete_for_good([path for path, instant in ours if path not in executed.get(instant, {path})])
