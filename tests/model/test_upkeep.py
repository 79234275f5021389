"""What writers do in passing for a table: expiry of dead writers and sweeping, on simulated clocks and stubborn stores.

`Scene` plays one writer at a time over a store in memory, with the real protocols.
"""

from __future__ import annotations

import pytest

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.ops import lifecycle
from crdt_mor.store.memory import MemoryStore
from tests.model.test_timeline import PUBLISHER, Scene


class StubbornStore(MemoryStore):
    """Some objects cannot be deleted; `attempts` counts how often somebody tried."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.now_ms)
        self.stuck: set[str] = set()
        self.attempts = 0

    def delete(self, path: str) -> None:
        if path in self.stuck:
            self.attempts += 1
            raise StorageUnavailableError(f"EACCES {path}")
        super().delete(path)


@pytest.fixture
def scene() -> Scene:
    found = Scene()
    store = StubbornStore(found)
    for stat in found.store.walk(".hoodie"):
        store.put(stat.path, found.store.read(stat.path) or b"")
    found.store = store
    return found


# --- rubbish that cannot be deleted -----------------------------------------------------------------------------------


def test_a_dead_writers_file_that_cannot_be_deleted_stops_nobody_and_is_tried_once_a_minute(scene: Scene) -> None:
    _, begun = scene.begin()
    file = scene.stage(begun)
    scene.store.stuck = {file.path}
    scene.ms += 100_000
    scene.begin(expiry_ms=50_000)
    tried = scene.store.attempts
    for _ in range(50):
        scene.ms += 100
        scene.commit()
    assert scene.store.attempts == tried, "not at every commit"
    assert scene.tail().find_rolled_back(begun.requested), "not forgotten as long as there is something of it"
    assert f"{begun.requested}.deltacommit.inflight" in scene.hudi()
    scene.ms += 61_000
    scene.commit()
    assert scene.store.attempts == tried + 1
    scene.store.stuck = set()
    for _ in range(2):
        scene.ms += 61_000
        scene.commit()
    assert scene.tail().rolled_back == ()
    assert scene.store.read(file.path) is None
    assert begun.requested not in "".join(scene.hudi())


def test_files_of_hudis_timeline_that_cannot_be_deleted_keep_the_instant_known(scene: Scene) -> None:
    value, begun = scene.begin()
    scene.store.stuck = {path for path, _ in scene.run(PUBLISHER.projector.files(value))}
    scene.run(lifecycle.give_up(PUBLISHER, value, begun.requested, None))
    for _ in range(2):
        scene.run(lifecycle.sweep(PUBLISHER, scene.tail()))
    assert scene.tail().find_rolled_back(begun.requested)
    scene.store.stuck = set()
    for _ in range(2):
        scene.run(lifecycle.sweep(PUBLISHER, scene.tail()))
    assert scene.tail().rolled_back == ()


def test_a_ticket_that_a_power_cut_emptied_is_swept(scene: Scene) -> None:
    scene.commit()
    scene.store.put(lifecycle.ticket_path("somebody"), b"")
    scene.ms += 61_000
    scene.commit()
    assert scene.store.read(lifecycle.ticket_path("somebody")) is None
