"""Delta mirrors show the rows of a scan, cell by cell, to engines that open the table's own address."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.columns.kinds_variants import VARIANT
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.mirror.columns import MirrorColumn
from crdt_mor.mirror.delta import Delta
from crdt_mor.mirror.delta_log import name_of
from tests.mirror.delta_reading import (
    REWRITE,
    VECTORS,
    Reader,
    by_delta_rs,
    by_duckdb,
    by_polars,
    by_pyarrow,
    foreign_commit,
    log_files,
    mirrored,
    state_of,
)
from tests.mirror.shapes import RULES, SCHEMA, rows, scanned, written_over

READERS: list[Reader] = [by_delta_rs, by_polars]


def made(folder: Path, schema: pa.Schema = SCHEMA, **settings: Any) -> Table:
    return Table.create(str(folder / "table"), **{"schema": schema, "key": "id", "buckets": 2} | settings)


@pytest.mark.parametrize("rule", RULES)
def test_mirror_of_unmerged_logs_equals_the_scan(tmp_path: Path, rule: str) -> None:
    table = written_over(made(tmp_path, **RULES[rule]))
    mirrored(table)
    assert by_delta_rs(table) == by_polars(table) == scanned(table)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_mirror_of_unmerged_logs_in_duckdb_equals_the_scan(tmp_path: Path, rule: str) -> None:
    table = written_over(made(tmp_path, **RULES[rule]))
    mirrored(table)
    assert by_duckdb(table) == scanned(table)


@pytest.mark.parametrize("rule", RULES)
def test_rewritten_mirror_equals_the_scan_for_readers_without_vectors(tmp_path: Path, rule: str) -> None:
    table = written_over(made(tmp_path, **RULES[rule]))
    mirrored(table, REWRITE)
    assert by_pyarrow(table) == by_delta_rs(table) == by_polars(table) == scanned(table)


def test_mirror_after_each_version_equals_the_scan(tmp_path: Path) -> None:
    """Beyond ten versions a checkpoint stands in for the log, and ten versions later old entries are gone."""
    table = made(tmp_path)
    steps: list[Callable[[], Any]] = [
        lambda: table.upsert(rows(range(20), 1)),
        table.maintenance.compact,
        lambda: table.upsert(rows(range(3, 6), 2)),
        lambda: table.delete(keys=[4, 11]),
        lambda: table.upsert(rows([4], 3)),
        table.maintenance.compact,
        lambda: table.delete(keys=list(range(20))),
        table.maintenance.compact,
        lambda: table.upsert(rows([7, 8], 4)),
        lambda: table.upsert(rows([7], 5)),
        lambda: table.delete(keys=[8]),
        lambda: table.upsert(rows([9], 5)),
        table.maintenance.compact,
    ]
    for step in steps:
        step()
        mirrored(table)
        assert by_delta_rs(table) == by_polars(table) == scanned(table)


def test_mirror_of_the_shown_version_again_puts_nothing(tmp_path: Path) -> None:
    table = written_over(made(tmp_path))
    first = mirrored(table)
    again = mirrored(table)
    assert (again.number, again.version, again.puts) == (first.number, first.version, ())


@pytest.mark.parametrize("read", READERS)
def test_mirror_of_an_empty_table_has_no_rows(tmp_path: Path, read: Reader) -> None:
    table = made(tmp_path)
    mirrored(table)
    assert read(table) == []


def test_older_version_of_a_mirror_keeps_its_rows(tmp_path: Path) -> None:
    table = written_over(made(tmp_path))
    mirrored(table)
    before = scanned(table)
    table.delete(keys=[5, 6, 7])
    mirrored(table)
    assert by_delta_rs(table, version=0) == before
    assert by_delta_rs(table) == scanned(table) != before


def test_mirror_states_the_table_and_refuses_other_writers(tmp_path: Path) -> None:
    """An engine that optimizes or vacuums a mirror would delete base files of the table."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    table = written_over(made(tmp_path))
    done = mirrored(table)
    info = state_of(table).info()
    assert (info["crdt_mor.version"], info["crdt_mor.as_of"]) == (done.version, done.as_of) != (0, "")
    opened = deltalake.DeltaTable(table.uri)
    with pytest.raises(Exception, match="crdt_mor"):
        deltalake.write_deltalake(opened, rows([1], 1), mode="append")
    with pytest.raises(Exception, match="crdt_mor"):
        opened.delete("id = 1")
    assert state_of(table).number == done.number


# --- schemas ------------------------------------------------------------------------------------------------------


def test_added_renamed_and_dropped_columns_equal_the_scan(tmp_path: Path) -> None:
    table = written_over(made(tmp_path))
    mirrored(table)
    table.upsert(pa.table({"id": [1], "n": [1], "text": ["x"], "more": [1.5]}), schema_mode="merge")
    mirrored(table)
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    table.alter(rename={"text": "Größe"}, drop=["n"])
    mirrored(table)
    assert by_delta_rs(table) == scanned(table)
    table.upsert(pa.table({"id": [2], "Größe": ["y"], "more": [2.5], "n": ["other"]}), schema_mode="merge")
    mirrored(table)
    assert by_delta_rs(table) == scanned(table)
    with pytest.raises(Exception, match="columnMapping"):  # polars refuses, and shows no nulls
        by_polars(table)
    with pytest.raises(Exception, match="columnMapping"):
        by_pyarrow(table)


def test_dropped_column_alone_needs_no_column_mapping(tmp_path: Path) -> None:
    table = written_over(made(tmp_path))
    table.alter(drop=["n"])
    mirrored(table, REWRITE)
    assert by_pyarrow(table) == by_polars(table) == scanned(table)


def test_widened_column_is_rewritten_once_and_equals_the_scan(tmp_path: Path) -> None:
    """Readers without the feature typeWidening would fail on the narrower base file, or read it wrongly."""
    price = pa.decimal128(6, 2)
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("f", pa.float32()), ("a", price), ("b", pa.int32())])
    table = made(tmp_path, schema)
    prices = pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)).cast(price)
    table.upsert(
        pa.table({"id": [1, 2, 3], "n": [1, 2, 3], "f": [0.5, 1.5, 2.5], "a": prices, "b": [7, 8, 9]}, schema=schema)
    )
    table.maintenance.compact()
    mirrored(table)
    assert all(not path.startswith(".mirror") for path, _ in state_of(table).files)
    wide = pa.array([5]).cast(pa.decimal128(21, 2))
    table.upsert(pa.table({"id": [2], "n": [1 << 40], "f": [1e300], "a": wide, "b": wide}), schema_mode="merge")
    mirrored(table)
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    assert all(path.startswith(".mirror") for path, _ in state_of(table).files)


TYPES: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None]),
    "small": (pa.int8(), [-128, 127]),
    "unsigned": (pa.uint64(), [2**64 - 1, 0]),
    "float": (pa.float32(), [1.5, float("-inf")]),
    "double": (pa.float64(), [None, -0.0]),
    "binary": (pa.binary(), [b"\x00\xff", b""]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "moment": (pa.timestamp("us", "UTC"), [dt.datetime(1500, 1, 1, 0, 0, 0, 1, dt.UTC), None]),
    "naive": (pa.timestamp("ms"), [dt.datetime.fromisoformat("2026-01-01"), None]),
    "time": (pa.time64("us"), [dt.time(1, 2, 3), None]),
    "decimal": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("9999999999999999999999999999.0123456789")]),
    "category": (pa.dictionary(pa.int32(), pa.string()), ["a", "ü"]),
    "list": (pa.list_(pa.int16()), [[1, None], []]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", None)], None]),
    "duration": (pa.duration("ms"), [dt.timedelta(-1), None]),
    "numbers": (pa.map_(pa.int16(), pa.string()), [[(1, "a"), (2, None)], None]),
    "nothing": (pa.struct([]), [{}, None]),
    "variant": (VARIANT, [{"metadata": b"\1\0\0", "value": b"\x0c\x07"}, None]),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.date32()))]),
        [{"a": "x", "b": [dt.date(2026, 1, 1)]}, None],
    ),
}


def of_all_types(ids: list[int], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(ids), *(pa.array([values[i % 2] for i in ids], kind) for kind, values in TYPES.values())]
    return pa.table(arrays, schema=schema)


def test_columns_of_every_type_equal_the_scan(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in TYPES.items())])
    table = made(tmp_path, schema)
    table.upsert(of_all_types([0, 1, 2, 3], schema))
    table.maintenance.compact()
    table.upsert(of_all_types([1, 2], schema))
    mirrored(table)
    assert by_delta_rs(table) == scanned(table)


def test_column_of_a_type_that_delta_lacks_is_refused_by_name() -> None:
    """No stored type is such today; one of a later release must not reach the log."""
    column = MirrorColumn(1, "waiting time", "waiting_time", pa.month_day_nano_interval())
    with pytest.raises(UnsupportedFeatureError, match="column=waiting time"):
        Delta().require_types([column])


@pytest.mark.parametrize("hive_style", [False, True])
def test_partitions_with_odd_names_equal_the_scan(tmp_path: Path, hive_style: bool) -> None:
    schema = pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.date32()), ("nr", pa.int32())])
    by = ["region", "day", "nr"]
    table = made(tmp_path, schema, partition_by=by, key=["id", *by], hive_style=hive_style, buckets=1)
    given = pa.table(
        {
            "id": [1, 2, 3, 4, 5],
            "region": ["ü p+1", None, "100%", "a#b?c", "x=y&z"],
            "day": pa.array([0, None, 7, -1, 1], pa.date32()),
            "nr": pa.array([1, 2, None, 4, -5], pa.int32()),
        },
        schema=schema,
    )
    table.upsert(given)
    table.maintenance.compact()
    table.upsert(given.slice(1))
    mirrored(table)
    assert by_delta_rs(table) == by_polars(table) == scanned(table)


# --- bounds and costs ---------------------------------------------------------------------------------------------


def test_filters_find_every_row_by_the_bounds_of_files(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string()), ("f", pa.float64())]
    )
    table = made(tmp_path, schema, buckets=4)
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    moments = [start + dt.timedelta(microseconds=1_001 * i) for i in range(40)]
    table.upsert(
        pa.table(
            {"id": range(40), "at": moments, "text": [f"{i:03d}" for i in range(40)], "f": [float("nan")] * 40},
            schema=schema,
        )
    )
    table.maintenance.compact()
    table.delete(keys=[0, 39])
    mirrored(table)
    opened = deltalake.DeltaTable(table.uri)

    def found(condition: str) -> int:
        reader = deltalake.QueryBuilder().register("t", opened).execute(f"select id from t where {condition}")
        return int(pa.table(reader.read_all()).num_rows)

    for i in (1, 7, 38):
        assert found(f"at = timestamp '{moments[i].isoformat()}'") == 1
        assert found(f"text = '{i:03d}'") == found(f"id = {i}") == 1
    assert found("f > 5") == 38  # for SQL engines NaN is the greatest number, and Parquet's statistics omit it
    stats = [json.loads(file["stats"]) for file in state_of(table).files.values()]
    assert all("f" not in one["minValues"] and "id" in one["minValues"] for one in stats)


def test_bounds_of_moments_at_both_ends_of_the_calendar_enclose_them(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    first, last = dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    table = made(tmp_path, schema, buckets=1)
    table.upsert(pa.table({"id": [1, 2], "at": [first, first]}, schema=schema))
    mirrored(table)
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    assert _moments_of(table) == {("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z")}
    table.upsert(pa.table({"id": [2], "at": [last]}, schema=schema))
    table.maintenance.compact()
    mirrored(table)
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    assert _moments_of(table) == {("0001-01-01T00:00:00.000Z", None)}, "no millisecond is at or above the last moment"


def _moments_of(table: Table) -> set[tuple[str, str | None]]:
    stats = [json.loads(file["stats"]) for file in state_of(table).files.values()]
    return {(one["minValues"]["at"], one["maxValues"].get("at")) for one in stats}


def test_one_changed_slice_of_many_costs_three_objects_and_ten_kilobytes(tmp_path: Path) -> None:
    table = made(tmp_path, buckets=100)
    table.upsert(rows(range(1000), 1))
    table.maintenance.compact()
    assert len(mirrored(table).puts) == 1  # base files alone
    table.upsert(rows([5], 2))
    first = mirrored(table)
    table.upsert(rows([5], 3))
    second = mirrored(table)
    assert len(first.puts) == 3
    assert len(second.puts) == 2  # the same rows are dead
    assert max(sum(size for _, size in done.puts) for done in (first, second)) < 10_000
    assert by_delta_rs(table) == scanned(table)


def test_unchanged_vector_is_named_again(tmp_path: Path) -> None:
    table = made(tmp_path, buckets=1)
    table.upsert(rows(range(9), 1))
    table.maintenance.compact()
    table.upsert(rows([1], 2))
    mirrored(table)
    before = [name for name in state_of(table).files if name[1]]
    table.upsert(rows([1, 100], 3))
    mirrored(table)
    assert [name for name in state_of(table).files if name[1]] == before
    table.delete(keys=[1, 100])
    mirrored(table)
    (left,) = state_of(table).files.values()
    assert [name_of(left)] == before
    assert mirrored(table).puts == ()
    table.upsert(rows([2], 3))
    mirrored(table)
    assert by_delta_rs(table) == scanned(table)


def test_merged_rows_lie_hidden_below_their_partition(tmp_path: Path) -> None:
    """hudi-rs takes Parquet files in visible folders for base files."""
    table = written_over(made(tmp_path))
    mirrored(table)
    found = [path for path in Path(table.uri).rglob("*") if path.is_file() and ".hoodie" not in path.parts]
    ours = [path.relative_to(table.uri).as_posix() for path in found if pq_is_new(path)]
    assert {path.partition("/")[0] for path in ours} <= {".mirror", "_delta_log", "crdtmor"}
    assert len([path for path in ours if path.endswith(".parquet")]) == 2


def test_folder_of_vectors_has_letters_alone(tmp_path: Path) -> None:
    """Trino refuses another folder: `Random prefix must be alphanumeric`."""
    table = written_over(made(tmp_path))
    mirrored(table)
    vectors = [file["deletionVector"] for file in state_of(table).files.values() if "deletionVector" in file]
    assert {vector["pathOrInlineDv"][:-20].isalnum() for vector in vectors} == {True}


def pq_is_new(path: Path) -> bool:
    return path.name.startswith(("m-", "deletion_vector", "0000000000"))


# --- heads that are not ours --------------------------------------------------------------------------------------


def test_another_delta_table_at_the_address_is_refused(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    table = written_over(made(tmp_path))
    deltalake.write_deltalake(table.uri, rows([1], 1))
    with pytest.raises(InvalidInputError, match="another Delta table"):
        mirrored(table)


@pytest.mark.parametrize("kind", [VECTORS, REWRITE])
def test_write_through_the_mirror_is_reported_and_replaced(tmp_path: Path, kind: Delta) -> None:
    table = written_over(made(tmp_path))
    mirrored(table, kind)
    state = state_of(table)
    removed = dict(next(iter(state.files.values())))
    foreign_commit(table, {"remove": {**removed, "deletionTimestamp": 0}})
    assert by_delta_rs(table) != scanned(table)
    done = mirrored(table, kind)
    assert (done.replaced, done.number) == (1, 2)
    assert by_delta_rs(table) == scanned(table)
    assert mirrored(table, kind).puts == ()


def test_rows_written_through_the_mirror_are_gone_after_the_next_refresh(tmp_path: Path) -> None:
    table = written_over(made(tmp_path))
    mirrored(table)
    pq.write_table(rows([777], 1), Path(table.uri, ".mirror", "foreign.parquet"))
    added = {"path": ".mirror/foreign.parquet", "partitionValues": {}, "size": 1000, "modificationTime": 0}
    foreign_commit(
        table,
        {"add": {**added, "dataChange": True}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            }
        },
    )
    table.upsert(rows([1], 50))
    assert mirrored(table).replaced == 1
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    assert "crdt_mor" in state_of(table).protocol["writerFeatures"]


def test_other_mode_replaces_the_whole_mirror(tmp_path: Path) -> None:
    table = written_over(made(tmp_path))
    mirrored(table)
    done = mirrored(table, REWRITE)
    assert (done.number, done.replaced) == (1, None)
    assert by_pyarrow(table) == scanned(table)
    mirrored(table)
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    assert log_files(table) == [f"{number:020d}.json" for number in range(3)]


def test_mirror_of_a_table_created_anew_is_replaced(tmp_path: Path) -> None:
    import shutil

    table = written_over(made(tmp_path))
    mirrored(table)
    log, moved = Path(table.uri, "_delta_log"), tmp_path / "log"
    shutil.move(log, moved)
    shutil.rmtree(table.uri)
    again = made(tmp_path)
    again.upsert(rows([1, 2], 3))
    shutil.move(moved, log)
    mirrored(again)
    assert by_delta_rs(again) == by_polars(again) == scanned(again)


def test_mirror_in_partitions_that_urls_encode_has_each_row_once_in_polars(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema, key=["id", "part"], partition_by="part", buckets=1)
    parts = ("us", "ü p+1", "50%")
    table.upsert(pa.table({"id": range(30), "part": [parts[i % 3] for i in range(30)]}, schema=schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": [0, 1, 2], "part": list(parts)}, schema=schema))
    table.delete(pa.table({"id": [3, 4, 5], "part": list(parts)}))

    mirrored(table)

    assert by_polars(table) == scanned(table)
