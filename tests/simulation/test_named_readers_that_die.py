"""A named reader that is killed anywhere sees every change, and a clean beside it takes nothing that it needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor.api import changes
from crdt_mor.errors import CheckpointExpiredError
from crdt_mor.log.paths import reader_path
from crdt_mor.model.checkpoints import Checkpoint
from crdt_mor.model.instant import LAST
from crdt_mor.services import checkpoints, clean
from crdt_mor.store import MemoryStore
from crdt_mor.testing import SimulatedEnvironment
from crdt_mor.testing.faults import ProcessDied
from tests.stores import Dying, ScriptedStore
from tests.tiers import slow

NOW = timedelta(0)
READERS = ("billing", "search")


class World:
    """A table to which each commit adds a key, and what the programs behind each reader's name have received."""

    def __init__(self) -> None:
        self.environment = SimulatedEnvironment()
        self.store = MemoryStore(self.environment.now_ms)
        self.table = self.opened(create=True)
        self.written: set[str] = set()
        self.received: dict[str, set[str]] = {name: set() for name in READERS}
        self.places: dict[str, str] = {}

    def opened(self, script: Any = None, *, create: bool = False) -> mor.Table:
        """The table as another process opens it."""
        store = self.store if script is None else ScriptedStore(self.store, script)
        opening = mor.Opening(store=store, environment=self.environment)
        if create:
            return mor.Table.create("t", {"id": pl.String}, key="id", buckets=1, opening=opening)
        return mor.Table("t", opening=opening)

    def write(self) -> None:
        self.environment.sleep(1)
        key = f"k{len(self.written)}"
        self.table.append(pl.DataFrame({"id": [key]}))
        self.written.add(key)

    def clean(self) -> None:
        self.table.maintenance.compact()
        self.table.maintenance.clean(NOW, readers=NOW)

    def take(self, changes: mor.Changes, name: str) -> None:
        """Store the rows of a window, which outlive the process."""
        self.received[name] |= set(changes.to_polars()["id"])

    def read(self, table: mor.Table, name: str = "billing") -> int:
        changes = table.changes(reader=name)
        self.take(changes, name)
        changes.done()
        return changes.commits

    def check(self) -> None:
        """No reader went backwards."""
        for row in self.table.inspect.readers().to_pylist():
            place = row["checkpoint"] or ""
            assert place >= self.places.get(row["reader"], ""), f"{row['reader']} went backwards"
            self.places[row["reader"]] = place

    def drain(self) -> None:
        for name in READERS:
            while self.read(self.opened(), name):
                pass
            assert self.received[name] == self.written, f"{name} missed {self.written - self.received[name]}"


def killed(at: int, *, after: bool) -> bool:
    """Run a reader that dies at its at-th request, beside a commit and a clean. Return False if it had fewer."""
    world = World()

    def meanwhile(_: str) -> None:
        world.write()
        world.clean()

    dying = Dying(lambda operation, path: True, at, after=after, meanwhile=meanwhile)
    world.write()
    with suppress(ProcessDied):
        reader = world.opened(dying)
        for _ in range(3):
            world.read(reader)
            world.write()
    world.check()
    world.clean()
    world.drain()
    return bool(dying.died_at)


SOME, ALL = range(3, 60, 14), range(1, 400)


@pytest.mark.parametrize(("requests", "after"), [(SOME, True), slow(ALL, True), slow(ALL, False)])
def test_a_reader_killed_at_any_request_sees_every_change(requests: range, after: bool) -> None:
    ran = [at for at in requests if killed(at, after=after)]
    assert 20 < max(ran) < 300


def beside(at: int) -> bool:
    """Run a reader, with a commit and a clean at its at-th request. Return False if it had fewer."""
    world, left = World(), [at]

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        left[0] -= 1
        if left[0] == 0:
            world.write()
            world.read(world.opened())
            world.check()
            world.write()
            world.clean()
        return call()

    world.write()
    reader = world.opened(script)
    for _ in range(3):
        changes = reader.changes(reader="billing")
        with suppress(CheckpointExpiredError):  # another process finished this window, and the clean spared no view
            world.take(changes, "billing")
            changes.done()
        world.check()
        world.write()
        world.clean()
    world.drain()
    return left[0] <= 0


@pytest.mark.parametrize("requests", [SOME, slow(ALL)])
def test_a_clean_at_any_request_of_a_reader_takes_nothing_it_needs(requests: range) -> None:
    ran = [at for at in requests if beside(at)]
    assert 20 < max(ran) < 300


def history(seed: int, steps: int) -> None:
    """Processes of two names read, finish late, never or twice, beside writes and cleans."""
    chance, world = random.Random(seed), World()
    open_windows: list[tuple[str, mor.Changes]] = []
    processes = [world.opened() for _ in range(3)]
    for _ in range(steps):
        match chance.choice(("write", "write", "clean", "begin", "begin", "done", "die", "sleep")):
            case "write":
                world.write()
            case "clean":
                world.clean()
            case "begin":
                name = chance.choice(READERS)
                changes = chance.choice(processes).changes(reader=name)
                if chance.random() < 0.3 and changes.commits > 1:
                    changes = changes.limited(commits=1)
                world.take(changes, name)
                open_windows.append((name, changes))
            case "done" if open_windows:
                open_windows.pop(chance.randrange(len(open_windows)))[1].done()
            case "die":
                processes[chance.randrange(3)] = world.opened()
                open_windows = open_windows[: chance.randrange(4)]
            case "sleep":
                world.environment.sleep(chance.choice((1, 59, 61, 3600)))
        world.check()
    world.drain()


@pytest.mark.parametrize("seed", [0, 1, *(slow(seed) for seed in range(2, 40))])
def test_readers_that_finish_late_or_never_miss_nothing(seed: int) -> None:
    history(seed, 60)


# --- the search finds what goes wrong without a rule ------------------------------------------------------------------


def nothing_is_held(*_: Any, **__: Any) -> Any:
    return LAST


def the_last_checkpoint_replaces_the_others(session: Any, checkpoint: Any) -> None:
    for stat in checkpoints.listed(session.store):
        if checkpoints.checkpoint_of(stat).reader == checkpoint.reader:
            session.store.delete(stat.path)
    session.store.put(reader_path(checkpoint), b"")


def a_window_is_done_when_it_is_read(self: Any, value: Any, finished: Any, end: Any) -> bool:
    is_new = self._found is None
    checkpoints.record(self._session, Checkpoint(self._name, finished or end, value.table_id))
    return is_new


def a_begun_window_counts_as_done(self: Any, value: Any, finished: Any, end: Any) -> bool:
    if self._found is None:
        checkpoints.record(self._session, Checkpoint(self._name, end, value.table_id))
    return self._found is None


def nobody_looks_again(_: Any) -> bool:
    return False


def a_first_window_is_not_recorded(self: Any, value: Any, finished: Any, end: Any) -> bool:
    return False


BUGS: list[tuple[Any, str, Any]] = [
    (clean, "held_from", nothing_is_held),
    (changes, "record", the_last_checkpoint_replaces_the_others),
    (checkpoints.NamedReader, "begins", a_window_is_done_when_it_is_read),
    (checkpoints.NamedReader, "begins", a_begun_window_counts_as_done),
    (checkpoints.NamedReader, "has_moved", nobody_looks_again),
    (checkpoints.NamedReader, "begins", a_first_window_is_not_recorded),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "bug"), BUGS, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_bug_is_found(place: Any, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, name, bug)
    with pytest.raises((AssertionError, CheckpointExpiredError)):
        search()


def search() -> None:
    for at in range(1, 60):
        beside(at)
        killed(at, after=True)
    for seed in range(40):
        history(seed, 60)
