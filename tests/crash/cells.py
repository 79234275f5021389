"""A cell of the matrix of crashes: a verb, or a table that is made at a place, and what goes wrong at one operation."""

from __future__ import annotations

import pytest

from crdt_mor import CrdtMorError, InvalidInputError, StorageUnavailableError
from crdt_mor.errors import TableArrivingError, TableMovedError
from crdt_mor.testing.faults import ProcessDied
from tests.crash.media import FAULTS, Process
from tests.crash.places import PLACES, Place
from tests.crash.verbs import MEANWHILE, NEXT, VERBS, State, begun, frame

POSTED = "group post"


class Cell:
    """A verb, and what goes wrong with the process that does it at one operation."""

    def __init__(self, verb: str, fault: str, at: int) -> None:
        self.name, self.verb, self.at = f"{verb}, {fault} at operation {at}", VERBS[verb], at
        self.world = begun(verb).another()
        self.before, self.after = outcomes(verb)
        self.is_met_by_others = False
        disk = self.world.there if self.verb.is_there else self.world.disk
        self.process = Process(disk, FAULTS[fault], at, self.meanwhile, self.world.cut)
        self.said: BaseException | None = None

    def run(self) -> bool:
        """Do it, and look; False: the verb has not so many operations."""
        self.happen()
        return self.look()

    def happen(self) -> None:
        """Do it, until the fault has happened."""
        self.world.target = self.process if self.verb.is_there else None
        try:
            self.verb.do(self.world, self.world.open(None if self.verb.is_there else self.process))
        except (CrdtMorError, ProcessDied) as error:
            self.said = error
        self.world.target, self.process.is_healed = None, True
        if self.said is None and self.process.fault.loses_power:
            self.world.cut()

    def look(self) -> bool:
        """Look at what is there, and let others go on; False: the verb has not so many operations."""
        state = self.looked()
        if self.at % 2 or self.verb.is_alone:
            self.said = self.done_again()
            self.world.cut()
            state = self.looked()
        self.go_on(state)
        return self.process.was_met

    def done_again(self) -> InvalidInputError | None:
        """What another process is told that makes the same call."""
        try:
            self.verb.do(self.world, self.world.open())
        except InvalidInputError as error:
            if not self.verb.is_refused_again:
                raise
            return error
        return None

    def allowed(self) -> set[State]:
        """What the table was before, or what it is after, unless the process was told."""
        if self.said is None:
            allowed = {self.after}
        elif self.verb.is_write and isinstance(self.said, StorageUnavailableError):
            allowed = {self.before}
        else:
            allowed = {self.before, self.after}
        if self.is_met_by_others:
            return {one.with_row(MEANWHILE) for one in allowed} | (allowed if self.verb.is_alone else set())
        return allowed

    def looked(self) -> State:
        """What the table shows, which is allowed."""
        found, allowed = self.world.state(), self.allowed()
        assert found in allowed, f"{self.name}, {self.said!r}: {found} is none of {allowed}"
        return found

    def meanwhile(self) -> None:
        """The process stands still for longer than the expiry, and others go on."""
        self.world.sleep_past_expiry()
        others = self.world.open()
        try:
            others.upsert(frame(MEANWHILE))
            self.is_met_by_others = True
        except (TableMovedError, TableArrivingError, InvalidInputError):
            assert self.verb.is_alone
        others.maintenance.maintain()

    def go_on(self, state: State) -> None:
        """The next writer writes, and once the dead have expired upkeep does what is due.

        What a dead process has posted may be committed by the next writer, until somebody was told that it was not.
        """
        if state.is_handed_over:
            self.world.open().maintenance.takeback()
        columns = list(state.columns)
        self.world.newest().upsert(frame(NEXT).rename_columns(columns))
        self.world.cut()
        self.world.upkeep(self.world.newest, self.name)
        found = self.world.state()
        later = self.allowed() if POSTED in self.name else set()
        allowed = {one.with_row(NEXT).rows for one in {state, *later}}
        assert found.rows in allowed, f"{self.name}, {self.said!r}: upkeep made {found} of {state}"
        self.world.require_sound(self.world.newest(), self.name)


def small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions go, values are sealed and instants are archived after a few commits."""
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 4)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 2)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 4)


_outcomes: dict[str, tuple[State, State]] = {}


def outcomes(verb: str) -> tuple[State, State]:
    """What a table is before a verb, and after it where nothing goes wrong."""
    if verb not in _outcomes:
        world = begun(verb).another()
        before = world.state()
        VERBS[verb].do(world, world.open())
        _outcomes[verb] = before, world.state()
    return _outcomes[verb]


def cells(row: str, fault: str, at: int) -> list[Cell | Place]:
    """What is done for a fault at one operation."""
    if row not in PLACES:
        return [Cell(row, fault, at)]
    place = PLACES[row]
    return [place(fault, at, is_repeated=again) for again in ((False, True) if place.is_short else (at % 2 == 1,))]
