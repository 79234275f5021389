"""A write that was given up is told to Hudi as a rollback, once its files are known to be gone."""

from __future__ import annotations

import io
from contextlib import suppress

import fastavro
import pytest

from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import plan as plans
from crdt_mor.events import rollback, sweep
from crdt_mor.hudi.adoption import foreign_completions
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Put, perform
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.names import OWN_KEY
from crdt_mor.model.timeline import Timeline
from tests.driving import one_by_one
from tests.model.scene import PUBLISHER, Scene

FOLDER = PUBLISHER.projector.folder


def give_up(scene: Scene) -> InstantTime:
    """A write that begins and is given up: its requested time."""
    value, begun = scene.begin()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    return begun.requested


def swept(scene: Scene) -> Timeline:
    """The value after the sweeps that it takes until everything given up is forgotten."""
    for _ in range(2):
        scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    return scene.tail()


def record(scene: Scene, name: str) -> dict[str, object]:
    data = scene.store.read(f"{FOLDER}/{name}")
    assert data is not None
    [found] = fastavro.reader(io.BytesIO(data))
    assert isinstance(found, dict)
    return found


def test_a_write_that_was_given_up_is_a_rollback_of_hudis_once_it_is_forgotten() -> None:
    scene = Scene()
    undone = give_up(scene)
    assert scene.hudi() == []
    value = swept(scene)
    (told,) = value.completions
    assert (told.action, told.operation, told.undone) == ("rollback", "ROLLBACK", undone)
    assert undone < told.requested < told.completed == scene.version(told.version).clock
    requested, completed = told.requested, told.completed
    names = [f"{requested}.rollback.inflight", f"{requested}.rollback.requested", f"{requested}_{completed}.rollback"]
    assert scene.hudi() == names
    plan, done = record(scene, names[1]), record(scene, names[2])
    assert plan["instantToRollback"] == {"commitTime": undone, "action": "deltacommit"}
    assert (done["startRollbackTime"], done["commitsRollback"]) == (requested, [undone])
    assert done["instantsRollback"] == [{"commitTime": undone, "action": "deltacommit"}]
    assert (done["totalFilesDeleted"], done["partitionMetadata"]) == (0, {})
    assert scene.store.read(f"{FOLDER}/{names[0]}") == b""


def test_the_completed_file_of_a_rollback_is_put_first() -> None:
    scene = Scene()
    give_up(scene)
    value = swept(scene)
    files = scene.run(PUBLISHER.projector.files(scene.version(value.completions[0].version)))
    assert [put.path.rpartition(".")[2] for put in files] == ["rollback", "requested", "inflight"]


def test_nothing_is_told_as_long_as_a_file_of_the_write_is_left() -> None:
    scene = Scene()
    value, begun = scene.begin()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    scene.stage(begun)  # by the writer, which wakes up too late
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert scene.tail().completions == ()
    assert len(swept(scene).completions) == 1


def test_of_a_cancelled_plan_and_where_nothing_was_given_up_nothing_is_told() -> None:
    scene = Scene()
    planned = scene.schedule()
    scene.run(plans.cancel(PUBLISHER, planned, planned.plans[0].barrier))
    before = scene.tail()
    after = swept(scene)
    assert after.rolled_back == ()
    assert after.completions == before.completions == ()
    assert scene.hudi() == []


def test_writes_that_are_forgotten_together_have_a_rollback_each_at_times_of_its_own() -> None:
    scene = Scene()
    undone = [give_up(scene) for _ in range(5)]
    completions = swept(scene).completions
    assert [told.undone for told in completions] == undone
    times = [time for told in completions for time in (told.requested, told.completed)]
    assert times == sorted(set(times))
    assert len({told.version for told in completions}) == 1
    assert scene.version(completions[0].version).clock == times[-1]


def test_a_helper_tells_what_a_sweeper_that_died_has_published() -> None:
    scene = Scene()
    give_up(scene)
    tail = scene.tail()
    scene.run_until_put(sweep.sweep(PUBLISHER, tail), version_path(tail.version + 1))
    (told,) = scene.tail().completions
    assert scene.hudi() == []
    scene.begin()
    assert f"{told.requested}_{told.completed}.rollback" in scene.hudi()
    assert len([c for c in swept(scene).completions if c.undone]) == 1


def test_a_sweep_whose_put_landed_unanswered_tells_once() -> None:
    scene = Scene()
    give_up(scene)
    tail = scene.tail()
    steps = one_by_one(sweep.sweep(PUBLISHER, tail))
    step = next(steps)
    while not (isinstance(step, Put) and step.path == version_path(tail.version + 1)):
        step = steps.send(perform(step, scene.store, scene))
    perform(step, scene.store, scene)
    reply: object = None  # the answer to that put is lost
    with suppress(StopIteration):
        while True:
            reply = perform(steps.send(reply), scene.store, scene)
    assert len([c for c in swept(scene).completions if c.undone]) == 1


def test_a_rollback_of_ours_is_never_adopted_also_once_it_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    scene = Scene()
    for _ in range(3):
        give_up(scene)
        swept(scene)
        scene.commit()
    value = scene.tail()
    assert value.segments
    assert len([c for c in scene.completions(value) if c.undone]) == 3
    assert scene.run(foreign_completions(PUBLISHER.projector, value)).completions == ()


def test_a_job_whose_write_was_given_up_is_not_found_as_completed() -> None:
    scene = Scene()
    value, begun = scene.begin()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    (told,) = swept(scene).completions
    assert told.nonce != begun.nonce
    with pytest.raises(WriterExpiredError):
        scene.complete(value, begun, [])


def test_a_pending_rollback_is_swept_where_it_is_ours_and_left_where_it_is_hudis() -> None:
    scene = Scene()
    give_up(scene)
    requested = swept(scene).completions[0].requested
    ours = scene.store.read(f"{FOLDER}/{requested}.rollback.requested")
    assert ours is not None
    assert OWN_KEY.encode() in ours
    [datum] = fastavro.reader(io.BytesIO(ours))
    schema = fastavro.reader(io.BytesIO(ours)).writer_schema
    assert schema is not None
    theirs = io.BytesIO()
    fastavro.writer(theirs, schema, [datum])
    stale, foreign = from_ms(scene.ms - 1_000), from_ms(scene.ms - 2_000)
    scene.store.put(f"{FOLDER}/{stale}.rollback.requested", ours)  # by a helper of a table that was here before
    scene.store.put(f"{FOLDER}/{foreign}.rollback.requested", theirs.getvalue())
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    assert f"{stale}.rollback.requested" not in scene.hudi()
    assert f"{foreign}.rollback.requested" in scene.hudi()
