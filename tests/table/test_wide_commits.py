"""Commits of thousands of files: no version carries them, Hudi learns of each file, whichever dies at whatever step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, WriterExpiredError
from crdt_mor.events import job as jobs
from crdt_mor.events import rollback, sweep
from crdt_mor.events import write as events
from crdt_mor.events.ticket import job_name
from crdt_mor.format.commit import decode_commit
from crdt_mor.hudi.adoption import foreign_completions
from crdt_mor.log import publish, tail
from crdt_mor.log.outcome import all_completions, find_completion
from crdt_mor.log.paths import SEGMENTS, VERSIONS, segment_path
from crdt_mor.log.segments import fresh_completions
from crdt_mor.log.steps import run
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending, Retention, completed_name
from crdt_mor.testing.faults import ProcessDied
from tests.driving import nonce_in_hex, one_by_one
from tests.inside import completions_of, run_sweep, session_of
from tests.model.scene import NEVER, PUBLISHER, Scene
from tests.posting import post
from tests.simulated import Simulated
from tests.stores import Dying, ScriptedStore

SMALL = 5_000
"""Bytes of a version that are few, however many files were committed."""


def files_of(requested: InstantTime, count: int) -> list[DataFile]:
    return [DataFile(f"day={n:05d}/{LogFileName(bucket_file_id(0), requested)}", 900, 1) for n in range(count)]


def told(scene: Scene, completion: Completion) -> set[str]:
    """The files that Hudi's completed file of a commit names."""
    data = scene.store.read(PUBLISHER.projector.path(completed_name(completion)))
    assert data is not None
    stats = decode_commit(data, "").stats
    return {stat.path for of_partition in stats.values() for stat in of_partition if stat.path}


def versions(scene: Scene) -> Iterator[bytes]:
    for stat in scene.store.list(VERSIONS):
        data = scene.store.read(stat.path)
        assert data is not None
        yield data


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_value_stays_small_however_many_files_a_commit_has(count: int) -> None:
    scene = Scene()
    done: list[Completion] = []
    for _ in range(4):
        value, begun = scene.begin()
        outcome = scene.complete(value, begun, files_of(begun.requested, count))
        assert isinstance(outcome.completion, Completion)
        done.append(outcome.completion)
    for completion in done:
        assert len(completion.files) == count
        assert {file.path for file in completion.files} <= told(scene, completion)
    assert max(len(data) for data in versions(scene)) < SMALL
    assert scene.run(all_completions(scene.tail())) == done
    assert scene.run(find_completion(done[1].requested, scene.tail())) == done[1]


def test_whoever_helps_tells_hudi_of_the_same_files() -> None:
    scene = Scene()
    value, begun = scene.begin()
    outcome = scene.complete(value, begun, files_of(begun.requested, 1_000))
    assert isinstance(outcome.completion, Completion)
    path = PUBLISHER.projector.path(completed_name(outcome.completion))
    data = scene.store.read(path)
    scene.store.delete(path)
    looked = scene.run(foreign_completions(PUBLISHER.projector, scene.tail()))
    assert not looked.completions, "what is not projected yet is not missed"
    scene.commit()  # helps before it publishes
    assert scene.store.read(path) == data
    assert scene.run(fresh_completions(outcome.value)) == (outcome.completion,)
    assert scene.run(fresh_completions(scene.tail())) == ()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["just before", "just after"])
def test_a_process_may_die_at_any_step_of_a_wide_commit(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "KEPT_VERSIONS", 4)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    seen = set()
    for at in range(1, 50):
        scene = Scene()
        value, begun = scene.begin()
        files = files_of(begun.requested, 1_000)
        steps = one_by_one(events.complete(PUBLISHER, value, begun, "UPSERT", files, None))
        try:
            run(steps, ScriptedStore(scene.store, Dying(at=at, after=after)), scene)
        except ProcessDied:
            seen.add(check_after_death(scene, begun))
            continue
        assert at > 4, "a segment, a version, the completed file, the heartbeat"
        assert seen == {False, True}
        return
    raise AssertionError("a commit without an end")


def check_after_death(scene: Scene, begun: Pending) -> bool:
    """Whether the commit is there; its segment, too, or else nothing of it once a sweep has come by."""
    scene.commit()
    completion = scene.run(find_completion(begun.requested, scene.tail()))
    if completion is not None:
        assert {file.path for file in completion.files} <= told(scene, completion)
    else:
        scene.run(rollback.give_up(PUBLISHER, scene.tail(), begun.requested, None))
    for _ in range(6):
        scene.commit()
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    named = {segment_path(segment.name) for segment in scene.tail().segments}
    assert {stat.path for stat in scene.store.list(SEGMENTS)} == named
    assert bool(named) == (completion is not None)
    return completion is not None


# --- what was dropped is not known any more ---------------------------------------------------------------------------


def drop(scene: Scene) -> Timeline:
    """A clean that keeps nothing but what the latest snapshot needs, as far as the timeline is concerned."""

    def derive(tail: Timeline, wall_ms: int) -> Timeline:
        kept = replace(tail.retention, since=tail.clock, stable_since=tail.clock, dropped=tail.clock)
        return replace(tail.decide("clean", wall_ms), retention=kept)

    return scene.run(PUBLISHER.publish(derive, scene.tail()))


def committed_job(scene: Scene) -> tuple[str, InstantTime]:
    planned = scene.commit(bucket=1).value.clock
    job = job_name(nonce_in_hex("job"), planned)
    joined = scene.run(jobs.join(PUBLISHER, scene.tail(), NEVER, job, planned))
    assert not isinstance(joined, events.WriteOutcome)
    value, begun = joined
    scene.complete(value, begun, [scene.stage(begun)])
    return job, planned


def test_a_job_whose_commit_was_dropped_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    scene = Scene()
    job, planned = committed_job(scene)
    again = scene.run(jobs.join(PUBLISHER, scene.tail(), NEVER, job, planned))
    assert isinstance(again, events.WriteOutcome)
    scene.compact(0)
    scene.commit()
    assert drop(scene).retention.dropped_count
    assert again.completion.requested not in {c.requested for c in scene.run(all_completions(scene.tail()))}
    for said in ("is unknown", "does not begin again"):
        with pytest.raises(CommitUnknownError, match=said):
            scene.run(jobs.join(PUBLISHER, scene.tail(), NEVER, job, planned))
        scene.run(sweep.sweep(PUBLISHER, scene.tail()))  # takes the ticket
    assert not scene.tail().pending
    later, planned = committed_job(scene)
    drop(scene)
    assert isinstance(scene.run(jobs.join(PUBLISHER, scene.tail(), NEVER, later, planned)), events.WriteOutcome)


def test_a_writer_whose_commit_was_dropped_is_told_that_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    scene = Scene()
    value, begun = scene.begin()
    given_up, lost = scene.begin()
    scene.complete(value, begun, [scene.stage(begun)])
    scene.run(rollback.give_up(PUBLISHER, scene.tail(), lost.requested, None))
    with pytest.raises(WriterExpiredError):
        scene.complete(given_up, lost, [scene.stage(lost)])
    scene.compact(0)
    scene.commit()
    drop(scene)
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    for asked, write in ((value, begun), (given_up, lost)):
        file = scene.stage(write, bucket=1)
        with pytest.raises(CommitUnknownError, match="dropped"):
            scene.complete(asked, write, [file])
    with pytest.raises(WriterExpiredError):
        scene.complete(*_given_up_later(scene), [])


def _given_up_later(scene: Scene) -> tuple[Timeline, Pending]:
    value, begun = scene.begin()
    scene.run(rollback.give_up(PUBLISHER, value, begun.requested, None))
    return value, begun


def test_what_is_dropped_is_in_the_bytes_of_the_value() -> None:
    value = replace(Timeline.genesis("[]"), retention=Retention(dropped=Scene().commit().value.clock, dropped_count=3))
    assert Timeline.decode(value.encode(), "x") == value
    assert json.loads(value.encode())["retention"]["dropped"] == [value.retention.dropped, 3]
    assert issubclass(events.DroppedHistoryError, CommitUnknownError)
    assert not issubclass(events.DroppedHistoryError, StorageUnavailableError)


def test_a_scan_that_was_held_says_where_it_stands_when_its_segment_is_long_gone(
    monkeypatch: pytest.MonkeyPatch, simulated: Simulated
) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_BYTES_MAX", 1)
    monkeypatch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 2)
    monkeypatch.setattr(tail, "KEPT_VERSIONS", 2)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    table = simulated.create(pa.schema([("id", pa.string())]), key="id", buckets=1)
    table.upsert(pa.table({"id": ["a"]}))
    scan, checkpoint = table.scan(), table.scan().checkpoint
    (segment,) = simulated.store.list(SEGMENTS)
    for key in "bcdef":
        table.upsert(pa.table({"id": [key]}))
        table.maintenance.compact()
    session = session_of(table)
    for _ in range(2):
        session.remember(run_sweep(table))
    assert segment.path not in {stat.path for stat in simulated.store.list(SEGMENTS)}
    assert scan.checkpoint == checkpoint
    assert scan.to_arrow().to_pylist() == [{"id": "a"}]


def test_hudi_is_told_of_a_wide_commit_that_shares_its_version_with_a_begin(
    monkeypatch: pytest.MonkeyPatch, simulated: Simulated
) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_BYTES_MAX", 1)
    table = simulated.create(pa.schema([("id", pa.string())]), key="id", buckets=1)
    table.upsert(pa.table({"id": ["a"]}))
    post(table, pa.table({"id": ["posted"]}))
    while "posted" not in table.scan().to_arrow()["id"].to_pylist():
        with table.transaction() as other:
            other.delete(keys=["a"])
    (carried,) = [c for c in completions_of(table) if c.members]
    assert simulated.store.read(session_of(table).publisher.projector.path(completed_name(carried))) is not None
    assert table.verify().findings == ()
