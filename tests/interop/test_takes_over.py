"""Tables that Hudi made, and that we go on with: what we would put elsewhere than Hudi did is refused by name.

A table of Hudi's is forged here from one of ours, so that it needs no Java; below, Hudi makes the tables itself.
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.ground.clock import SystemEnvironment
from tests.interop.made_by_hudi import COUNT, as_hudi_makes_them, hudi_makes, said
from tests.interop.readers import HudiSpark, hudi_rs, ours

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int64()), ("p", pa.string())])
ROWS = pa.table({"a": [f"k{i}" for i in range(12)], "b": range(12), "p": ["x", "y"] * 6}, schema=SCHEMA)
HASHED = "hoodie.bucket.index.hash.field"
PARTITIONS = "hoodie.bucket.index.partition.expressions"


def as_if_hudi_had_made(root: Path) -> Path:
    """Turn a table of ours into one that Hudi has made."""
    objects = {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}
    made = as_hudi_makes_them(objects)
    shutil.rmtree(root / ".hoodie" / ".crdt_mor")
    for path in objects.keys() - made.keys():
        (root / path).unlink(missing_ok=True)
    for path, data in made.items():
        (root / path).write_bytes(data)
    return root


@pytest.fixture
def made(fast_path: Path) -> Path:
    """A table of four buckets that Hudi has made."""
    table = Table.create(fast_path / "t", SCHEMA, key=["a", "b"], partition_by="p", buckets=4)
    table.append(ROWS)
    return as_if_hudi_had_made(fast_path / "t")


def test_a_table_that_says_what_hudi_did_is_written(made: Path) -> None:
    table = Table(made)
    table.upsert(ROWS)
    assert table.scan().count() == 12
    assert table.verify().is_sound


@pytest.mark.parametrize(
    ("wrong", "fitting"),
    [
        ({COUNT: "8"}, f"{COUNT}=4"),
        ({COUNT: "2"}, f"{COUNT}=4"),
        ({HASHED: "a"}, f"{COUNT}=4"),
        ({COUNT: "3", HASHED: "b"}, f"{COUNT}=4"),
    ],
    ids=["more buckets", "fewer buckets", "a part of the key", "both"],
)
def test_a_wrong_bucket_index_is_refused_with_the_one_that_fits(
    made: Path, wrong: dict[str, str], fitting: str
) -> None:
    said(made, wrong)
    table = Table(made)
    for write in (table.upsert, table.append):
        with pytest.raises(InvalidInputError, match=rf"live twice.*hoodie.properties: {fitting}\. "):
            write(ROWS)
    with pytest.raises(InvalidInputError, match="live twice"):
        table.delete(ROWS.select(["a", "b", "p"]))
    with pytest.raises(InvalidInputError, match="live twice"):
        table.maintenance.erase(ROWS.select(["a", "b", "p"]))
    with pytest.raises(InvalidInputError, match="live twice"):
        table.jobs.plan("upsert", SCHEMA)
    assert Table(made).scan().count() == 12
    assert not table.inspect.pending().num_rows
    assert {finding.check for finding in table.verify().findings} == {"bucket"}
    said(made, {COUNT: "4", HASHED: None})
    again = Table(made)
    again.upsert(ROWS)
    assert again.scan().count() == 12


def test_rows_in_base_files_are_asked_as_well(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="a", buckets=4)
    table.append(ROWS)
    table.maintenance.compact()
    said(as_if_hudi_had_made(fast_path / "t"), {COUNT: "8"})
    with pytest.raises(InvalidInputError, match=f"hoodie.properties: {COUNT}=4"):
        Table(fast_path / "t").upsert(ROWS)
    said(fast_path / "t", {COUNT: "4"})
    again = Table(fast_path / "t")
    again.upsert(ROWS)
    assert again.scan().count() == 12


def test_a_bucket_beyond_the_number_that_is_said_is_named_and_no_row(fast_path: Path) -> None:
    Table.create(fast_path / "t", SCHEMA, key="a", buckets=4).append(ROWS)
    said(as_if_hudi_had_made(fast_path / "t"), {COUNT: "2"})
    with pytest.raises(InvalidInputError, match=f"beyond the number .*: {COUNT}=4") as refused:
        Table(fast_path / "t").upsert(ROWS)
    assert "bucket=2 buckets=2 partition=" in str(refused.value) or "bucket=3 buckets=2 partition=" in str(
        refused.value
    )
    assert "key=" not in str(refused.value)


def test_a_key_inside_of_a_column_is_only_read(made: Path) -> None:
    said(made, {"hoodie.table.recordkey.fields": "a.b"})
    table = Table(made)
    assert table.scan().count() == 12
    with pytest.raises(UnsupportedFeatureError, match=r"only reads: copy it: .* fields=\['a\.b'\]"):
        table.upsert(ROWS)


def test_a_part_of_the_key_that_is_none_is_refused(made: Path) -> None:
    said(made, {HASHED: "p"})
    table = Table(made)
    assert table.scan().count() == 12
    with pytest.raises(InvalidInputError, match=r"hoodie\.bucket\.index\.hash\.field contains columns outside"):
        table.upsert(ROWS)


def test_numbers_of_buckets_of_single_partitions_are_refused_by_name(made: Path) -> None:
    said(made, {PARTITIONS: "p=x,7"})
    with pytest.raises(UnsupportedFeatureError, match="their own bucket numbers"):
        Table(made).upsert(ROWS)


def test_keys_whose_texts_hudi_makes_in_another_way_are_refused(fast_path: Path) -> None:
    """As by the row writer of a bulk insert, or with `consistent.logical.timestamp.enabled`."""
    root = fast_path / "t"
    Table.create(root, SCHEMA, key="a", buckets=1).append(ROWS)
    as_if_hudi_had_made(root)
    said(root, {"hoodie.table.recordkey.fields": "b"})
    with pytest.raises(InvalidInputError, match=r"another record key .* key='k0' record_key='k0' ours='0'"):
        Table(root).upsert(ROWS)
    (finding,) = Table(root).verify().findings
    assert (finding.check, finding.rows) == ("record key", 12)


# --- a timeline in the zone of Hudi's writers -------------------------------------------------------------------------

ZONE = "hoodie.table.timeline.timezone"
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dt.timedelta]:
    """The machine is in another zone, so many hours east of UTC."""
    monkeypatch.setenv("TZ", f"LOC{-request.param:+d}")
    time.tzset()
    yield request.param * HOUR
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", [9, -8], indirect=True)
@pytest.mark.parametrize("text", ["LOCAL", None], ids=["local", "by default"])
def test_moments_of_a_local_timeline_are_those_of_this_machines_zone(
    made: Path, zone: dt.timedelta, text: str | None
) -> None:
    said(made, {ZONE: text})
    table = Table(made)
    (commit,) = table.history().to_pylist()
    completed = dt.datetime.strptime(commit["completed_at"] + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=dt.UTC)
    assert commit["completed"] == completed - zone
    assert commit["completed"] - commit["requested"] == commit["duration"]
    moment = commit["completed"]
    for as_of in (moment, moment.isoformat(), moment.replace(tzinfo=None), commit["completed_at"]):
        assert table.scan(as_of=as_of).count() == 12, as_of
    assert table.scan(as_of=moment - dt.timedelta(seconds=1)).count() == 0
    changed = table.changes(None, images=True).to_arrow()
    assert set(changed["_commit_timestamp"].to_pylist()) == {moment}


def test_a_local_timeline_is_not_written_before_hudi_is_told_to_use_utc(made: Path) -> None:
    said(made, {ZONE: "LOCAL"})
    table = Table(made)
    writes: list[Callable[[], object]] = [
        lambda: table.upsert(ROWS),
        lambda: table.delete(ROWS.select(["a", "b", "p"])),
        lambda: table.jobs.plan("upsert", SCHEMA),
        lambda: table.set_properties({"owner": "ops"}),
        lambda: table.maintenance.savepoint("release-1"),
        table.maintenance.compact,
        table.maintenance.archive,
        table.maintenance.clean,
    ]
    for write in writes:
        with pytest.raises(InvalidInputError, match=f"set {ZONE}=UTC in hoodie.properties"):
            write()
    assert not (made / ".hoodie" / ".crdt_mor").exists()
    said(made, {ZONE: "UTC"})
    table = Table(made)
    table.upsert(ROWS)
    assert table.scan().count() == 12


def test_what_hudi_left_in_a_zone_east_of_utc_is_waited_for(made: Path) -> None:
    """Our commits would come after it, and Hudi's next ones, in UTC, before both."""
    clock = SystemEnvironment()
    ahead_ms = -9 * 3_600_000
    with patch.object(clock, "now_ms", lambda: SystemEnvironment().now_ms() + ahead_ms):
        table = Table(made, opening=Opening(environment=clock))
        for write in (lambda: table.upsert(ROWS), table.maintenance.compact):
            with pytest.raises(UnsupportedFeatureError, match="before that time"):
                write()
        ahead_ms = 0
        table.upsert(ROWS)
    assert table.scan().count() == 12


# --- Hudi itself ------------------------------------------------------------------------------------------------------

MOMENTS = [dt.datetime(2026, 1, 1, 0, 0, i, 123 * (i % 2), tzinfo=dt.UTC) for i in range(12)]


@pytest.mark.spark
def test_keys_of_timestamps_and_bytes_are_hudis_and_so_is_a_hash_of_a_part_of_them(
    tmp_path: Path, spark: HudiSpark
) -> None:
    data = pa.table({
        "id": [f"k{i}" for i in range(12)],
        "at": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
        "code": [b"\x00\xff%d" % i for i in range(12)],
        "n": [1] * 12,
    })  # fmt: skip
    root = tmp_path / "composite"
    hudi_makes(spark, root, data, "id,at,code", **{HASHED.replace(".", "__"): "id"})
    with pytest.raises(InvalidInputError, match=f"{COUNT}=4 {HASHED}=id"):
        Table(root).upsert(data)
    said(root, {HASHED: "id"})
    _goes_on(root, data, spark)
    single = tmp_path / "single"
    hudi_makes(spark, single, data, "at")
    table = _goes_on(single, data, spark)
    start = table.scan().checkpoint
    table.delete(data.slice(3, 1))
    (gone,) = table.changes(start).to_arrow().to_pylist()
    assert gone["at"] == MOMENTS[3]


def _goes_on(root: Path, data: pa.Table, spark: HudiSpark) -> Table:
    """Each row that Hudi wrote is written again, then some by Hudi, and each lives once for all readers."""
    table = Table(root)
    table.upsert(data.set_column(data.schema.get_field_index("n"), "n", pa.array([2] * 12)))
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [2] * 12
    assert ours(table) == spark.read(root) == hudi_rs(root)
    return table


@pytest.mark.spark
def test_what_hudi_says_nowhere_is_found_in_its_rows(tmp_path: Path, spark: HudiSpark) -> None:
    data = pa.table({"id": [f"k{i}" for i in range(12)], "x": [i + 0.5 for i in range(12)], "p": ["x", "y"] * 6})
    parted = {"hoodie.datasource.write.partitionpath.field": "p", PARTITIONS: "x,7"}
    root = tmp_path / "partitions"
    hudi_makes(spark, root, data, "id", **{name.replace(".", "__"): value for name, value in parted.items()})
    for count in ("4", "7"):
        said(root, {COUNT: count})
        with pytest.raises(InvalidInputError, match="no single number of buckets fits"):
            Table(root).upsert(data)
    floats = tmp_path / "floats"
    hudi_makes(spark, floats, data, "x")
    with pytest.raises(UnsupportedFeatureError, match=r"cast to a string\. column=x type=double"):
        Table(floats).upsert(data)


@pytest.mark.spark
@pytest.mark.long
def test_turns_with_hudi_in_a_zone_west_of_utc(tmp_path: Path) -> None:
    """Of two writers of a row the later one wins, whoever it is, and no commit is lost after a compaction."""
    spark = HudiSpark(tmp_path, "America/Los_Angeles")
    try:
        root = tmp_path / "west"
        data = pa.table({"id": ["k0", "k1", "k2"], "n": [1, 1, 1]})
        hudi_makes(spark, root, data, "id")
        said(root, {ZONE: "LOCAL"})
        hudi_makes(spark, root, data.set_column(1, "n", pa.array([2, 2, 2])), "id")
        said(root, {ZONE: "LOCAL"})
        with pytest.raises(InvalidInputError, match=f"set {ZONE}=UTC"):
            Table(root).upsert(data)
        said(root, {ZONE: "UTC"})
        for turn in range(3, 9, 2):
            table = Table(root)
            table.upsert(pa.table({"id": ["k1"], "n": [turn]}))
            hudi_makes(spark, root, pa.table({"id": ["k1", "k2"], "n": [turn + 1] * 2}), "id")
            table = Table(root)
            assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [2, turn + 1, turn + 1]
            assert ours(table) == spark.read(root) == hudi_rs(root)
            table.maintenance.compact()
            assert ours(table) == spark.read(root) == hudi_rs(root)
    finally:
        spark.close()
