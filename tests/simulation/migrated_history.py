"""Random histories that move to another table in their midst, again and again, and go on there.

The oracle does not know of it: what a scan of the new table shows is the fold of all that was ever committed, to the
old tables and to the new one. So states, tombstones and deletes have to arrive as they were, and whatever is written
later has to meet them as if nothing had happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crdt_mor import InvalidInputError
from crdt_mor.errors import TableMovedError
from crdt_mor.results import MigrationProgress
from crdt_mor.store.protocol import Store
from crdt_mor.testing.faults import ProcessDied
from tests.simulation.followers import Follower
from tests.simulation.random_history import History, Open


@dataclass
class Moves(History):
    """What is alike in histories whose table moves: the process of a migration dies, and another one goes on.

    moves, killed, cancelled: how often the table has moved, the process died, and the migration was given up.
    """

    moves: int = 0
    killed: int = 0
    cancelled: int = 0

    def move_to(self, wanted: dict[str, Any]) -> bool:
        """Move, beside whatever else happens; False where the migration was given up."""
        cancel = self.random.random() < 0.2
        uri, store = self.new_address()
        for attempt in range(6):
            try:
                self.table.maintenance.migrate(uri, on_progress=partial(self.beside, attempt), store=store, **wanted)
                break
            except ProcessDied:
                self.killed += 1
                self.note("migration killed")
                if cancel and self.cancel_migration(store):
                    return False
        self.require_closed(uri)
        self.moves += 1
        self.note("moved", uri, wanted)
        return True

    def new_address(self) -> tuple[str, Store | None]:
        """Where the table moves to: an address, and the store there unless the address says that."""
        raise NotImplementedError

    def require_closed(self, uri: str) -> None:
        """A writer is told the new address."""
        with pytest.raises(TableMovedError) as moved:
            self.table.transaction().__enter__()
        assert moved.value.uri == uri

    def cancel_migration(self, store: Store | None) -> bool:
        """Give the migration up, unless it is over by now."""
        try:
            assert self.table.maintenance.cancel_migration(store=store)
        except InvalidInputError:
            return False
        self.cancelled += 1
        self.note("migration given up")
        return True

    def beside(self, attempt: int, progress: MigrationProgress) -> None:
        """What others do while a table moves; then its process may die."""
        if progress.phase == "settle" and progress.parts == 0:
            self.end_open()
        elif progress.phase in ("copy", "follow"):
            self.write_on()
        if attempt < 4 and self.random.random() < 0.25:
            raise ProcessDied

    def end_open(self) -> None:
        """The table is closed, and waits for what is pending."""
        while self.open:
            found = self.open.pop()
            (self.roll_back if self.random.random() < 0.3 else self.commit)(found)
        with pytest.raises(TableMovedError):
            self.table.transaction().__enter__()

    def write_on(self) -> None:
        """A part is copied, and the table still takes writes."""
        raise NotImplementedError


@dataclass
class MigratedHistory(Moves):
    """A history whose table moves; at last rows change their partitions, and the merge may be another one."""

    def step(self) -> None:
        if self.random.random() < 0.12:
            self.move_on({"buckets": self.random.choice([1, 2, 3])})
        else:
            super().step()

    def finish(self) -> None:
        """At last it moves to other partitions, which rows leave meanwhile, and to another merge now and then."""
        for _ in range(3):
            self.begin()
        new = self.random.choice(["b", "w", "v"])
        merges = [{"merge": "latest"}] if self.rule == "ordering" else [{"merge": "latest"}, {}]
        self.move_on({"partition_by": ["p", new] if self.partitioned else [new], **self.random.choice(merges)})
        while self.open:  # it was given up
            self.commit(self.open.pop())
        self.table.maintenance.compact()
        self.check()

    def move_on(self, wanted: dict[str, Any]) -> None:
        self.cancel_plans()
        uri, _ = self.new_address()
        if self.move_to(wanted):
            self.path = Path(uri)
            self.handles = [self.handle(ahead_ms) for ahead_ms in (0, 20_000, -40_000)]
        self.check()

    def new_address(self) -> tuple[str, Store | None]:
        return str(self.path.with_name(f"{self.path.name}_{self.moves}{self.cancelled}")), None

    def write_on(self) -> None:
        for _ in range(self.random.randrange(4)):
            History.step(self)
        self.cancel_plans()

    def cancel_plans(self) -> None:
        for plan in self.plans:
            self.table.maintenance.plans.cancel(plan.barrier)
        self.plans.clear()

    # --- what is of this table alone ------------------------------------------------------------------------------

    def check(self) -> None:
        """The latest snapshot; what was before the move, and commit times, are another table's."""
        expected = self.expected(self.done)
        rows = self.table.scan().to_arrow().to_pylist()
        found = {self.key(row): {n: row[n] for n in row if n in self.columns} for row in rows}
        names = next((list(row) for row in found.values()), [])
        want = {key: {n: row.get(n) for n in names} for key, row in expected.items()}
        assert len(found) == len(rows), self.story()
        assert found == want, f"found {found}\nwanted {want}\n{self.story()}"
        assert self.table.scan().count() == len(expected), self.story()

    def check_all(self) -> None:
        self.check()

    def look(self, found: Open) -> None:
        """A transaction shows commit times, too."""

    def follow(self, follower: Follower) -> None:
        """Followers are told that the table is another one: `tests.table` has that."""
