"""Giving way: a service that loses race after race gets a turn, and no writer waits for long, whichever has died."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.events import group, sweep
from crdt_mor.events.one_event import LoneWrite
from crdt_mor.hudi.projection import Projector, TablePublisher
from crdt_mor.log import giving_way
from crdt_mor.log.combining import ABANDONED_MS, Crowd
from crdt_mor.log.giving_way import FRESH_MS, LOST_MAX, TURN
from crdt_mor.log.intents import BeginIntent
from crdt_mor.log.paths import POSTS, is_own, version_path
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import Put, Steps, Touch, run
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import claim_after, from_ms
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.local import LocalStore
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Store
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.inside import session_of
from tests.simulation.crowd import crowd_of
from tests.stores import ScriptedStore, refusing
from tests.tiers import slow

PUBLISHER = TablePublisher(Projector(TableConfig("t", KeySpec(("id",)), buckets=1)))
FIRST = Timeline(1, "first", from_ms(1_000), "[]", table_id="id")
SECONDS_MAX = 2.5
"""More than a writer waits for others in the simulated environment, where chance is always a half."""


def scene() -> tuple[MemoryStore, SimulatedEnvironment]:
    environment = SimulatedEnvironment()
    store = MemoryStore(environment.now_ms)
    store.put(version_path(1), FIRST.encode())
    return store, environment


# --- a service beside a writer that does not pause, by a virtual clock ------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("writers", [1, slow(20)])
def test_a_service_gets_its_turn_beside_writers_that_commit_without_a_pause(writers: int) -> None:
    for seed in (7, 8):
        took: list[float] = []
        sim = crowd_of(writers, seconds=60, latency_ms=30, seed=seed, service_took=took)
        assert len(sim.commits) > 200
        assert max(took) < 3_000


@pytest.mark.slow
def test_a_service_that_asks_for_a_turn_waits_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits() -> float:
        took: list[float] = []
        for seed in range(9, 13):
            crowd_of(1, seconds=60, latency_ms=30, seed=seed, service_took=took)
        return sum(took) / len(took)

    asking = waits()
    monkeypatch.setattr(giving_way, "LOST_MAX", 1 << 60)
    assert waits() > 1.2 * asking


@pytest.mark.slow
@pytest.mark.parametrize("writers", [1, slow(3), slow(10)])
def test_a_transaction_block_ends_beside_writers_that_commit_without_a_pause(writers: int) -> None:
    """Commits in one event, and groups, take its begin and its end along: beside one writer a block took 26 seconds."""
    for seed in (7, 8):
        took: list[float] = []
        crowd_of(writers, seconds=40, latency_ms=30, seed=seed, blocks_took=[took])
        assert len(took) > 15
        assert max(took) < 6_000


# --- asking -----------------------------------------------------------------------------------------------------------


def losing(store: MemoryStore, environment: SimulatedEnvironment, steps: Steps[Any], races: int) -> list[Any]:
    """Drive a protocol whose first puts of a version come too late; what it touched and put, in order."""
    done: list[Any] = []
    lost = 0

    def watched() -> Steps[Any]:
        nonlocal lost
        reply: Any = None
        value = FIRST
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(step, Put) and step.path == version_path(value.version + 1) and lost < races:
                lost += 1
                value = value.decide(f"other {lost}", 0)
                store.put(version_path(value.version), value.encode())
            done.append(step)
            reply = yield step

    run(watched(), store, environment)
    return done


def set_properties(tail: Timeline, wall_ms: int) -> Timeline:
    return tail.set_properties("service", wall_ms, (("a", "b"),))


@pytest.mark.parametrize("intent", [None, BeginIntent("writer", None, None)], ids=["a service", "a write"])
@pytest.mark.parametrize("races", range(6))
def test_who_has_lost_several_races_asks_by_a_name_of_its_own(races: int, intent: BeginIntent | None) -> None:
    store, environment = scene()
    derive = set_properties if intent is None else intent.derive
    done = losing(store, environment, PUBLISHER.publish(derive, FIRST, intent=intent), races)
    asked = [step.path for step in done if isinstance(step, Touch)]
    assert len(asked) == (races >= LOST_MAX), "it asks once in so short a time"
    assert all(is_own(path) and path != TURN for path in asked), "no other process touches this name"
    assert not any(giving_way.is_request(stat.path) for stat in store.list(POSTS))


# --- waiting ----------------------------------------------------------------------------------------------------------


def asked(store: Store, environment: SimulatedEnvironment) -> str:
    """The object by which a process asks for a turn, which it has just done."""
    request = giving_way.Request()
    run(request.ask(), store, environment)
    return request.path


def waited_ms(store: MemoryStore, environment: SimulatedEnvironment) -> int:
    before = environment.now_ms()
    run(giving_way.give_way(), store, environment)
    return environment.now_ms() - before


def test_nobody_waits_where_nobody_has_asked() -> None:
    assert waited_ms(*scene()) == 0


def test_a_writer_waits_until_the_turn_was_had() -> None:
    store, environment = scene()
    turn = asked(store, environment)
    with environment.every(0.1, lambda: store.delete(turn), "the service"):
        assert 100 <= waited_ms(store, environment) < 150


def test_a_writer_does_not_wait_for_one_that_has_died_long_ago() -> None:
    store, environment = scene()
    asked(store, environment)
    environment.sleep(FRESH_MS / 1000 + 0.001)
    assert waited_ms(store, environment) == 0


def test_a_writer_goes_on_after_a_while_whatever_others_do() -> None:
    store, environment = scene()
    turn = asked(store, environment)
    with environment.every(0.1, lambda: store.touch(turn), "services without end"):
        assert 500 < waited_ms(store, environment) < SECONDS_MAX * 1000


def test_writes_to_a_local_disk_give_way_and_are_made_all_the_same(tmp_path: Path) -> None:
    environment = SimulatedEnvironment()

    touched_ms = 0

    def clocked(operation: str, path: str, call: Callable[[], Any]) -> Any:
        """The clock of the disk is the simulated one."""
        nonlocal touched_ms
        if operation == "touch" and giving_way.is_request(path):
            touched_ms = environment.now_ms()
        if operation == "list":
            return [replace(s, modified_ms=touched_ms) if giving_way.is_request(s.path) else s for s in call()]
        return environment.now_ms() if operation == "now_ms" else call()

    store = ScriptedStore(LocalStore(tmp_path / "t"), clocked)
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = Table.create(tmp_path / "t", schema, key="id", buckets=1, opening=Opening(environment=environment))
    session_of(table)._store = store
    table.upsert(pa.table({"id": ["a"], "n": [1]}, schema=schema))
    for write in ("alone", "in a block"):
        turn = asked(store, environment)
        before = environment.now_ms()
        if write == "alone":
            table.upsert(pa.table({"id": ["a"], "n": [2]}, schema=schema))
        else:
            with table.transaction() as tx:
                tx.upsert(pa.table({"id": ["a"], "n": [3]}, schema=schema))
        assert 500 < environment.now_ms() - before < SECONDS_MAX * 1000
        store.delete(turn)
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "n": 3}]


def test_a_store_that_does_not_answer_the_hint_stops_no_write(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string())])
    table = Table.create(tmp_path / "t", schema, key="id", buckets=1)
    session_of(table)._store = ScriptedStore(
        LocalStore(tmp_path / "t"), refusing("list", of=lambda path: path == POSTS)
    )
    table.upsert(pa.table({"id": ["a"]}, schema=schema))
    assert table.scan().to_arrow().num_rows == 1


# --- beside posts -----------------------------------------------------------------------------------------------------


def test_a_commit_that_is_alone_leaves_the_turn_to_a_service_that_asks() -> None:
    store, environment = scene()
    asked(store, environment)
    crowd, requested = Crowd(), claim_after(FIRST.clock, environment.now_ms())
    write = LoneWrite(requested, "UPSERT", ())
    steps = group.commit_alone(PUBLISHER, FIRST, write, lambda: None, crowd, None, NO_SHORTCUTS, is_stale=True)
    assert run(steps, store, environment) is None
    assert crowd == Crowd(is_asked=True)
    assert [stat.path for stat in store.walk("")] == []
    assert store.stat(PUBLISHER.projector.claim_path(requested)) is None


def test_who_publishes_for_others_does_not_read_what_is_no_intent() -> None:
    store, environment = scene()
    turn = asked(store, environment)
    store.read = lambda path: pytest.fail(path) if path == turn else MemoryStore.read(store, path)  # type: ignore[method-assign]
    intent, crowd = BeginIntent("writer", None, None), Crowd(is_crowded=True)
    value = run(PUBLISHER.publish(intent.derive, FIRST, Shortcuts(crowd=crowd), intent), store, environment)
    assert value.find_by_nonce("writer") is not None
    assert crowd.others == 0


def test_what_one_that_died_has_touched_goes_with_a_sweep() -> None:
    store, environment = scene()
    turn = asked(store, environment)
    environment.sleep(ABANDONED_MS / 1000 + 1)
    run(sweep.sweep(PUBLISHER, FIRST), store, environment)
    assert store.stat(turn) is None


def test_a_writer_waits_for_an_older_release_that_asks() -> None:
    store, environment = scene()
    store.touch(TURN)
    assert waited_ms(store, environment) > 500
