"""How the base files of an overwrite get their names: any process that follows its event gives them, first of all.

    writer     stages the base files where no reader of Hudi's looks ── publishes the event, which says both paths
    follower   any process that publishes next: names them (`place`) ── tells Hudi of the overwrite ── goes on

Only what has been published has effects. A base file under its final name opens a file slice in Hudi's readers. They
leave out a slice whose instant is not in their timeline, and with it the logs of all commits that complete behind it. A
name that is given before the event would therefore hide the commits of the writer that wins the race, and those of all
writers where this one dies before its event. So the names are given after the event, and before the next version is
published (rule 2 of `log.publish`). Readers of ours take a base file from where it was staged as long as it has no
other name (`read.open_slice`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.hudi.partitions import metadata_put
from crdt_mor.log.outcome import all_completions, may_be_dropped
from crdt_mor.log.steps import Copy, Delete, GetStat, MakeDurable, Steps, put_surely
from crdt_mor.log.tail import find_tail, still_stands
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.planners.clean import needless_files


def place(value: Timeline, completions: Iterable[Completion]) -> Steps[None]:
    """Give the base files of the overwrites among these completions, which `value` has published, their names.

    Any number of processes may be at it, and one that was asleep comes when all of it is long over.
    """
    placed: list[DataFile] = []
    for completion in completions:
        if completion.overwriting is not None:
            placed += yield from _place(value, completion)
    if placed and not (yield from still_stands(value)):
        yield from _withdraw_late(value, placed)


def _place(value: Timeline, overwriting: Completion) -> Steps[list[DataFile]]:
    """The files to which this very process gave their names."""
    placed, seen = [], set[str]()
    for file in overwriting.files:
        if (yield GetStat(file.path)) is not None:
            yield MakeDurable(file.path)
        elif (yield Copy(file.staged, file.path)):
            placed.append(file)
        elif (yield GetStat(file.path)) is None:
            yield from _require_over(value, file)
        if file.partition not in seen:
            seen.add(file.partition)
            metadata = metadata_put(file.partition, overwriting.requested)
            if (yield GetStat(metadata.path)) is None:
                yield from put_surely(metadata)
    return placed


def _require_over(value: Timeline, file: DataFile) -> Steps[None]:
    """Raise unless later versions were published: then the file has had its name, and the staged one may be gone."""
    tail = yield from find_tail(value)
    if tail.version == value.version:
        raise StorageUnavailableError(
            "a base file of an overwrite that is committed cannot be given its name, and until it has it nothing else "
            f"is committed: try again. staged={file.staged} file={file.path}"
        )


def _withdraw_late(value: Timeline, placed: Collection[DataFile]) -> Steps[None]:
    """Delete of the files that were just named those that nobody needs any more: they had been named, and removed."""
    tail = yield from find_tail(value)
    completions = {c.requested: c for c in (yield from all_completions(tail))}
    retention = tail.retention
    needless = needless_files(tail, completions.values(), retention.since, dict(retention.groups))
    paths = {file.path for file in needless}
    for file in placed:
        barrier = file.name.instant
        known = barrier in completions
        if file.path in paths or (not known and not may_be_dropped(barrier, tail)):
            yield Delete(file.path)
