"""Parquet files: what Hudi's readers need is in them, what breaks hudi-rs is not."""

from __future__ import annotations

import decimal
import io
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor.errors import FormatError
from crdt_mor.format.base_file import (
    ROW_GROUP_ROWS,
    Judgements,
    base_metadata,
    incompressible_columns,
    read_footer,
    repeating_columns,
    write_parquet,
)
from crdt_mor.format.row_groups import join_row_groups
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.model.instant import InstantTime
from tests.format.helpers import ROWS, STORED
from tests.format.hudi_files import hudi_files

T = InstantTime("20260101000000000")
TABLE = pa.Table.from_pylist(ROWS, STORED)


def parquet_schema(data: bytes | memoryview) -> str:
    return str(pq.ParquetFile(pa.BufferReader(data)).schema)


def test_every_stored_type_comes_back_in_pyarrow_and_in_polars() -> None:
    data = write_parquet(TABLE)
    assert pq.read_table(pa.BufferReader(data)).to_pylist() == ROWS
    frame = pl.read_parquet(io.BytesIO(data))
    assert frame["dec"].to_list() == [decimal.Decimal("-12.34"), None]
    assert frame["t"].dtype == pl.Datetime("us", "UTC")
    assert frame["deep"].to_list() == [[{"z": ["a"]}, None, {"z": []}], None]


def test_types_stand_in_parquet_as_spark_and_hudi_rs_expect_them() -> None:
    schema = parquet_schema(write_parquet(TABLE))
    for line in (
        "optional int64 field_id=-1 t (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds",
        "optional fixed_len_byte_array(7) field_id=-1 dec (Decimal(precision=15, scale=2))",
        "optional fixed_len_byte_array(16) field_id=-1 big (Decimal(precision=38, scale=10))",
        "optional int32 field_id=-1 day (Date)",
        "repeated group field_id=-1 list {",
        "optional int32 field_id=-1 element;",
        "repeated group field_id=-1 key_value {",
        "required binary field_id=-1 key (String);",
    ):
        assert line in schema


def test_no_arrow_schema_is_stored_as_hudi_rs_would_trip_over_it() -> None:
    data = write_parquet(TABLE.replace_schema_metadata({"pandas": "{}"}))
    assert pq.read_metadata(pa.BufferReader(data)).metadata is None


@pytest.mark.parametrize(
    "type_",
    [
        pa.large_string(),
        pa.list_(pa.string_view()),
        pa.int8(),
        pa.uint32(),
        pa.float16(),
        pa.timestamp("us"),
        pa.timestamp("ns", "UTC"),
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.large_string()),
        pa.large_list(pa.int32()),
        pa.map_(pa.int32(), pa.int32()),
        pa.struct({"x": pa.binary_view()}),
        pa.struct([]),
        pa.decimal256(50, 2),
        pa.null(),
    ],
    ids=str,
)
def test_a_type_that_is_not_stored_is_our_mistake(type_: pa.DataType) -> None:
    with pytest.raises(AssertionError, match="not a stored type: x is"):
        write_parquet(pa.table({"x": pa.nulls(0, type_)}))


def test_row_groups_are_small_enough_to_read_in_parallel() -> None:
    table = pa.table({"x": pa.array(range(200_000), pa.int64())})
    groups = pq.read_metadata(pa.BufferReader(write_parquet(table)))
    assert [groups.row_group(index).num_rows for index in range(groups.num_row_groups)] == [131_072, 68_928]
    small = pq.read_metadata(pa.BufferReader(write_parquet(table, row_group_rows=150_000)))
    assert small.num_row_groups == 2


def test_text_in_views_is_the_same_file() -> None:
    flat = TABLE.select(["s", "b", "l"])
    views = flat.cast(pa.schema({"s": pa.string_view(), "b": pa.binary_view(), "l": pa.int64()}))
    for repeating in ((), ("s", "b")):
        for log_block in (False, True):
            made = (write_parquet(t, repeating=repeating, log_block=log_block) for t in (flat, views))
            assert len({bytes(data) for data in made}) == 1


def test_a_dictionary_only_where_values_repeat_even_if_only_far_apart() -> None:
    rows = 10_000
    table = pa.table(
        {
            "_hoodie_commit_time": [str(index) for index in range(rows)],
            "_hoodie_commit_seqno": ["same"] * rows,
            "_hoodie_record_key": ["same"] * rows,
            "city": [f"city{index % 20}" for index in range(rows)],
            "country": [f"country{index // 1000}" for index in range(rows)],
            "id": [f"id{index}" for index in range(rows)],
            "empty": pa.nulls(rows, pa.string()),
            "flag": [True] * rows,
            "list": [[1]] * rows,
        }
    )
    repeating = repeating_columns(pl.DataFrame(pl.from_arrow(table)))
    assert repeating == ("city", "country", "empty")
    group = pq.read_metadata(pa.BufferReader(write_parquet(table, repeating=repeating))).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    found = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert found == {"_hoodie_commit_time", "city", "country", "empty"}


@pytest.mark.costly
@pytest.mark.parametrize("log_block", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 20_000])
def test_values_are_plain_or_from_a_dictionary_as_flink_refuses_other_encodings(log_block: bool, rows: int) -> None:
    """Flink's `AbstractColumnReader` says "Unsupported encoding"; RLE is the encoding of levels, and of no values."""
    ascending = pa.array(np.arange(rows))
    table = pa.concat_tables([TABLE] * -(-rows // TABLE.num_rows)).slice(0, rows).append_column("ascending", ascending)
    table = table.append_column("moment", ascending.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
    flat = [item.name for item in table.schema if not pa.types.is_nested(item.type)]
    for repeating in ((), flat):
        file = pq.read_metadata(pa.BufferReader(write_parquet(table, repeating=repeating, log_block=log_block)))
        for group in map(file.row_group, range(file.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                assert {*column.encodings} <= {"PLAIN", "RLE", "RLE_DICTIONARY"}, column.path_in_schema
                assert column.physical_type != "BOOLEAN" or "PLAIN" in column.encodings


@pytest.mark.parametrize(("values", "worth"), [(500, True), (5_000, True), (40_000, False), (1 << 40, False)])
@pytest.mark.parametrize("order", ["random", "sorted"])
def test_a_dictionary_of_thousands_of_values_pays_in_a_large_row_group_and_not_in_a_small_one(
    values: int, worth: bool, order: str
) -> None:
    numbers = pl.Series("n", np.random.default_rng(1).integers(0, values, ROW_GROUP_ROWS))
    frame = (numbers.sort() if order == "sorted" else numbers).to_frame()
    assert bool(repeating_columns(frame)) == worth
    assert not repeating_columns(frame.head(values).with_row_index("n2").select(n="n2"))
    assert bool(repeating_columns(frame, together=4_096)) == (values <= 500)


def test_a_column_of_which_half_is_one_value_and_half_are_many_needs_no_dictionary() -> None:
    mixed = pl.Series("n", [0, 1] * (ROW_GROUP_ROWS // 2)) * pl.int_range(ROW_GROUP_ROWS, eager=True)
    assert repeating_columns(mixed.to_frame()) == ()


def test_rows_are_judged_like_earlier_ones_of_their_kind_for_some_writes() -> None:
    alike, different = pl.DataFrame({"n": [1, 2] * 1_000}), pl.DataFrame({"n": range(2_000)})
    judgements = Judgements()
    found = [judgements.repeating(rows, 2_000) for rows in (alike, *[different] * 32)]
    assert found == [("n",)] * 32 + [()]
    assert judgements.repeating(alike.head(200), 200) == ("n",), "so few rows are of another kind"
    assert judgements.repeating(alike.rename({"n": "m"}), 2_000) == ("m",)
    for count in range(200):
        assert judgements.repeating(alike.rename({"n": f"m{count}"}), 2_000) == (f"m{count}",)
    assert len(judgements._known) < 100


def codecs(data: bytes | memoryview) -> dict[str, str]:
    """The codec of each column of the first row group, by its path."""
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema: column.compression for column in columns}


def test_every_column_is_compressed_at_every_depth_but_those_that_do_not_get_smaller() -> None:
    assert set(codecs(write_parquet(TABLE)).values()) == {"ZSTD"}
    assert set(codecs(write_parquet(TABLE, log_block=True)).values()) == {"LZ4"}
    chosen = [name for name in TABLE.column_names if not pa.types.is_nested(TABLE.schema.field(name).type)][::2]
    found = codecs(write_parquet(TABLE, uncompressed=chosen))
    assert {name for name, codec in found.items() if codec == "UNCOMPRESSED"} == set(chosen)


def test_numbers_that_do_not_get_smaller_are_found() -> None:
    chance, rows = np.random.default_rng(1), 20_000
    days = pl.Series(chance.integers(0, 5_000, rows)).cast(pl.Int32).cast(pl.Date)
    frame = pl.DataFrame(
        {
            "noise": chance.random(rows),
            "hash": pl.Series(chance.integers(0, 1 << 63, rows)),
            "half null": pl.Series(chance.random(rows)).set(pl.Series([True, False] * (rows // 2)), None),
            "moment": pl.Series(chance.integers(0, 1 << 62, rows)).cast(pl.Datetime("us", "UTC")),
            "price": np.round(chance.random(rows), 2),
            "small": pl.Series(chance.integers(0, 1 << 20, rows)),
            "ascending": range(rows),
            "day": days,
            "text": pl.Series(chance.integers(0, 1 << 63, rows)).cast(pl.String),
            "flag": pl.Series(chance.integers(0, 2, rows)).cast(pl.Boolean),
            "amount": pl.Series(chance.integers(0, 1 << 50, rows)).cast(pl.Decimal(30, 2)),
            "list": [[1.5]] * rows,
        }
    )
    noise = ("noise", "hash", "half null", "moment")
    assert incompressible_columns(frame, ()) == noise
    assert incompressible_columns(frame, ["noise"]) == noise[1:]
    assert incompressible_columns(frame.clear(), frame.columns) == ()


def test_rows_can_be_skipped_by_key_and_time() -> None:
    data = write_parquet(pa.table({"_hoodie_record_key": ["a", "b"], "_hoodie_commit_seqno": ["1", "2"]}))
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    assert (group.column(0).statistics.min, group.column(0).statistics.max) == ("a", "b")
    assert group.column(0).has_column_index
    assert group.column(1).statistics is None


def test_a_float_column_with_nan_has_no_statistics(tmp_path: Path) -> None:
    """They would omit NaN, which Spark and DuckDB take for greater than all numbers."""
    rows = pa.table({"x": [1.0, float("nan"), None], "y": [1.0, 2.0, None], "f": pa.array([1, 2, 3], pa.float32())})
    path = tmp_path / "base.parquet"
    path.write_bytes(write_parquet(rows))
    group = pq.read_metadata(path).row_group(0)
    assert [group.column(n).statistics is None for n in range(3)] == [True, False, False]
    assert not group.column(0).has_column_index
    assert duckdb.execute(f"select y from '{path}' where x > 5").fetchall() == [(2.0,)]


def test_the_footer_says_what_the_base_file_answers_for(tmp_path: Path) -> None:
    metadata = base_metadata(min_record_key="a", max_record_key="z", avro_schema="{}", latest_requested=T)
    data = b"".join(join_row_groups([write_parquet(TABLE)], lambda: metadata))
    path = tmp_path / "base.parquet"
    path.write_bytes(data)
    for source in (ParquetSource.in_memory(bytes(data)), ParquetSource.file(str(path))):
        footer = read_footer(source)
        assert (footer.rows, footer.latest_requested, footer.metadata) == (2, T, metadata)
        assert footer.schema.names == STORED.names
    assert metadata == {
        "hoodie_min_record_key": "a",
        "hoodie_max_record_key": "z",
        "parquet.avro.schema": "{}",
        "org.apache.spark.version": "3.5.6",
        "crdt_mor.latest_requested": T,
    }


def test_a_base_file_without_rows_has_no_least_key() -> None:
    metadata = base_metadata(min_record_key=None, max_record_key=None, avro_schema="{}", latest_requested=None)
    data = b"".join(join_row_groups([write_parquet(TABLE.slice(0, 0))], lambda: metadata))
    footer = read_footer(ParquetSource.in_memory(data))
    assert (footer.rows, footer.latest_requested, footer.metadata) == (0, None, metadata)
    assert metadata == {"parquet.avro.schema": "{}", "org.apache.spark.version": "3.5.6"}


def test_equal_tables_are_equal_bytes_however_they_are_chunked() -> None:
    chunked = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    assert write_parquet(chunked) == write_parquet(TABLE)


def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    good = bytes(write_parquet(TABLE))
    for data in (b"", b"PAR1", good[:-1], good[:200], b"\0" * 100, good[:-40] + b"\xff" * 32 + good[-8:]):
        with pytest.raises(FormatError, match=r"path=p/base\.parquet"):
            read_footer(ParquetSource.in_memory(data, name="p/base.parquet"))
    path = tmp_path / "base.parquet"
    path.write_bytes(good[:-1])
    with pytest.raises(FormatError, match=str(path)):
        read_footer(ParquetSource.file(str(path)))


def test_a_missing_file_is_not_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_footer(ParquetSource.file(str(tmp_path / "nothing.parquet")))


def test_the_footers_of_hudis_base_files_are_read() -> None:
    seen = 0
    for name, data in hudi_files(r"^[^/]+/(?!\.hoodie)([^/]+/)?[^/.][^/]*\.parquet$"):
        footer = read_footer(ParquetSource.in_memory(data, name=name))
        assert footer.metadata["hoodie_min_record_key"] <= footer.metadata["hoodie_max_record_key"]
        assert footer.latest_requested is None
        assert footer.schema.names[0] == "_hoodie_commit_time"
        seen += 1
    assert seen > 10
