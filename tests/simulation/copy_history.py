"""A table in memory that is copied, what may happen to it meanwhile, and what must be true of each copy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from crdt_mor import Opening, Table
from crdt_mor.errors import TableNotFoundError
from crdt_mor.model.timeline_parts import completed_name
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.inside import completions_of, hudi_folder_of, session_of, tail_of
from tests.stores import ScriptedStore

SCHEMA: Final = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int64())])
Rows = frozenset[tuple[object, ...]]


class Copied:
    """A table, its copy, and what the table has shown at each of its versions."""

    def __init__(self) -> None:
        self.environment = SimulatedEnvironment()
        self.source = MemoryStore(self.environment.now_ms)
        self.target = MemoryStore(self.environment.now_ms)
        self.stopped = ScriptedStore(self.source, self._stop)
        self.at: dict[int, Callable[[], object]] = {}
        """Actions by number of a call to the source store: each runs once, before its call."""
        self.table = Table.create(
            "t",
            SCHEMA,
            key=["id", "p"],
            partition_by="p",
            buckets=2,
            opening=Opening(store=self.source, environment=self.environment),
        )
        self.shown: dict[int, Rows] = {}
        self.writes = 0
        self.note()

    def _stop(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        happens = self.at.pop(len(self.stopped.calls), None)
        if happens is not None:
            happens()
        return call()

    # --- what happens to the table --------------------------------------------------------------------------------

    def note(self) -> None:
        self.shown[self.table.version] = rows(self.table)

    def write(self) -> None:
        """One row is changed, and one is new. The clock moves on by an hour."""
        self.writes += 1
        ids = [1, 100 + self.writes]
        self.table.upsert(pa.table({"id": ids, "p": ["a", "b"], "n": [self.writes] * 2}, SCHEMA))
        self.pass_on()

    def pass_on(self) -> None:
        self.note()
        self.environment.sleep(3600)

    def clean(self) -> None:
        """All is compacted, and of the history nothing is kept."""
        self.write()
        self.table.maintenance.compact()
        self.environment.sleep(3600)
        self.table.maintenance.clean(keep=timedelta(0))
        self.pass_on()

    def archive(self) -> None:
        """What can leave Hudi's active timeline does."""
        self.clean()
        for _ in range(3):
            self.write()
        self.archive_alone()

    def archive_alone(self) -> None:
        """The same, and no file of the data goes."""
        self.table.maintenance.archive(keep_commits=1)
        self.pass_on()

    def restore(self) -> None:
        """The table goes back to what it showed before two more writes."""
        before = self.table.version
        self.write()
        self.write()
        self.table.maintenance.restore(before)
        self.pass_on()

    def overwrite(self) -> None:
        self.table.overwrite(pa.table({"id": [7], "p": ["a"], "n": [7]}, SCHEMA), partitions=[{"p": "a"}])
        self.pass_on()

    def erase(self) -> None:
        self.write()
        for savepoint in self.table.maintenance.savepoints():
            self.table.maintenance.drop_savepoint(savepoint.name)
        self.note()
        self.table.maintenance.erase(where="id = 1")
        self.pass_on()

    def save(self) -> None:
        self.table.maintenance.savepoint(f"s{self.table.version}")
        self.pass_on()

    def begin(self) -> None:
        """A write begins whose process dies."""
        session = session_of(self.table)
        session.begin(session.author())
        self.pass_on()

    # --- the copy -------------------------------------------------------------------------------------------------

    def copy(self, *, update: bool = False, target: object = None) -> int:
        """Copy the table, as another process would; how many calls of the table's store that took."""
        at, self.at = self.at, {}  # nothing happens while the table is opened
        table = Table("t", opening=Opening(store=self.stopped, environment=self.environment))
        self.stopped.calls.clear()
        self.at = at
        table.copy("c", update=update, verify=False, store=target or self.target)  # type: ignore[arg-type]
        return len(self.stopped.calls)

    def opened(self) -> Table | None:
        """The copy; None where there is none that can be opened."""
        try:
            return Table("c", opening=Opening(store=self.target, environment=self.environment))
        except TableNotFoundError:
            return None

    def check(self, *moments: int) -> int:
        """The copy is whole, and the table at one of its versions; which one. -1: there is no copy yet.

        moments: versions of the table that the copy may show; by default the one that it says.
        """
        copy = self.opened()
        if copy is None:
            assert not moments or -1 in moments
            return -1
        found = moments or [max(v for v in self.shown if v <= copy.version)]
        meant = [self.shown[moment] for moment in found if moment >= 0]
        assert rows(copy) in meant, f"version={copy.version} of {sorted(self.shown)}"
        assert copy.verify().is_sound
        self.check_told(copy)
        for savepoint in copy.maintenance.savepoints():
            copy.scan(as_of=savepoint.name).to_polars()
        return copy.version

    def check_told(self, copy: Table) -> None:
        """Hudi's readers are told of each commit of the copy: there is no hole in Hudi's timeline and history."""
        archive, projector = tail_of(copy).archive, session_of(copy).publisher.projector
        active = [c for c in completions_of(copy) if c.requested > archive.watermark]
        told = {projector.path(completed_name(c)) for c in active}
        told |= {f"{projector.archive}/{name}" for name in archive.files}
        assert told <= paths(self.target, projector.folder)

    def check_moved(self) -> None:
        """After an update that nothing has disturbed: as the table is now, with nothing that is too much."""
        assert self.check() == self.table.version
        copy = self.opened()
        assert copy is not None
        assert paths(self.target, "") <= paths(self.source, "")
        folder = hudi_folder_of(self.table)
        told, ours = ({path for path in paths(s, folder) if "_" in path} for s in (self.source, self.target))
        assert told == ours
        for savepoint in self.table.maintenance.savepoints():
            assert rows(copy, savepoint.name) == rows(self.table, savepoint.name)
        history = self.table.history().to_pylist()
        assert copy.history().to_pylist() == history

    def check_used(self) -> None:
        """The copy is a table as any other: it is written, compacted and cleaned."""
        copy = self.opened()
        assert copy is not None
        before = rows(copy)
        self.environment.sleep(24 * 3600)  # writers that were pending have been silent for long
        copy.upsert(added(5))
        copy.maintenance.compact()
        copy.maintenance.clean(keep=timedelta(0))
        assert rows(copy) == {row for row in before if row[:2] != (5, "a")} | {(5, "a", 5)}
        assert copy.verify().is_sound
        assert not [row for row in copy.inspect.timeline().to_pylist() if row["state"] in ("requested", "inflight")]


def added(id_: int) -> pa.Table:
    """A row that the table itself never has."""
    return pa.table({"id": [id_], "p": ["a"], "n": [id_]}, SCHEMA)


def rows(table: Table, as_of: str | None = None) -> Rows:
    return frozenset(table.scan(as_of=as_of).to_polars().rows())


def paths(store: MemoryStore, folder: str) -> set[str]:
    return {stat.path for stat in store.walk(folder)}
