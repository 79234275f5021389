"""What writers do in passing for a table: expiry of dead writers and sweeping, on simulated clocks and stubborn stores.

`Scene` plays one writer at a time over a store in memory, with the real protocols.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from crdt_mor.errors import ClockError, StorageUnavailableError
from crdt_mor.events import rollback, sweep
from crdt_mor.events import write as events
from crdt_mor.events.heartbeat import beating
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log import publish
from crdt_mor.log.paths import HEARTBEATS, heartbeat_path, ticket_path, version_path
from crdt_mor.log.publish import CLOCK_AHEAD_MAX_MS
from crdt_mor.log.steps import Steps, perform, run
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.driving import nonce_in_hex, one_by_one
from tests.model.scene import PUBLISHER, SCHEMA, Scene
from tests.stores import ScriptedStore, refusing


class Upkeep(Scene):
    """A table some of whose objects are `stuck`: nobody can delete them. The writers' clocks are `ahead_ms` ahead."""

    store: ScriptedStore

    def __init__(self) -> None:
        self.ahead_ms, self.stuck = 0, set[str]()
        super().__init__()
        self.store = ScriptedStore(MemoryStore(lambda: self.ms), refusing("delete", of=lambda path: path in self.stuck))
        self.store.put(version_path(0), Timeline.genesis(SCHEMA).encode())

    def now_ms(self) -> int:
        return self.ms + self.ahead_ms

    def attempts(self) -> int:
        """The number of attempts to delete stuck files."""
        return sum(path in self.stuck for path in self.store.paths("delete"))


@pytest.fixture
def scene() -> Upkeep:
    return Upkeep()


# --- rubbish that cannot be deleted -----------------------------------------------------------------------------------


def test_a_dead_writers_file_that_cannot_be_deleted_stops_nobody_and_is_tried_once_a_minute(scene: Upkeep) -> None:
    _, begun = scene.begin()
    file = scene.stage(begun)
    scene.stuck = {file.path}
    scene.ms += 100_000
    scene.begin(expiry_ms=50_000)
    tried = scene.attempts()
    for _ in range(50):
        scene.ms += 100
        scene.commit()
    assert scene.attempts() == tried, "not at every commit"
    assert scene.tail().find_rolled_back(begun.requested), "not forgotten as long as there is something of it"
    assert f"{begun.requested}.deltacommit.inflight" in scene.hudi()
    scene.ms += 61_000
    scene.commit()
    assert scene.attempts() == tried + 1
    scene.stuck = set()
    for _ in range(2):
        scene.ms += 61_000
        scene.commit()
    assert scene.tail().rolled_back == ()
    assert scene.store.read(file.path) is None
    assert begun.requested not in "".join(scene.hudi())


def test_files_of_hudis_timeline_that_cannot_be_deleted_keep_the_instant_known(scene: Upkeep) -> None:
    value, begun = scene.begin()
    scene.stuck = {put.path for put in scene.run(PUBLISHER.projector.files(value))}
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    for _ in range(2):
        scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert scene.tail().find_rolled_back(begun.requested)
    scene.stuck = set()
    for _ in range(2):
        scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert scene.tail().rolled_back == ()


def test_a_ticket_that_a_power_cut_emptied_is_swept(scene: Upkeep) -> None:
    scene.commit()
    scene.store.put(ticket_path(nonce_in_hex("somebody")), b"")
    scene.ms += 61_000
    scene.commit()
    assert scene.store.read(ticket_path(nonce_in_hex("somebody"))) is None


# --- clocks that are wrong --------------------------------------------------------------------------------------------

EXPIRY_MS = 600_000
DAY_MS = 86_400_000


def beat(scene: Upkeep, begun: Pending) -> None:
    scene.store.touch(heartbeat_path(begun.requested))


def pending(scene: Upkeep) -> list[InstantTime]:
    return [p.requested for p in scene.tail().pending]


def test_after_a_year_that_the_stores_clock_was_ahead_dead_writers_expire_and_sweeps_go_on(scene: Upkeep) -> None:
    right = scene.ms
    scene.ms = right + 365 * DAY_MS
    _, ahead = scene.begin(EXPIRY_MS)
    scene.ms = right
    _, dead = scene.begin(EXPIRY_MS)
    _, alive = scene.begin(EXPIRY_MS)
    assert pending(scene) == [ahead.requested, dead.requested, alive.requested], "nothing is known yet of their silence"
    for minutes in range(1, 13):
        scene.ms = right + minutes * 60_000 + minutes
        beat(scene, alive)
        scene.run(sweep.upkeep(PUBLISHER, scene.tail(), EXPIRY_MS))
        assert scene.tail().swept == from_ms(scene.ms), "once a minute"
    assert pending(scene) == [alive.requested]
    assert to_ms(scene.tail().clock) > right + 364 * DAY_MS, "what is decided stays decided"


def test_a_writer_that_began_while_the_stores_clock_was_ahead_lives_as_long_as_it_beats(scene: Upkeep) -> None:
    right = scene.ms
    scene.ms = right + 365 * DAY_MS
    _, alive = scene.begin(EXPIRY_MS)
    scene.ms = right
    for _ in range(30):
        scene.run(sweep.upkeep(PUBLISHER, scene.tail(), EXPIRY_MS))
        beat(scene, alive)
        scene.ms += EXPIRY_MS // 5
    assert pending(scene) == [alive.requested]


def test_a_clock_that_runs_fast_is_refused_however_often_it_commits(scene: Upkeep) -> None:
    def creep() -> None:
        for _ in range(100):
            scene.ms += 1000
            scene.ahead_ms += 30_000
            scene.commit()

    with pytest.raises(ClockError, match="ahead_s="):
        creep()
    assert to_ms(scene.tail().clock) <= scene.ms + CLOCK_AHEAD_MAX_MS + 2
    scene.ahead_ms = 0
    scene.commit()


def test_a_clock_that_runs_fast_is_refused_by_writes_that_began_long_ago(scene: Upkeep) -> None:
    begun = [scene.begin() for _ in range(20)]

    def creep() -> None:
        for value, write in begun:
            scene.ms += 1000
            scene.ahead_ms += 30_000
            scene.complete(value, write, [scene.stage(write)])

    with pytest.raises(ClockError):
        creep()
    assert to_ms(scene.tail().clock) <= scene.ms + CLOCK_AHEAD_MAX_MS + 2


def test_a_clock_that_is_wrong_but_behind_the_tables_moves_nothing(scene: Upkeep) -> None:
    right = scene.ms
    scene.ms = right + 365 * DAY_MS
    scene.commit()
    scene.ms = right
    scene.ahead_ms = 30 * DAY_MS
    before = to_ms(scene.tail().clock)
    scene.commit()
    assert to_ms(scene.tail().clock) <= before + 8, "a tick for each event, or two"


def test_a_live_writer_whose_begin_has_left_the_kept_versions_and_whose_clock_is_behind_stays(
    scene: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 4)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 4)
    scene.ahead_ms = -EXPIRY_MS - 60_000
    _, alive = scene.begin(EXPIRY_MS)
    scene.store.delete(heartbeat_path(alive.requested))  # who begins may be gone before his first heartbeat
    while scene.store.stat(version_path(alive.version)) is not None:
        scene.ms += 200
        value, begun = scene.begin(EXPIRY_MS)
        scene.complete(value, begun, [scene.stage(begun)])
    scene.run(sweep.upkeep(PUBLISHER, scene.tail(), EXPIRY_MS))
    assert pending(scene) == [alive.requested]
    scene.ms += EXPIRY_MS
    scene.begin(EXPIRY_MS)
    assert alive.requested not in pending(scene)


def test_a_writer_of_which_nobody_knows_when_it_began_is_silent_from_now_on(scene: Upkeep) -> None:
    """As those of a table that an earlier release wrote to until now."""
    value, begun = scene.begin(EXPIRY_MS)
    unknown = replace(value, version=value.version + 1, nonce="old", pending=(replace(begun, begun_ms=None),))
    scene.store.put(version_path(unknown.version), unknown.encode())
    scene.store.delete(heartbeat_path(begun.requested))
    scene.ms += 10 * EXPIRY_MS
    scene.run(sweep.upkeep(PUBLISHER, unknown, EXPIRY_MS))
    assert pending(scene) == [begun.requested]
    scene.ms += EXPIRY_MS + 1
    scene.run(sweep.upkeep(PUBLISHER, unknown, EXPIRY_MS))
    assert pending(scene) == []


def test_the_first_heartbeat_is_part_of_the_begin_and_none_stays(scene: Upkeep) -> None:
    value, begun = scene.begin()
    stat = scene.store.stat(heartbeat_path(begun.requested))
    assert stat is not None
    assert stat.modified_ms == scene.ms
    scene.complete(value, begun, [scene.stage(begun)])
    value, begun = scene.begin()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    assert scene.store.list(HEARTBEATS) == []


def test_a_store_that_takes_no_heartbeat_stops_no_write(scene: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise StorageUnavailableError(f"EACCES {path}")

    monkeypatch.setattr(scene.store, "touch", refused)
    assert scene.commit().completion.requested


def test_neither_a_begin_nor_an_end_asks_for_the_time_twice_or_for_heartbeats_of_others(scene: Upkeep) -> None:
    def asked(steps: Steps[Any]) -> list[str]:
        found: list[str] = []
        reply: object = None
        single = one_by_one(steps)
        while True:
            try:
                step = single.send(reply)
            except StopIteration as end:
                results.append(end.value)
                return found
            found.append(getattr(step, "path", type(step).__name__))
            reply = perform(step, scene.store, scene)

    results: list[Any] = []
    for _ in range(20):
        scene.begin()
        scene.ms += 1000
    begin = asked(events.begin(PUBLISHER, scene.tail(), EXPIRY_MS))
    value, begun = results[-1]
    assert begin.count("StoreNow") == 1
    assert [path for path in begin if HEARTBEATS in path] == [heartbeat_path(begun.requested)]
    end = asked(events.complete(PUBLISHER, value, begun, "UPSERT", [scene.stage(begun)], None))
    assert "StoreNow" not in end


# --- heartbeats -------------------------------------------------------------------------------------------------------


def test_a_writer_that_beats_is_never_given_up_and_one_that_has_stopped_is() -> None:
    environment = SimulatedEnvironment()
    store = MemoryStore(environment.now_ms)
    store.put(version_path(0), Timeline.genesis(SCHEMA).encode())
    began, begun = run(events.begin(PUBLISHER, Timeline.genesis(SCHEMA), EXPIRY_MS), store, environment)
    with beating(store, environment, begun.requested, EXPIRY_MS):
        environment.sleep(5 * EXPIRY_MS / 1000)
        value = run(sweep.upkeep(PUBLISHER, began, EXPIRY_MS), store, environment)
        assert value.find_pending(begun.requested) is not None
    environment.sleep(2 * EXPIRY_MS / 1000)
    value = run(sweep.upkeep(PUBLISHER, value, EXPIRY_MS), store, environment)
    assert value.find_pending(begun.requested) is None


def test_a_store_that_does_not_answer_ends_no_heartbeat() -> None:
    environment = SimulatedEnvironment()
    touched: list[int] = []

    def unanswered(operation: str, path: str, call: Callable[[], Any]) -> None:
        touched.append(environment.now_ms())
        raise StorageUnavailableError("no answer")

    with beating(ScriptedStore(MemoryStore(), unanswered), environment, from_ms(0), 1_000):
        environment.sleep(1)
    assert len(touched) == 5
    assert [b - a for a, b in itertools.pairwise(touched)] == [200] * 4


def test_the_machines_clock_does_in_the_background_what_is_due_until_the_block_is_left() -> None:
    beats = threading.Semaphore(0)
    with SystemEnvironment().every(0.001, beats.release, "beats"):
        assert all(beats.acquire(timeout=60) for _ in range(3))
        assert "beats" in [thread.name for thread in threading.enumerate()]
    assert "beats" not in [thread.name for thread in threading.enumerate()]
