"""Give the base files of an overwrite their names: the first task of any process that follows the event.

    writer     stages base files where no reader of Hudi looks ── publishes the event with both paths
    follower   any process that publishes next: names them (`place`) ── projects the overwrite ── goes on

Hudi's readers leave out a base file of an unknown instant, with its slice's later logs. So a name given
before the event could hide everybody's commits. Names are given after the event and before the next version (rule 2 of
`log.publish`). Our readers read the staged file until then.
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


def place(value: Timeline, overwriting: Iterable[Completion]) -> Steps[None]:
    """Name the base files of overwrites that `value` published. Any process may do so, however late."""
    placed: list[DataFile] = []
    for completion in overwriting:
        placed += yield from _place(value, completion)
    if placed and not (yield from still_stands(value)):
        yield from _withdraw_late(value, placed)


def _place(value: Timeline, overwriting: Completion) -> Steps[list[DataFile]]:
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
    """Raise unless later versions exist: then the file was named before, and its staged copy may be gone."""
    tail = yield from find_tail(value)
    if tail.version == value.version:
        raise StorageUnavailableError(
            "a base file of a committed overwrite cannot get its final name, and nothing else can commit before. "
            f"Try again. staged={file.staged} file={file.path}"
        )


def _withdraw_late(value: Timeline, placed: Collection[DataFile]) -> Steps[None]:
    """Delete the files of `placed` that are not needed any more: another process had named and removed them before."""
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
