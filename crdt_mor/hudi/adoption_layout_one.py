"""Read tables older than version 8, with timeline layout 1, as commits like any other.

    .hoodie/T.deltacommit                  completed at T: there is no other time
    .hoodie/T.deltacommit.inflight         begun
    .hoodie/archived/.commits_.archive.…   not read: whatever is older than all completed instants is committed

The files that no active commit names form a first commit: base files of archived commits, and logs. A base file that is
neither named nor old enough belongs to a failed or running write. The timeline is listed before the table: a named file
that is gone was superseded and cleaned. Opening reports a missing file that a snapshot needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from crdt_mor.errors import StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.hudi.adoption_instants import READS_MAX, HudiInstant, InstantCache, read_active
from crdt_mor.log.steps import List, Steps, Walk
from crdt_mor.model import config_properties as hoodie
from crdt_mor.model.committed import Committed
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import DIGITS, InstantTime, from_ms, to_ms
from crdt_mor.model.names import (
    COMMIT,
    COMPACTION,
    DATA_ACTIONS,
    SAVEPOINT,
    BaseFileName,
    LogFileName,
    TimelineFileName,
    data_file_name,
    join_path,
)
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.store.protocol import Stat

ARCHIVED = "ARCHIVED"
"""Operation of the commit that stands for all archived commits."""

_BEGUN_ACTIONS = DATA_ACTIONS | {COMPACTION, "logcompaction", "clustering"}


def instants_of_layout_one(
    config: TableConfig, folder: str, listed: Sequence[Stat], cache: InstantCache
) -> Steps[list[HudiInstant]]:
    """Return the completed instants of layout 1, with all archived ones as a single commit."""
    for _ in range(READS_MAX):
        named = [(name, stat.path) for stat in listed if (name := _name(stat.path)) is not None]
        instants = []
        for name, path in named:
            if name.state == "completed" and name.action != SAVEPOINT:
                _refuse_short(name)
                instants.append((yield from read_active(path, name, cache)))
        if all(instant is not None for instant in instants):
            found = [instant for instant in instants if instant is not None]
            return (yield from _with_archived(config, [name for name, _ in named], found))
        listed = yield List(folder)  # Hudi archived or rolled back an instant
    raise StorageUnavailableError(f"files of Hudi's timeline vanish during each read. Try again. folder={folder}")


def _name(path: str) -> TimelineFileName | None:
    return TimelineFileName.parse_layout_one(path.rpartition("/")[2])


def _refuse_short(name: TimelineFileName) -> None:
    if len(name.requested) != DIGITS:
        raise UnsupportedFeatureError(
            "an instant's time has only seconds, as in Hudi before release 0.10. Upgrade the table to version 9 "
            f"with Hudi. instant={name.requested}"
        )


def _with_archived(
    config: TableConfig, names: Sequence[TimelineFileName], instants: Sequence[HudiInstant]
) -> Steps[list[HudiInstant]]:
    wrote = sorted(i.completion.requested for i in instants if i.completion.action in DATA_ACTIONS)
    if not wrote:
        return list(instants)
    begun = {name.requested for name in names if name.state != "completed" and name.action in _BEGUN_ACTIONS}
    committed = Committed(
        frozenset(wrote), frozenset(begun - set(wrote)), wrote[0], (yield from _certain_from(config, names, wrote))
    )
    slices_to_come = {name.requested for name in names if name.action == COMPACTION} - committed.completed
    files: list[Stat] = yield Walk()
    known = {file.path for instant in instants for file in instant.completion.files}
    unnamed = tuple(_unnamed(files, known, committed, slices_to_come))
    before = from_ms(to_ms(wrote[0]) - 1)
    archived = Completion(before, before, 0, "", COMMIT, ARCHIVED, unnamed, adopted=True)
    found = [HudiInstant(archived), *instants] if unnamed else instants
    return [_that_shows(instant, committed, slices_to_come) for instant in found]


def _certain_from(
    config: TableConfig, names: Iterable[TimelineFileName], wrote: Sequence[InstantTime]
) -> Steps[InstantTime]:
    """Return the time from which the timeline has no gaps. If Hudi archives beyond savepoints, only the saved instants
    stay before it.
    """
    saved = {name.requested for name in names if name.action == SAVEPOINT}
    if wrote[0] not in saved:
        return wrote[0]
    archive = join_path(".hoodie", config.properties.get(hoodie.ARCHIVE_FOLDER, "").strip() or "archived")
    if not (yield List(archive)):
        return wrote[0]
    return next((instant for instant in wrote if instant not in saved), wrote[-1])


def _unnamed(
    files: Iterable[Stat], known: set[str], committed: Committed, slices_to_come: set[InstantTime]
) -> Iterable[DataFile]:
    """Return the data files of archived commits, and all logs of committed slices."""
    for file in files:
        name = data_file_name(file.path) if file.path not in known else None
        if isinstance(name, LogFileName) and name.instant in slices_to_come:
            yield DataFile(file.path, file.size, 0)
        elif isinstance(name, BaseFileName) and name.instant in committed.completed:
            continue  # a failed task attempt
        elif name is not None and committed.has(name.instant):
            yield DataFile(file.path, file.size, 0)


def _that_shows(instant: HudiInstant, committed: Committed, slices_to_come: set[InstantTime]) -> HudiInstant:
    """Return the instant without its logs in uncommitted slices: Hudi's readers do not see these logs."""
    files = tuple(
        file
        for file in instant.completion.files
        if file.is_base or file.name.instant in slices_to_come or committed.has(file.name.instant)
    )
    return replace(instant, completion=replace(instant.completion, files=files, committed=committed))
