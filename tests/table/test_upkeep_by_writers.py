"""Upkeep by the writers of a table that one machine writes: the default, bounded by a share of the time of writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import Opening, Table
from crdt_mor.events import session
from crdt_mor.planners.upkeep_budget import CREDIT_MAX_MS, FIXED_MS, RESTS_MAX, SHARE, START_MS, Budget
from crdt_mor.store import MemoryStore
from crdt_mor.testing import SimulatedEnvironment
from tests.stores import ScriptedStore

SCHEMA = pa.schema([("id", pa.string())])
DAY_S = 24 * 3600.0


@pytest.fixture(autouse=True)
def time_for_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(session), "Budget", Budget)


class World:
    """A table in memory in which each log file and each base file takes so many seconds to store."""

    def __init__(self, log_s: float = 0.0, base_s: float = 0.0) -> None:
        self.clock = SimulatedEnvironment()
        self.upkeep_s = 0.0

        def slow(operation: str, path: str, call: Callable[[], Any]) -> Any:
            if operation == "put" and ".log." in path:
                self.clock.sleep(log_s)
            if operation == "put" and path.endswith(".parquet"):
                self.clock.sleep(base_s)
                self.upkeep_s += base_s
            return call()

        self.store = ScriptedStore(MemoryStore(self.clock.now_ms), slow)
        self.table = Table.create("t", SCHEMA, key="id", buckets=1, opening=self.opening())

    def opening(self, **options: Any) -> Opening:
        return Opening(store=self.store, environment=self.clock, **options)

    def write(self, count: int, table: Table | None = None) -> None:
        for n in range(count):
            (table or self.table).upsert(pa.table({"id": [str(n)]}))

    def kinds(self) -> list[str]:
        return [str(kind) for kind in self.table.inspect.files()["kind"].to_pylist()]


def test_the_tenth_log_of_a_file_group_is_compacted_without_a_word_of_the_user() -> None:
    world = World()
    world.write(9)
    assert world.kinds() == ["log"] * 9
    world.write(1)
    assert world.kinds() == ["base"]
    assert world.table.count() == 9
    assert world.table.history()["operation"].to_pylist() == ["COMPACT"] + ["UPSERT"] * 10


@pytest.fixture
def told() -> Iterator[list[mor.observing.UpkeepEvent]]:
    events: list[mor.observing.UpkeepEvent] = []

    def note(event: mor.observing.Event) -> None:
        if isinstance(event, mor.observing.UpkeepEvent):
            events.append(event)

    with mor.observe(note):
        yield events


def test_upkeep_takes_a_share_of_the_time_of_writes(told: list[mor.observing.UpkeepEvent]) -> None:
    log_s, base_s, writes = 0.25, 0.9, 100
    world = World(log_s, base_s)
    world.write(writes)
    allowed_s = START_MS / 1000 + SHARE * writes * log_s
    assert allowed_s - 2 * base_s < world.upkeep_s <= allowed_s + base_s, "one piece may exceed the estimate"
    assert [event.inline for event in told] == [True] * len(told)
    assert len(told) == round(world.upkeep_s / base_s)
    off = World(log_s, base_s)
    off.write(writes, Table("t", opening=off.opening(maintain="off")))
    assert off.upkeep_s == 0


def test_a_file_group_that_takes_longer_than_the_credit_is_left_to_maintain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(session), "Budget", lambda: Budget(bytes_per_ms=0.001))
    world = World()
    world.write(12)
    assert world.kinds() == ["log"] * 12
    assert world.table.maintenance.maintain(dry_run=True).actions[0].service == "compaction"


class Elsewhere(SimulatedEnvironment):
    """The clock of another machine."""

    def process(self) -> mor.Process:
        return replace(super().process(), host="elsewhere")


def test_a_table_that_two_machines_write_is_left_alone() -> None:
    world = World()
    other = Elsewhere()
    other.sleep((world.clock.now_ms() - other.now_ms()) / 1000)
    world.write(1, Table("t", opening=Opening(store=world.store, environment=other)))
    world.write(12)
    assert world.kinds() == ["log"] * 13


@pytest.mark.parametrize("asked", ["off", "inline"])
def test_a_property_or_a_process_may_ask_for_none_or_for_all(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(session), "Budget", lambda: Budget(credit_ms=0 if asked == "inline" else CREDIT_MAX_MS))
    kinds = {"off": ["log"] * 10, "inline": ["base"]}[asked]
    for by_property in (True, False):
        world = World()
        if by_property:
            world.table.set_properties({"crdt_mor.maintain": asked})
            world.write(10)
        else:
            world.write(10, Table("t", opening=world.opening(maintain=asked)))
        assert world.kinds() == kinds


def test_old_history_is_cleaned_and_instants_are_archived(told: list[mor.observing.UpkeepEvent]) -> None:
    world = World()
    for _ in range(28):
        world.write(10)
        world.clock.sleep(DAY_S)
    services = {event.service for event in told}
    assert services == {"compaction", "clean", "archive"}
    assert all(event.state == "done" for event in told), [event.error for event in told]
    bases = [stat.path for stat in world.store.walk("") if stat.path.endswith(".parquet")]
    assert len(bases) < 12, "of 28 compactions those of a week and of an eighth of it stay"
    assert world.table.count() == 10


def test_a_job_of_many_processes_does_none(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    for n in range(11):
        job = table.jobs.plan("upsert", SCHEMA)
        table.jobs.complete(job, [job.stage(pa.table({"id": [str(n)]}), task=0)])
    assert table.inspect.files()["kind"].to_pylist() == ["log"] * 11


def test_a_budget_is_spent_earned_and_measured() -> None:
    fresh = Budget()
    asleep = fresh.resting([3_000], 2)
    looks = [asleep.may_look, asleep.earned(10_000).may_look, asleep.earned(9_999).earned(1).may_look]
    assert looks == [False, False, True]
    assert fresh.resting([CREDIT_MAX_MS + 1], 2).rests == fresh.resting((), 99).rests == RESTS_MAX
    assert fresh.earned(1_000).credit_ms == START_MS + SHARE * 1_000
    assert fresh.earned(10**9).credit_ms == CREDIT_MAX_MS
    assert fresh.cost_ms(10_000_000) == FIXED_MS + 1_000
    assert fresh.spent(3_000).credit_ms == START_MS - 3_000
    slower = fresh.spent(FIXED_MS + 1_000, 1_000_000)
    assert slower.bytes_per_ms == fresh.bytes_per_ms / 2, "a single measurement halves or doubles the speed at most"
    assert fresh.spent(FIXED_MS + 1_000, 12_000_000).bytes_per_ms == 12_000
