"""Calls that make, copy or drop a table: rows of the matrix with a verdict on its place.

    first copy, copy moved on    `Table.copy`: no table is there, and a copy that is made again finishes it; or it is
                                 the table at a moment
    create, create if absent     `Table.create`: no table is there, or a whole one, and who creates again is told which
    drop                         `drop_table`: the table is there as it was, or nobody finds one

Then the power goes off: acknowledged events last. The table there is written, maintained and verified, and
hudi-rs reads the same rows.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Final

import pytest

from crdt_mor import CrdtMorError, Opening, Table, drop_table
from crdt_mor.errors import TableExistsError, TableNotFoundError
from crdt_mor.testing.faults import ProcessDied
from tests.crash.media import FAULTS, Disk, Process
from tests.crash.verbs import EXPIRY, MEANWHILE, NEXT, PAST_EXPIRY_S, State, World, begun, created, frame, shown


class Place:
    """A cell: a process that makes a table at a place, and what goes wrong with it at one operation there.

    is_repeated: whether another process does the same again; else the next one takes the table that it finds, if any.
    """

    without: frozenset[str] = frozenset()
    """The faults of which it has no operation."""
    is_short = False
    """Whether it has few operations, so that each is done both with and without another process that repeats it."""

    def __init__(self, fault: str, at: int, *, is_repeated: bool) -> None:
        again = ", and again" if is_repeated else ""
        self.name, self.is_repeated = f"{type(self).__name__}, {fault} at operation {at}{again}", is_repeated
        self.world = self.begun()
        self.process = Process(self.disk, FAULTS[fault], at, self.meanwhile, self.world.cut)
        self.said: BaseException | None = None

    # --- of each row ----------------------------------------------------------------------------------------------

    def begun(self) -> World:
        """The world in which it is done."""
        raise NotImplementedError

    @property
    def disk(self) -> Disk:
        """Where the table is made."""
        raise NotImplementedError

    def do(self, process: Process) -> None:
        raise NotImplementedError

    def meanwhile(self) -> None:
        """What others do while the process stands still for longer than the expiry."""
        raise NotImplementedError

    def require_allowed(self, found: State | None) -> None:
        """Raise unless the place may show that, after what the process was told. None: no table is there."""
        raise NotImplementedError

    def do_again(self, found: State | None) -> None:
        """Another process does the same, and is told what is there."""
        raise NotImplementedError

    def use(self) -> Table:
        """The next writer writes; the table at the place."""
        raise NotImplementedError

    # --- of all ---------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Do it, and look; False: it has not so many operations."""
        self.happen()
        return self.look()

    def happen(self) -> None:
        """Do it, until the fault has happened."""
        try:
            self.do(self.process)
        except (CrdtMorError, ProcessDied) as error:
            self.said = error
        self.process.is_healed = True
        if self.said is None and self.process.fault.loses_power:
            self.world.cut()

    def look(self) -> bool:
        """Look at what is there, and let others go on; False: it has not so many operations."""
        found = self.found()
        self.require_allowed(found)
        if self.is_repeated or found is None:
            self.do_again(found)
            self.require_to_last()
        self.go_on(self.use())
        return self.process.was_met

    def require_to_last(self) -> None:
        """The power goes off, and what the place shows is what it has shown."""
        before = self.found()
        self.world.cut()
        assert self.found() == before, f"{self.name}, {self.said!r}: lost with the power"

    def opened(self) -> Table | None:
        """The table at the place; None where nobody finds one."""
        try:
            return Table(
                self.address, opening=Opening(store=self.disk, environment=self.world.clock, writer_expiry=EXPIRY)
            )
        except TableNotFoundError:
            return None

    def reopened(self) -> Table:
        """The table at the place, which must be there."""
        table = self.opened()
        assert table is not None, f"{self.name}, {self.said!r}: there is no table"
        return table

    @property
    def address(self) -> str:
        return "t" if self.disk is self.world.disk else "there"

    def found(self) -> State | None:
        """What the place shows."""
        table = self.opened()
        return None if table is None else shown(table)

    def go_on(self, table: Table) -> None:
        """What was written outlasts the power; upkeep changes nothing, and nothing is wrong."""
        before = shown(table)
        self.require_to_last()
        again = self.world.upkeep(self.reopened, self.name)
        assert shown(again).rows == before.rows, f"{self.name}, {self.said!r}: upkeep has changed rows"
        self.world.require_sound(again, self.name)


class FirstCopy(Place):
    """A copy to a place where nothing is. It removes nothing there."""

    without = frozenset({"another user's files"})

    is_update = False
    earlier: State | None = None
    """What the place shows before."""

    def begun(self) -> World:
        world = begun(None).another()
        self.moments = [world.state()]
        return world

    @property
    def disk(self) -> Disk:
        return self.world.there

    def copy(self, store: Disk | Process, *, update: bool) -> None:
        self.world.open().copy("there", update=update, verify=False, store=store)

    def do(self, process: Process) -> None:
        self.copy(process, update=self.is_update)

    def meanwhile(self) -> None:
        self.world.sleep_past_expiry()
        self.world.open().upsert(frame(MEANWHILE))
        self.world.open().maintenance.maintain()
        self.moments.append(self.world.state())

    def require_allowed(self, found: State | None) -> None:
        allowed = self.moments if self.said is None else [self.earlier, *self.moments]
        assert found in allowed, f"{self.name}, {self.said!r}: {found} is none of {allowed}"

    def do_again(self, found: State | None) -> None:
        if found is not None:
            with pytest.raises(TableExistsError, match="update=True"):
                self.copy(self.world.there, update=False)
        self.copy(self.world.there, update=True)
        assert self.found() == self.world.state(), self.name

    def use(self) -> Table:
        self.world.open().upsert(frame(NEXT))
        self.copy(self.world.there, update=True)
        assert self.found() == self.world.state(), self.name
        self.require_to_last()
        self.world.sleep_past_expiry()
        copy = self.reopened()
        copy.upsert(frame(("copied", "x", 1)))
        return copy


class CopyMovedOn(FirstCopy):
    """A copy that is moved on: the table was written, compacted, cleaned and archived since."""

    without = frozenset()
    is_update = True

    def begun(self) -> World:
        world, self.earlier = _copied()
        world = world.another()
        self.moments = [world.state()]
        return world


@cache
def _copied() -> tuple[World, State]:
    """A world in which a table was copied, and has gone on; and what the copy shows."""
    world = begun(None).another()
    table = world.open()
    table.copy("there", verify=False, store=world.there)
    earlier = world.state()
    table.maintenance.drop_savepoint("s")
    table.upsert(frame(("a", "x", 7), ("f", "y", 7)))
    for _ in range(2):
        table.maintenance.maintain()
        world.clock.sleep(PAST_EXPIRY_S)
    return world, earlier


class Create(Place):
    """A table is made where nothing is. Nothing is there to be removed."""

    without = frozenset({"another user's files"})
    is_short = True
    exist_ok = False

    def begun(self) -> World:
        return World()

    @property
    def disk(self) -> Disk:
        return self.world.disk

    def do(self, process: Process) -> None:
        created(self.world, process, exist_ok=self.exist_ok)

    def meanwhile(self) -> None:
        self.world.sleep_past_expiry()
        others = created(self.world, exist_ok=True)
        others.upsert(frame(MEANWHILE))
        others.maintenance.maintain()

    def require_allowed(self, found: State | None) -> None:
        """No table, or a whole one without rows, but for those of who came first."""
        is_told = self.said is None or isinstance(self.said, TableExistsError)
        assert found is not None or not is_told, f"{self.name}, {self.said!r}: there is no table"
        assert found is None or found.rows <= {MEANWHILE}, f"{self.name}, {self.said!r}: {found}"

    def do_again(self, found: State | None) -> None:
        if found is None:
            created(self.world)
        else:
            with pytest.raises(TableExistsError, match="exist_ok=True"):
                created(self.world)
            created(self.world, exist_ok=True)
        assert self.found() is not None, self.name

    def use(self) -> Table:
        table = self.world.open()
        table.upsert(frame(NEXT))
        return table


class CreateIfAbsent(Create):
    """The same where a table that is there will do."""

    exist_ok = True


class Drop(Place):
    """A table is dropped. Nobody ever reads a smaller one, and who drops again finishes."""

    is_short = True

    def begun(self) -> World:
        world = begun(None).another()
        self.moments = [world.state()]
        return world

    @property
    def disk(self) -> Disk:
        return self.world.disk

    def drop(self, store: Disk | Process) -> None:
        drop_table("t", opening=Opening(store=store, environment=self.world.clock, writer_expiry=EXPIRY))

    def do(self, process: Process) -> None:
        self.drop(process)

    def meanwhile(self) -> None:
        """Others write, unless the drop has begun."""
        self.world.sleep_past_expiry()
        if (table := self.opened()) is not None:
            table.upsert(frame(MEANWHILE))
            table.maintenance.maintain()
            self.moments.append(self.world.state())

    def require_allowed(self, found: State | None) -> None:
        assert found is None or (self.said is not None and found in self.moments), (
            f"{self.name}, {self.said!r}: {found}"
        )

    def do_again(self, found: State | None) -> None:
        """Until the drop is over, no table is made there."""
        if found is None and self.said is not None and self.objects():
            with pytest.raises(TableExistsError):
                created(self.world)
        with suppress(TableNotFoundError):
            self.drop(self.disk)
        assert (self.found(), self.objects()) == (None, []), self.name

    def require_to_last(self) -> None:
        """The error said that a power cut may undo a deletion; who drops again no longer finds its folder."""
        if self.process.fault is not FAULTS["fsync of a folder fails once"]:
            super().require_to_last()

    def objects(self) -> list[str]:
        return [stat.path for folder in ("", ".hoodie") for stat in self.disk.walk(folder)]

    def use(self) -> Table:
        table = self.opened() or created(self.world)
        table.upsert(frame(NEXT))
        return table


PLACES: Final[dict[str, type[Place]]] = {
    "first copy": FirstCopy,
    "copy moved on": CopyMovedOn,
    "create": Create,
    "create if absent": CreateIfAbsent,
    "drop": Drop,
}
"""The rows of the matrix that make a table, by name."""
