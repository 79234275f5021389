"""What no version names any more is swept: segments, plans, and partitions without data files; and nothing else is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.events import rollback, sweep
from crdt_mor.ground import threads
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.hudi.adoption import foreign_completions
from crdt_mor.hudi.partitions import PARTITION_METADATA, metadata_put, sweep_partitions
from crdt_mor.log import publish, segments, tail
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import PLANS, SEGMENTS, VERSIONS, plan_path, segment_path
from crdt_mor.log.steps import Put, Single, perform
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.store.local import LocalStore
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Store
from tests.driving import nonce_in_hex, one_by_one
from tests.inside import completions_of, run_sweep, session_of, store_of, tail_of
from tests.model.scene import PUBLISHER, Scene
from tests.stores import WatchedStore


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "COMPLETIONS_MAX", 2)
    monkeypatch.setattr(segments, "SEGMENTS_MAX", 3)
    monkeypatch.setattr(tail, "KEPT_VERSIONS", 12)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 4)


def paths(scene: Scene, folder: str) -> set[str]:
    return {stat.path for stat in scene.store.list(folder)}


def named(scene: Scene) -> set[str]:
    """The segments that some version names that stands."""
    versions = [scene.version(int(path.rpartition("/")[2].removesuffix(".json"))) for path in paths(scene, VERSIONS)]
    return {segment_path(segment.name) for version in versions for segment in version.segments}


@pytest.mark.usefixtures("short_memory")
def test_segments_and_plans_that_no_version_names_are_swept_and_no_others() -> None:
    scene = Scene()
    nobody = nonce_in_hex("nobody")
    lost = segment_path(f"{3:020d}-{nobody}-0-wide")
    young = segment_path(f"{10**9:020d}-{nobody}-0-wide")
    never = plan_path(scene.commit().value.clock, nobody)
    for path in (lost, young, never):
        scene.store.put(path, b"left by a process that died")
    held = scene.tail()
    for number in range(70):
        scene.commit(number % 2)
        if number % 5 == 4:
            scene.compact(number % 2)
        if number == 30:
            held = scene.tail()
    shown = scene.run(all_completions(held))
    oldest = min(paths(scene, VERSIONS)).rpartition("/")[2].removesuffix(".json")
    before = named(scene)
    scene.run(sweep.sweep(PUBLISHER, scene.tail()))
    kept = named(scene)
    assert {path for path in paths(scene, SEGMENTS) if path < segment_path(oldest)} <= before
    assert {segment_path(s.name) for s in scene.tail().segments} <= paths(scene, SEGMENTS)
    assert kept <= paths(scene, SEGMENTS), "a version that stands may be read"
    assert never not in paths(scene, PLANS)
    assert young in paths(scene, SEGMENTS), "its version may be published yet"
    assert not {segment_path(s.name) for s in held.segments} <= paths(scene, SEGMENTS)
    assert {c.requested for c in scene.run(all_completions(held))} == {c.requested for c in shown}


@pytest.mark.usefixtures("short_memory")
def test_a_snapshot_that_is_older_than_all_versions_reads_the_newest_segments(fast_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    table = Table.create(str(fast_path / "t"), schema, key="k", buckets=1)
    for number in range(9):
        table.upsert(pa.table({"k": [f"k{number}"], "n": [number]}, schema))
    old = Table(str(fast_path / "t"))
    value = tail_of(old)
    table.maintenance.compact()
    plan = None
    for number in range(40):
        plan = plan or table.maintenance.plans.schedule()
        table.upsert(pa.table({"k": ["k0"], "n": [number]}, schema))
    run_sweep(table)
    found = completions_of(old, value)
    assert [c.version for c in found] == sorted(c.version for c in found)
    assert len(found) == 9
    assert [stat.path.rpartition("/")[2][:17] for stat in store_of(table).list(PLANS)] == [plan and plan.barrier]
    assert table.maintenance.compact(), "the open plan is there, and that of the compaction before is swept"


@pytest.mark.slow
@pytest.mark.usefixtures("short_memory")
def test_upkeep_drops_from_the_value_what_it_has_archived_and_cleaned(fast_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    table = Table.create(str(fast_path / "t"), schema, key="k", buckets=1)
    table.set_properties({"crdt_mor.retention": "0s", "crdt_mor.readers": "0s"})
    names, known, numbers = [], [], {}
    for number in range(60):
        table.upsert(pa.table({"k": [f"k{number % 7}"], "n": [number]}, schema))
        (newest,) = table.history(limit=1).to_pylist()
        numbers[newest["requested_at"]] = newest["ordinal"]
        if number % 12 == 11:
            table.maintenance.maintain()
            table.maintenance.archive(keep_commits=4)
            value = tail_of(table)
            names.append(len(value.segments))
            known.append(len(value.completions) + sum(segment.count for segment in value.segments))
    value = tail_of(table)
    assert value.retention.dropped_count > 20
    assert max(known) < 50
    assert max(names) < 12
    fresh = Table(str(fast_path / "t"))
    assert not session_of(fresh).run(foreign_completions(session_of(fresh).publisher.projector, value)).completions
    assert {row["k"]: row["n"] for row in fresh.to_arrow().to_pylist()} == {f"k{n % 7}": n for n in range(60)}
    now = {row["requested_at"]: row["ordinal"] for row in fresh.history().to_pylist()}
    after = {time: number for time, number in numbers.items() if time > value.retention.dropped}
    assert after
    assert after == {time: now[time] for time in after}, "a commit keeps its number when older ones are dropped"
    fresh.maintenance.compact()
    assert fresh.count() == 7


# --- partitions -------------------------------------------------------------------------------------------------------

INSTANT = Scene().commit().value.clock
FILE = f"day=mon/{LogFileName(bucket_file_id(0), INSTANT)}"
METADATA = metadata_put("day=mon", INSTANT)


def writer(put_first: bool = True) -> Generator[Single, Any, None]:
    """What a write does to a partition: its file, then the metadata; a mistaken one the other way round."""
    file = Put(FILE, b"rows")
    yield file if put_first else METADATA
    yield METADATA if put_first else file


def sweeper(store: Store) -> Generator[Single, Any, None]:
    return one_by_one(sweep_partitions(store.walk(""), INSTANT))


def outcomes(write: Callable[[], Generator[Single, Any, None]]) -> set[bool]:
    """Whether the metadata is there at last, in every interleaving; the sweep has seen a partition without files."""
    found = set()
    for turns in itertools.combinations(range(8), 3):
        order = ["w" if turn in turns else "s" for turn in range(8)]
        store = MemoryStore(lambda: 0)
        store.put(METADATA.path, METADATA.data)
        actors = {"w": write(), "s": sweeper(store)}
        replies: dict[str, object] = dict.fromkeys(actors)
        for name in order:
            actor = actors.get(name)
            if actor is None:
                continue
            try:
                replies[name] = perform(actor.send(replies[name]), store, SystemEnvironment())
            except StopIteration:
                del actors[name]
        assert not actors
        found.add(store.stat(METADATA.path) is not None)
    return found


def test_a_write_beside_a_sweep_of_its_partition_leaves_the_metadata_in_every_interleaving() -> None:
    assert outcomes(writer) == {True}
    assert outcomes(lambda: writer(put_first=False)) == {True, False}, "the order of the writer's puts is needed"


def test_metadata_that_a_sweep_took_before_it_died_is_put_by_the_next() -> None:
    scene = Scene()
    scene.store.put(FILE, b"rows")
    scene.run(sweeper(scene.store))
    assert scene.store.read(METADATA.path) == METADATA.data


def test_a_partition_that_only_a_given_up_write_had_goes_with_its_folder(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("day", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema, key="k", partition_by="day", buckets=1)
    table.upsert(pa.table({"k": ["a"], "day": ["mon"]}, schema))
    session = session_of(table)
    _, begun = session.begin(session.author())
    file = f"day=tue/{LogFileName(bucket_file_id(0), begun.requested)}"
    session.store.put(file, b"rows")
    session.store.put(f"day=tue/{PARTITION_METADATA}", metadata_put("day=tue", begun.requested).data)
    session.run(rollback.give_up(session.publisher, session.tail(), begun.requested, None))
    run_sweep(table)
    assert not (tmp_path / "t" / "day=tue").exists()
    assert (tmp_path / "t" / "day=mon" / PARTITION_METADATA).exists()
    table.upsert(pa.table({"k": ["b"], "day": ["tue"]}, schema))
    assert (tmp_path / "t" / "day=tue" / PARTITION_METADATA).exists()
    assert table.count() == 2


def test_a_write_looks_for_the_metadata_of_a_partition_once_however_many_files_it_puts_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "THREADS", 1)
    schema = pa.schema([("k", pa.string()), ("day", pa.string())])
    store = WatchedStore(MemoryStore(SystemEnvironment().now_ms))
    table = Table.create("t", schema, key="k", partition_by="day", buckets=8, opening=Opening(store=store))
    store.calls.clear()
    days = ["mon", "tue"] * 32
    table.upsert(pa.table({"k": [str(number) for number in range(64)], "day": days}, schema))
    put = store.paths("put")
    for day in ("mon", "tue"):
        metadata = f"day={day}/{PARTITION_METADATA}"
        files = [path for path in put if path.startswith(f"day={day}/") and path != metadata]
        assert len(files) == 8
        assert put.count(metadata) == store.paths("stat").count(metadata) == 1
        assert put.index(files[0]) < put.index(metadata), "a sweep takes no partition for empty that has a file"


def test_a_store_that_has_a_folder_open_makes_it_again_when_it_is_gone(tmp_path: Path) -> None:
    one, other = LocalStore(tmp_path / "t"), LocalStore(tmp_path / "t")
    assert one.put("a/b/first", b"1")
    assert other.put("a/b/second", b"2")
    one.delete("a/b/first")
    assert (tmp_path / "t" / "a" / "b").exists()
    one.delete("a/b/second")
    assert not (tmp_path / "t" / "a").exists()
    assert one.put("a/b/third", b"3")
    assert other.copy("a/b/third", "a/c/copied")
    assert other.read("a/c/copied") == b"3"
