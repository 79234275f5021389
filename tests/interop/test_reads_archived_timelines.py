"""Tables of Hudi's whose timeline is partly archived: the same rows, now and as of every moment, or a clear error.

What Hudi does is done here to our own bytes, so that it needs no Java; `test_reads_what_spark_wrote` lets Hudi do it.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import FormatError, SnapshotExpiredError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.format.commit import CommitMetadata, WriteStat, decode_commit
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.hudi.adoption import HudiCompletions, foreign_completions
from crdt_mor.hudi.projection import Projector
from crdt_mor.log.steps import perform
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.store.open import open_store
from tests.counting import Bucket
from tests.driving import one_by_one
from tests.inside import look_for_hudi, session_of
from tests.interop.hudi_archive import archive, completed, edit, listed, make_hudis, roll_up, write_manifest
from tests.interop.readers import Rows, hudi_rs, ours
from tests.interop.shapes import Maker, keys, rows
from tests.tiers import only, slow

Moments = dict[str, Rows]

EPOCH_SECONDS = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
}


@pytest.fixture
def root(make: Maker) -> Path:
    """A table of Hudi's: upserts, deletes, a compaction, and logs after it."""
    table = make.create()
    table.append(rows(range(6), 1))
    table.upsert(rows([0, 10], 2))
    table.delete(keys=keys(1))
    table.maintenance.compact()
    table.upsert(rows([2, 1], 3))
    table.delete(keys=keys(0))
    make_hudis(make.root)
    return make.root


def moments(root: Path) -> Moments:
    """The rows as of every completion time."""
    table = Table(root)
    return {time: ours(table, as_of=time) for time in table.inspect.timeline()["completed_at"].to_pylist()}


@pytest.mark.costly
@pytest.mark.parametrize("count", only([1, 4], range(1, 7)))
def test_every_moment_reads_the_same_whatever_part_is_archived(root: Path, count: int) -> None:
    before = moments(root)
    assert len(before) == 6
    archive(root, count)
    assert moments(root) == before
    assert ours(Table(root)) == before[max(before)]


@pytest.mark.parametrize("count", [slow(1), 3, slow(6)])
def test_such_a_table_is_written_and_hudi_goes_on_archiving_it(root: Path, count: int) -> None:
    before = moments(root)
    archive(root, count)
    table = Table(root)
    table.upsert(rows([0], 9))
    table.delete(keys=keys(2))
    expected = ours(table)
    assert expected.keys() == {*before[max(before)], ("", "k0")} - {("", "k2")}
    assert expected["", "k0"]["n"] == 9
    assert {time: ours(table, as_of=time) for time in before} == before
    table.maintenance.compact()
    archive(root, 2)
    roll_up(root)
    for opened in (table, Table(root)):
        look_for_hudi(opened)
        opened.upsert(rows([0], 9))
        assert {key: row["n"] for key, row in ours(opened).items()} == {k: row["n"] for k, row in expected.items()}
    with pytest.raises(UnsupportedFeatureError, match=r"hoodie\.archive\.automatic"):
        table.maintenance.archive()
    cleaned = table.maintenance.clean(commits=1, readers=dt.timedelta(0))
    assert cleaned.files
    assert {key: row["n"] for key, row in ours(table).items()} == {k: row["n"] for k, row in expected.items()}
    assert ours(Table(root)) == hudi_rs(root)


@pytest.mark.slow
def test_archived_one_by_one_while_a_table_is_open_and_rolled_up(root: Path) -> None:
    before, table = moments(root), Table(root)
    for count in range(5):
        archive(root, 1)
        assert ours(table) == before[max(before)], count
        assert moments(root) == before
    roll_up(root)
    assert moments(root) == before == {time: ours(table, as_of=time) for time in before}


def test_an_instant_in_both_places_is_one(root: Path) -> None:
    before = moments(root)
    archive(root, 3, remove=False)
    assert moments(root) == before
    assert Table(root).inspect.timeline().num_rows == 6


def test_files_that_the_newest_manifest_does_not_list_are_old_or_unfinished(root: Path) -> None:
    before = moments(root)
    old = archive(root, 2)
    history = old.parent
    (history / "unfinished_0.parquet").write_bytes(b"PAR1")
    roll_up(root)
    assert moments(root) == before
    (history / "_version_").unlink()
    assert moments(root) == before
    assert listed(history) == []


def test_an_archive_that_was_only_begun_changes_nothing(root: Path) -> None:
    before = moments(root)
    file = archive(root, 2, remove=False)
    for path in file.parent.iterdir():
        if path != file:
            path.unlink()
    assert moments(root) == before


def test_another_archive_folder_is_found_by_the_tables_properties(make: Maker) -> None:
    make.create().append(rows(range(3), 1))
    make_hudis(make.root, {"hoodie.timeline.history.path": "old"})
    before = moments(make.root)
    history = archive(make.root, 1).parent
    history.rename(history.with_name("old"))
    assert moments(make.root) == before


def test_a_moment_whose_files_were_cleaned_away_is_an_error_and_the_others_are_read(root: Path) -> None:
    before = moments(root)
    archive(root, 4)
    cleaned = {file.path for c in completions(root)[:3] for file in c.files}
    for path in cleaned:
        (root / path).unlink()
    times = sorted(before)
    table = Table(root)
    for time in times[:3]:
        with pytest.raises(SnapshotExpiredError, match="read the latest snapshot"):
            ours(table, as_of=time)
    assert {time: ours(table, as_of=time) for time in times[3:]} == {time: before[time] for time in times[3:]}
    assert ours(table) == before[times[-1]]


def completions(root: Path) -> tuple[Completion, ...]:
    return look(root).completions


def look(root: Path, meanwhile: Callable[[object], None] = lambda _: None) -> HudiCompletions:
    """What is adopted, if `meanwhile` happens before each operation."""
    environment = SystemEnvironment()
    store = open_store(root, environment)
    projector = Projector(session_of(Table(root)).config)
    steps = one_by_one(foreign_completions(projector, Timeline.genesis("[]")))
    reply: object = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            found: HudiCompletions = end.value
            return found
        meanwhile(step)
        reply = perform(step, store, environment)


@pytest.mark.costly
@pytest.mark.parametrize("at", range(12))
def test_hudi_may_archive_at_any_moment_of_a_look(root: Path, at: int) -> None:
    expected, count = completions(root), 0

    def meanwhile(step: object) -> None:
        nonlocal count
        if count == at:
            archive(root, 2)
        elif count == at + 3:
            archive(root, 2)
            roll_up(root)
        count += 1

    assert look(root, meanwhile) == HudiCompletions(expected, look(root).schema)


def test_files_that_are_missing_for_good_are_an_error(root: Path) -> None:
    archive(root, 2).unlink()
    with pytest.raises(StorageUnavailableError, match=r"history"):
        Table(root)


def test_a_damaged_archive_is_an_error_that_names_the_file(root: Path) -> None:
    file = archive(root, 2)
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    with pytest.raises(FormatError, match=file.name):
        Table(root)
    file.write_bytes(data)
    write_manifest(file.parent, [file.name])
    (file.parent / "manifest_2").write_text("{")
    with pytest.raises(FormatError, match="manifest_2"):
        Table(root)


def test_commits_of_ours_that_hudi_archived_are_not_adopted_again(make: Maker) -> None:
    table = make.create()
    for n in range(20):  # more than a value carries itself
        table.upsert(rows([n % 3], n))
    expected = ours(table)
    archive(make.root, 7)
    for opened in (table, Table(make.root)):
        look_for_hudi(opened)
        assert ours(opened) == expected
        assert opened.inspect.timeline().num_rows == 20
    table.upsert(rows([0], 99))
    assert ours(Table(make.root)) == ours(table) != expected


def test_archived_commits_of_ours_without_our_own_timeline_are_an_error(make: Maker) -> None:
    make.create().append(rows(range(3), 1))
    archive(make.root, 1)
    for path in (make.root / ".hoodie/.crdt_mor/timeline").iterdir():
        path.unlink()
    with pytest.raises(FormatError, match="Restore the folder"):
        Table(make.root)


# --- what else stands in a timeline of Hudi's -------------------------------------------------------------------------


def test_a_savepoint_bears_the_time_of_the_commit_that_it_marks(root: Path) -> None:
    before = moments(root)
    name = completed(root)[1][0]
    (root / f".hoodie/timeline/{name.requested}_20991231000000000.savepoint").write_bytes(b"")
    assert moments(root) == before
    archive(root, 3)
    assert moments(root) == before


def test_earlier_logs_and_change_logs_in_a_stat_are_not_the_commits_own(root: Path) -> None:
    before, expected = moments(root), completions(root)
    earlier: dict[str, list[str]] = {}

    def longer(commit: CommitMetadata) -> CommitMetadata:
        stats: dict[str, list[WriteStat]] = {}
        for partition, found in commit.stats.items():
            stats[partition] = []
            for stat in found:
                seen = earlier.setdefault(str(stat.file_id), [])
                logs = list(stat.log_files or ())
                feed = [f"{log}.cdc" for log in logs]
                stats[partition].append(replace(stat, log_files=(*seen, *feed, *logs) if logs else None))
                seen += logs
        return replace(commit, stats=stats)

    edit(root, longer)
    assert completions(root) == expected
    assert moments(root) == before


def test_json_of_an_older_hudi_is_read_in_the_archive(root: Path) -> None:
    before = moments(root)
    for name, path in completed(root)[:2]:
        found = decode_commit(path.read_bytes(), path.name)
        stats = {
            partition: [
                {
                    "path": s.path,
                    "fileId": s.file_id,
                    "numWrites": s.num_writes,
                    "numDeletes": s.num_deletes,
                    "fileSizeInBytes": s.file_size_in_bytes,
                    "logFiles": list(s.log_files or ()),
                }
                for s in some
            ]
            for partition, some in found.stats.items()
        }
        text = {"partitionToWriteStats": stats, "operationType": found.operation, "extraMetadata": dict(found.extra)}
        path.write_text(json.dumps(text))
        assert name.action == "deltacommit"
    archive(root, 2)
    assert moments(root) == before


def test_logs_named_after_their_slice_are_refused_where_a_snapshot_needs_them() -> None:
    """Hudi before version 8 appended several commits to one log."""

    def done(requested: str, path: str, action: str = "deltacommit") -> Completion:
        t = InstantTime(requested)
        return Completion(t, InstantTime(f"{t[:-1]}5"), 0, "", action, "UPSERT", (DataFile(path, 1, 1),), adopted=True)

    base = done("20260101000000010", "a-0_0-0-0_20260101000000010.parquet")
    log = done("20260101000000020", ".a-0_20260101000000010.log.1_0-0-0")
    compacted = done("20260101000000030", "a-0_0-0-0_20260101000000030.parquet", "commit")
    [only] = fold_slices([base])
    assert only.logs == ()
    with pytest.raises(UnsupportedFeatureError, match=r"only be read.*log\.1_0-0-0"):
        fold_slices([base, log])
    [only] = fold_slices([base, log, log], old_logs=True)
    assert only.files == (*base.files, *log.files)
    assert only.committed is not None
    assert only.committed.completed == {base.requested, log.requested}
    copied = [replace(c, completed=InstantTime("20260101000000040")) for c in (base, log, compacted)]
    with pytest.raises(UnsupportedFeatureError, match=r"was copied.*log\.1_0-0-0"):
        fold_slices(copied, old_logs=True)
    [only] = fold_slices([base, log, compacted])
    assert only.files == compacted.files


@pytest.mark.parametrize("ending", ["orc", "hfile", "lance"])
def test_base_files_that_are_not_parquet_are_refused_by_name(root: Path, ending: str) -> None:
    def other(commit: CommitMetadata) -> CommitMetadata:
        stats = {
            p: [replace(s, path=f"a-0_0-0-0_1.{ending}", log_files=None) for s in f] for p, f in commit.stats.items()
        }
        return replace(commit, stats=stats)

    edit(root, other)
    with pytest.raises(UnsupportedFeatureError, match=rf"only Parquet.*\.{ending}"):
        Table(root)


# --- schemas ----------------------------------------------------------------------------------------------------------


def with_schema(
    root: Path, at: int, fields: Sequence[Mapping[str, object]], extra: dict[str, str] | None = None
) -> None:
    """Give the commit number `at` and all later ones another schema."""
    text = json.dumps({"type": "record", "name": "t_record", "fields": fields})
    count = 0

    def change(commit: CommitMetadata) -> CommitMetadata:
        nonlocal count
        count += 1
        return commit if count <= at else replace(commit, extra={**commit.extra, "schema": text, **(extra or {})})

    edit(root, change)


ID, N, V, W = (
    {"name": name, "type": ["null", kind], "default": None}
    for name, kind in (("id", "string"), ("n", "long"), ("v", "string"), ("w", "string"))
)


def test_the_columns_are_those_of_the_commit_requested_last(root: Path) -> None:
    with_schema(root, 4, [ID, W, N])
    for _ in range(2):
        table = Table(root)
        assert table.schema.names == ["id", "w", "n"]
        assert {row["w"] for row in table.scan().to_arrow().to_pylist()} == {None}
        archive(root, 2)


@pytest.mark.parametrize("fields", [[ID, N, W], [ID, N]])
def test_columns_renamed_or_dropped_by_number_are_refused(root: Path, fields: list[dict[str, object]]) -> None:
    with_schema(root, 4, fields, {"latest_schema": "{}"})
    with pytest.raises(UnsupportedFeatureError, match=r"renamed or dropped.*columns=\['v'\]"):
        Table(root)


def test_columns_added_by_number_are_read(root: Path) -> None:
    with_schema(root, 4, [ID, N, V, W], {"latest_schema": "{}"})
    assert Table(root).schema.names == ["id", "n", "v", "w"]


def test_a_column_of_hudis_own_that_we_do_not_know_is_refused(root: Path) -> None:
    with_schema(root, 4, [ID, N, V, {"name": "_hoodie_operation", "type": ["null", "string"]}])
    with pytest.raises(UnsupportedFeatureError, match="column=_hoodie_operation"):
        Table(root)


def test_a_type_that_a_file_cannot_be_turned_into_is_refused(root: Path) -> None:
    with_schema(root, 4, [ID, {"name": "n", "type": ["null", "string"]}, V])
    with pytest.raises(UnsupportedFeatureError, match="rewrite the file with Hudi"):
        Table(root).scan().to_arrow()


@contextmanager
def in_a_bucket(root: Path) -> Iterator[Table]:
    """The table in a folder, copied to a bucket."""
    bucket = Bucket()
    with bucket.counting():
        store = bucket.store()
        for file in filter(Path.is_file, root.rglob("*")):
            store.put(str(file.relative_to(root)), file.read_bytes())
        yield Table("s3://counted/table", opening=Opening(store=store))


def rewrite_bases(root: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write the base files anew, as Hudi's writers do, who note nothing of ours in their footers."""
    for base in root.rglob("*.parquet"):
        pq.write_table(
            change(pq.read_table(base, partitioning=None)).replace_schema_metadata(None), base, store_schema=False
        )

    def sized(commit: CommitMetadata) -> CommitMetadata:
        stats = {
            partition: [replace(stat, file_size_in_bytes=(root / str(stat.path)).stat().st_size) for stat in found]
            for partition, found in commit.stats.items()
        }
        return replace(commit, stats=stats)

    edit(root, sized)


def test_a_base_of_hudis_below_logs_is_read_in_a_bucket(root: Path) -> None:
    rewrite_bases(root, lambda found: found)
    expected = ours(Table(root))
    with in_a_bucket(root) as table:
        assert ours(table) == expected
        assert table.scan(columns=["id"]).count() == len(expected)
        found = table.scan(columns=["n"], filter="n > 1").to_polars()
        assert sorted(found["n"]) == sorted(n for row in expected.values() if (n := int(str(row["n"]))) > 1)


def test_epoch_numbers_of_a_timestamp_key_generator_are_read_as_their_texts(make: Maker) -> None:
    """Spark's catalog has such a partition column as a string; its bulk inserts store numbers, its updates texts."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("at", pa.string())])
    table = make.create(schema, partition_by="at", buckets=1)
    table.append(pa.table({"id": keys(0, 1, 2), "n": [1, 2, 3], "at": ["9", "86400", "86400"]}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": keys(1, 3), "n": [4, 5], "at": ["86400", "100"]}, schema))
    rewrite_bases(make.root, lambda found: found.set_column(7, "at", found["at"].cast(pa.int64())))
    make_hudis(make.root, {"hoodie.table.keygenerator.type": "TIMESTAMP", **EPOCH_SECONDS})
    expected = [("k0", 1, "9"), ("k1", 4, "86400"), ("k2", 3, "86400"), ("k3", 5, "100")]
    assert {tuple(row[name] for name in schema.names) for row in hudi_rs(make.root).values()} == set(expected)
    with in_a_bucket(make.root) as there:
        for opened in (Table(make.root), there):
            assert sorted(opened.scan().to_polars().rows()) == expected
            assert sorted(opened.changes().to_polars().select("id", "n", "at").rows()) == expected
            for condition, found in (
                (pl.col("at") < "86400", {"k3"}),  # as texts are ordered, and numbers are not
                (pl.col("at") > "86400", {"k0"}),
                ((pl.col("at") == "86400") & (pl.col("n") > 3), {"k1"}),
                (pl.col("at").is_null(), set()),
            ):
                assert set(opened.scan(filter=condition).to_polars()["id"]) == found
                assert opened.scan(filter=condition).count() == len(found)


def test_timestamps_in_milliseconds_are_read_as_what_they_are(make: Maker) -> None:
    """As Hudi's writers leave them that were given Avro's timestamp-millis."""
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("ms", "UTC"))])
    table = make.create(schema)
    table.append(pa.table({"id": keys(0, 1), "at": [1, -(10**12) + 123]}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": keys(1), "at": [5]}, schema))
    for base in make.root.glob("*.parquet"):
        found = pq.read_table(base, partitioning=None)
        place = found.schema.get_field_index("at")
        found = found.set_column(place, "at", found["at"].cast(pa.timestamp("ms", "UTC")))
        pq.write_table(found, base, store_schema=False)
    make_hudis(make.root)
    with_schema(
        make.root, 0, [ID, {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}]
    )
    for condition in (None, pl.col("at") < dt.datetime(2000, 1, 1, tzinfo=dt.UTC)):
        found = Table(make.root).scan(filter=condition).to_arrow()
        assert found.schema == schema
        assert {row["id"]: row["at"].timestamp() for row in found.to_pylist()} == {"k0": 0.001, "k1": 0.005}


def test_rows_marked_as_deleted_are_deletes_in_logs_and_rows_in_base_files(make: Maker) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("op", pa.string())])
    table = make.create(schema, ordering="n")
    table.append(pa.table({"id": keys(0, 1, 2), "n": [5, 5, 5], "op": ["I", "I", "D"]}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": keys(0, 1, 3), "n": [6, 4, 1], "op": ["D", "D", None]}, schema))
    prefix = "hoodie.record.merge.property.hoodie.payload.delete"
    make_hudis(make.root, {f"{prefix}.field": "op", f"{prefix}.marker": "D"})
    found = Table(make.root).scan()
    assert sorted(row["id"] for row in found.to_arrow().to_pylist()) == ["k1", "k2", "k3"]
    assert found.count() == 3


def test_a_table_without_a_key_is_read_by_the_keys_that_hudi_made(make: Maker) -> None:
    table = make.create()
    table.append(rows(range(4), 1))
    table.upsert(rows([1], 2))
    expected = ours(table)
    make_hudis(make.root, {"hoodie.table.recordkey.fields": ""})
    table = Table(make.root)
    assert ours(table) == expected
    assert table.config.key == ("_hoodie_record_key",)
    with pytest.raises(UnsupportedFeatureError, match="can read, but not write"):
        table.upsert(rows([1], 3))
