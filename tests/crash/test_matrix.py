"""Every service and statement x everything that may go wrong, at each of its operations: the matrix of crashes.

    python -m pytest -m "" tests/crash/test_matrix.py        # every cell, at every operation

A cell is a verb and a fault. The verb is done once for each of its operations, and at that one the fault happens. Then
the table opens, and is as it was before or as it is after; after, if the call returned. Of a statement that says that
nothing was published, nothing is there. At every second operation another process makes the same call again, under the
same token, and the table is as after. Somebody else writes; once the dead have expired `maintain` does all that is due,
nothing that anybody sees changes, `verify` finds nothing wrong, and hudi-rs reads what we read.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crdt_mor import (
    CrdtMorError,
    InvalidInputError,
    StorageUnavailableError,
    TableArrivingError,
    TableMovedError,
)
from crdt_mor.log.paths import VERSIONS
from crdt_mor.log.publish import Publisher
from crdt_mor.store.protocol import Content, Durable
from crdt_mor.testing.faults import ProcessDied
from tests.crash.media import FAULTS, Disk, Process
from tests.crash.verbs import PAST_EXPIRY_S, VERBS, Row, State, begun, frame
from tests.simulation.worlds import nothing
from tests.tiers import long, slow

OPERATIONS_MAX = 400
POSTED = "group post"
MEANWHILE: Row = ("meanwhile", "y", 1)
NEXT: Row = ("next", "y", 9)


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions go, values are sealed and instants are archived after a few commits."""
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 4)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 2)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 4)


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
        self.world.target = self.process if self.verb.is_there else None
        try:
            self.verb.do(self.world, self.world.open(None if self.verb.is_there else self.process))
        except (CrdtMorError, ProcessDied) as error:
            self.said = error
        self.world.target, self.process.is_healed = None, True
        if self.said is None and self.process.fault.loses_power:
            self.world.cut()
        state = self.looked()
        if self.at % 2 or self.verb.is_alone:
            self.verb.do(self.world, self.world.open())
            self.said = None
            state = self.looked()
        self.go_on(state)
        return self.process.was_met

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
        self.world.sleep_past_expiry()
        for _ in range(2):
            done = self.world.newest().maintenance.maintain()
            assert done.ok, f"{self.name}: {done}"
            self.world.clock.sleep(PAST_EXPIRY_S)
        found = self.world.state()
        later = self.allowed() if POSTED in self.name else set()
        allowed = {one.with_row(NEXT).rows for one in {state, *later}}
        assert found.rows in allowed, f"{self.name}, {self.said!r}: upkeep made {found} of {state}"
        verified = self.world.newest().verify()
        assert verified.is_sound, f"{self.name}: {verified.findings}"
        self.world.require_same_for_hudi()


_outcomes: dict[str, tuple[State, State]] = {}


def outcomes(verb: str) -> tuple[State, State]:
    """What a table is before a verb, and after it where nothing goes wrong."""
    if verb not in _outcomes:
        world = begun(verb).another()
        before = world.state()
        VERBS[verb].do(world, world.open())
        _outcomes[verb] = before, world.state()
    return _outcomes[verb]


def run(verb: str, fault: str, every: int) -> int:
    """A cell at every so many of its operations; at how many the fault happened."""
    for looked, at in enumerate(range(1, OPERATIONS_MAX, every)):
        if not Cell(verb, fault, at).run():
            return looked
    raise AssertionError(f"{verb} has no end")


FAST = [("upsert", "kill after"), ("update", "pause past expiry"), ("compact", "power cut before")]


@pytest.mark.parametrize(("verb", "fault"), FAST)
def test_some_cells(verb: str, fault: str) -> None:
    assert run(verb, fault, every=8)


@pytest.mark.parametrize(("verb", "every"), [*(slow(verb, 12) for verb in VERBS), *(long(verb, 1) for verb in VERBS)])
def test_the_matrix(verb: str, every: int) -> None:
    for fault in FAULTS:
        assert run(verb, fault, every), f"{verb} has no operation for this: {fault}"


def _nobody_helps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "help_project", lambda self, tail: nothing())


def _versions_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    put = Disk.put

    def hasty(disk: Disk, path: str, data: Content, *, durable: Durable = True) -> bool:
        return put(disk, path, data, durable="content" if path.startswith(VERSIONS) else durable)

    patch.setattr(Disk, "put", hasty)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "verb", "fault", "said"),
    [
        (_nobody_helps, "compact", "kill before", "Hudi is not told of a commit"),
        (_versions_are_not_waited_for, "upsert", "power cut after", "no version of the timeline has completed this"),
    ],
)
def test_the_matrix_finds(
    plant: Callable[[pytest.MonkeyPatch], None], verb: str, fault: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(verb)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=said):
        run(verb, fault, every=1)
