"""A sweep deletes only objects whose names a release of ours could have put; other people's objects stay."""

from __future__ import annotations

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.events.load import clear
from crdt_mor.log.paths import (
    ERASURES,
    GIVEN_UP,
    HEARTBEATS,
    LOADS,
    OWN_FOLDER,
    PLANS,
    POSTS,
    READERS,
    RESOLVED,
    SEGMENTS,
    STAGED,
    VERIFIED,
    heartbeat_path,
    is_own,
)
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.services.copy_objects import listed
from crdt_mor.store.memory import MemoryStore
from tests.inside import run_sweep, session_of
from tests.simulated import Simulated
from tests.stores import WatchedStore

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])

FOREIGN = [
    f"{POSTS}/note-7", f"{POSTS}/0-readme.txt", f"{POSTS}/0-notes", f"{POSTS}/turn.bak",
    f"{SEGMENTS}/zz1", f"{SEGMENTS}/0-backup.json", f"{SEGMENTS}/{0:020d}-backup-0-live.json",
    f"{PLANS}/2020-report.txt", f"{PLANS}/-.json", f"{PLANS}/20200101000000000-copy.json", f"{PLANS}/failed-to-load",
    f"{HEARTBEATS}/.keep", f"{HEARTBEATS}/1-note", f"{HEARTBEATS}/20200101",
    f"{STAGED}/1-note", f"{STAGED}/train.ticket", f"{STAGED}/20200101000000000-mine",
    f"{GIVEN_UP}/a-note", f"{GIVEN_UP}/mine",
    f"{READERS}/billing", f"{READERS}/billing.20200101000000000.completed.read.none",
    f"{VERIFIED}/all", f"{VERIFIED}/0-x",
    f"{RESOLVED}/readme", f"{ERASURES}/todo.json", f"{LOADS}/mine/notes.txt",
    ".hoodie/timeline/20200101000000000.deltacommit.inflight.tmp",
]  # fmt: skip
"""Names that nobody of ours puts, in the folders from which sweeps delete."""

OTHER_TABLES = [
    "orders/.hoodie/hoodie.properties",
    f"orders/{bucket_file_id(0)}_0-0-0_20200101000000000.parquet",
    f"orders/x/.{bucket_file_id(0)}_20200101000000000.log.1_0-0-0",
    "orders/y/.hoodie_partition_metadata",
]
"""A table below the folder of this one, as may be in a bucket."""


def rows(n: int) -> pa.Table:
    return pa.table({"k": [n], "n": [n]}, SCHEMA)


def test_sweep_beside_foreign_objects_leaves_them_all() -> None:
    place = Simulated()
    table = place.create(SCHEMA, key="k", buckets=1)
    for path in (*FOREIGN, *OTHER_TABLES):
        place.store.put(path, b"not ours")
    for n in range(12):
        place.environment.sleep(3600)
        table.upsert(rows(n))
    table.maintenance.maintain()
    table.maintenance.archive(keep_commits=2)
    table.maintenance.erase(keys=[3])
    place.environment.sleep(3600)
    run_sweep(table)
    clear(place.store, session_of(table).config.table_id)
    there = {stat.path for folder in ("", ".hoodie") for stat in place.store.walk(folder)}
    assert [path for path in (*FOREIGN, *OTHER_TABLES) if path not in there] == []
    assert table.count() == 11


def test_sweep_of_dead_objects_of_ours_removes_them() -> None:
    place = Simulated()
    table = place.create(SCHEMA, key="k", buckets=1)
    nonce, early = "0123456789abcdef" * 2, InstantTime("20200101000000000")
    dead = [
        heartbeat_path(early), f"{STAGED}/{early}-{nonce}", f"{GIVEN_UP}/{nonce}-{early}",
        f"{PLANS}/failed-{nonce}", str(LogFileName(bucket_file_id(0), early)), f"{LOADS}/{nonce}/notes",
    ]  # fmt: skip
    for path in dead:
        place.store.put(path, b"")
    place.environment.sleep(48 * 3600)
    table.upsert(rows(1))
    run_sweep(table)
    clear(place.store, session_of(table).config.table_id)
    assert [path for path in dead if place.store.stat(path) is not None] == []


def test_listing_of_copy_leaves_out_tables_below() -> None:
    place = Simulated()
    place.create(SCHEMA, key="k", buckets=1).upsert(rows(1))
    for path in OTHER_TABLES:
        place.store.put(path, b"not ours")
    assert not listed(place.store).keys() & set(OTHER_TABLES)


@pytest.mark.parametrize("crowd", [False, True], ids=["alone", "grouped"])
def test_names_of_all_objects_of_a_table_are_own(crowd: bool) -> None:
    store = WatchedStore(MemoryStore())
    table = Table.create("noting", SCHEMA, key="k", buckets=1, opening=Opening(store=store))
    session_of(table).pace.crowd.is_crowded = crowd
    for n in range(70):
        table.upsert(rows(n % 7))
    with table.transaction() as tx:
        tx.upsert(rows(1))
    job = table.jobs.plan("upsert", SCHEMA)
    table.jobs.complete(job, [job.stage(rows(1), task=0)])
    table.overwrite(rows(2))
    table.maintenance.compact()
    table.maintenance.erase(keys=[2])
    table.changes(reader="billing").done()
    table.verify()
    swept = (POSTS, SEGMENTS, PLANS, HEARTBEATS, STAGED, GIVEN_UP, RESOLVED, ERASURES, READERS, VERIFIED)
    names = [path for path in store.paths("put", "touch") if path.rpartition("/")[0] in swept]
    assert [path for path in names if not is_own(path)] == []
    assert {path.rpartition("/")[0] for path in names} >= {PLANS, STAGED, ERASURES, SEGMENTS, READERS, VERIFIED}
    assert (POSTS in {path.rpartition("/")[0] for path in names}) == crowd
    assert is_own(f"{OWN_FOLDER}/timeline/{0:020d}.json") is False, "versions go by their own rule"
