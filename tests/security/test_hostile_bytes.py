"""Bytes that fuzzing has found: each ended the process, took it over, or was an error of somebody else's."""

from __future__ import annotations

import errno
import io
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crdt_mor as mor
from crdt_mor.format import avro, avro_record, avro_rows, base_file, bloom
from crdt_mor.format.row_groups import choose, decode_front
from crdt_mor.ground.footers import fits
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.ground.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Struct, Value, decode, encode
from crdt_mor.merge import contributions
from crdt_mor.merge.contributions import row_groups
from crdt_mor.payloads import PartialUpdate
from crdt_mor.store.memory import MemoryStore

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


# --- Avro -------------------------------------------------------------------------------------------------------------

RECORD = "HoodieCommitMetadata"
ITSELF: dict[str, Any] = {
    "type": "record",
    "name": RECORD,
    "namespace": "org",
    "fields": [{"name": "next", "type": ["null", RECORD]}],
}
NOTHING: dict[str, Any] = {
    "type": "record",
    "name": RECORD,
    "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
}
EMPTY = NOTHING | {
    "fields": [
        {"name": "e", "type": {"type": "record", "name": "E", "fields": []}},
        {"name": "a", "type": {"type": "array", "items": "E"}},
    ]
}
HOSTILE = {
    "a type that contains itself": (ITSELF, b"\x02" * 1_000_000 + b"\0"),
    "an array of nulls": (NOTHING, avro.encode_long(2**60) + b"\0"),
    "an array of empty records": (EMPTY, avro.encode_long(2**60) + b"\0"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_schema_that_bounds_nothing_is_refused_before_its_bytes_are_read(kind: str) -> None:
    schema, datum = HOSTILE[kind]
    container = avro.encode_container(avro.container_header(json.dumps(schema)), 1, datum)
    with pytest.raises(mor.errors.FormatError, match=f"damaged {RECORD}.*path=p"):
        avro_record.decode(container, "p", RECORD)
    with pytest.raises(mor.errors.FormatError, match=r"its schema is not one.*path=p"):
        avro_rows.decode(memoryview(struct.pack(">iii", 3, 1, len(datum)) + datum), json.dumps(schema), "p", 0)


def test_a_log_block_that_claims_more_records_than_it_has_bytes_is_named() -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]})
    for count in (2**29, -1, 3):
        with pytest.raises(mor.errors.FormatError, match=r"records in 10 bytes.*path=p offset=7"):
            avro_rows.decode(memoryview(struct.pack(">iii", 3, count, 1) + b"\x02" + bytes(5)), schema, "p", 7)


@pytest.mark.parametrize(
    "schema", ["[" * 100_000, '{"type":"record","name":"r","fields":[7]}', "7"], ids=["deep", "numbers", "7"]
)
def test_what_is_no_schema_of_a_log_block_is_named(schema: str) -> None:
    with pytest.raises(mor.errors.FormatError, match=r"its schema is not one.*path=p"):
        avro_rows.decode(memoryview(struct.pack(">iii", 3, 1, 0)), schema, "p", 0)


def test_a_column_with_a_name_that_polars_panics_at_is_an_error_of_ours() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a\0b", "type": "long"}]}
    with pytest.raises(mor.errors.FormatError, match="damaged Avro log block"):
        avro_rows.decode(memoryview(struct.pack(">iii", 3, 1, 1) + b"\x02"), json.dumps(schema), "p", 0)


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.table({"_hoodie_record_key": ["a", "b"], "_hoodie_commit_time": ["1", "2"], "n": [1, 2]})
    pq.write_table(rows, sink, **bloom.options("_hoodie_record_key", 2))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def footer_of(data: bytes) -> bytes:
    end = len(data) - 8
    return data[end - int.from_bytes(data[end : end + 4], "little") : end]


def changed(data: bytes, change: Callable[[Struct], None]) -> bytes:
    """A Parquet file whose footer says something else."""
    footer = footer_of(data)
    struct = decode(footer)
    change(struct)
    encoded = encode(struct)
    return data[: -8 - len(footer)] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def _chunk(footer: Struct, number: int) -> Struct:
    return footer[4].value.values[0][1].value.values[number]  # type: ignore[no-any-return]


def another_type(footer: Struct) -> None:
    _chunk(footer, 0)[3].value[1].value = 1


def fewer_chunks(footer: Struct) -> None:
    group = footer[4].value.values[0]
    group[1] = Value(LIST, Items(STRUCT, group[1].value.values[:1]))


def encrypted(footer: Struct) -> None:
    _chunk(footer, 0)[8] = Value(STRUCT, {1: Value(STRUCT, {})})


def of_another_kind(footer: Struct) -> None:
    """Arrow takes a field of another kind for none, and so the column for a group of none."""
    footer[2].value.values[1][1].kind = I64


def items_of_another_kind(footer: Struct) -> None:
    """Arrow reads each item as the text that Parquet declares, whatever kind the list says."""
    _chunk(footer, 0)[3].value[3].value = Items(I32, [7])


def fewer_children(footer: Struct) -> None:
    footer[2].value.values[0][5].value -= 1


def more_children(footer: Struct) -> None:
    footer[2].value.values[0][5].value += 1


def too_many_levels(number: int) -> Callable[[Struct], None]:
    def change(footer: Struct) -> None:
        _chunk(footer, 0)[3].value[16] = Value(STRUCT, {number: Value(LIST, Items(I64, [1, 1, 1, 1]))})

    return change


def bytes_of_numbers(footer: Struct) -> None:
    _chunk(footer, 2)[3].value[16] = Value(STRUCT, {1: Value(I64, 7)})


def short_statistics(number: int) -> Callable[[Struct], None]:
    def change(footer: Struct) -> None:
        _chunk(footer, 2)[3].value[12].value[number] = Value(BINARY, b"\1")

    return change


NOT_THOSE = {
    "another type": another_type,
    "fewer chunks": fewer_chunks,
    "encrypted": encrypted,
    "repetition levels": too_many_levels(2),
    "definition levels": too_many_levels(3),
    "bytes of texts that are numbers": bytes_of_numbers,
    **{f"short statistics, {number}": short_statistics(number) for number in (1, 2, 5, 6)},
}


@pytest.mark.parametrize("case", NOT_THOSE)
def test_chunks_that_are_not_those_of_the_schema_do_not_end_the_process(case: str) -> None:
    source = ParquetSource.in_memory(changed(parquet(), NOT_THOSE[case]), name="base")
    with pytest.raises(pa.ArrowInvalid, match="the footer's column chunks do not match the schema"):
        source.metadata()
    for column in ("_hoodie_record_key", "n"):
        assert row_groups(source, column) is None
        assert bloom.may_have(source, column, ["a"]) is None


@pytest.mark.parametrize("change", [of_another_kind, items_of_another_kind, fewer_children, more_children])
def test_a_footer_that_arrow_refuses_does_not_fit_either(change: Callable[[Struct], None]) -> None:
    """Whichever of two fields or kinds Arrow goes by, what is looked at is what it reads."""
    data = changed(parquet(), change)
    assert not fits(footer_of(data))
    with pytest.raises(OSError, match=r"schema|thrift|group node"):
        ParquetSource.in_memory(data).metadata()


COLUMNS = {
    "numbers": pa.array([1, None, 3], pa.int32()),
    "texts": pa.array(["a", "b", ""]),
    "truths": pa.array([True, None, False]),
    "decimals": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(30, 2)),
    "lists": pa.array([[1], None, [2, None]]),
    "structs": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
    "maps": pa.array([[("k", [1])], None, []], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "none": pa.array([None, None, None], pa.string()),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_what_arrow_writes_fits(column: str) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": COLUMNS[column]}), sink)
    footer = ParquetSource.in_memory(sink.getvalue().to_pybytes()).metadata()
    chunks = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    assert all(chunk.num_values >= 3 for chunk in chunks)


def test_what_polars_writes_fits() -> None:
    sink = io.BytesIO()
    pl.DataFrame([pl.Series(name, values) for name, values in COLUMNS.items() if name != "maps"]).write_parquet(sink)
    assert ParquetSource.in_memory(sink.getvalue()).metadata().num_rows == 3


def test_a_scan_of_a_base_file_of_such_chunks_does_not_end_the_process(fast_path: Path) -> None:
    made = mor.Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    made.upsert(pa.table({"id": ["a"], "n": [1]}, SCHEMA))
    made.maintenance.compact()
    made.upsert(pa.table({"id": ["b"], "n": [1]}, SCHEMA))
    (base,) = fast_path.glob("t/*.parquet")

    def foreign_and_broken(footer: Struct) -> None:
        another_type(footer)
        footer[5] = Value(LIST, Items(STRUCT, []))

    whole = base.read_bytes()
    base.write_bytes(changed(whole, foreign_and_broken))
    with suppress(mor.CrdtMorError):  # the process lives, whatever it makes of the rows
        mor.Table(made.uri).scan().to_arrow()
    base.write_bytes(changed(whole, another_type))
    assert "the footer's column chunks do not match the schema" in str(mor.Table(made.uri).verify())


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError("Couldn't deserialize thrift"), "damaged Parquet: run crdt-mor verify to find the file.*thrift.*log"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (FileNotFoundError("the object is gone"), "the object is gone"),
    ],
    ids=["of Arrow", "of the disk", "of a bucket"],
)
def test_what_arrow_cannot_read_is_a_damaged_file(raised: OSError, expected: str) -> None:
    """Of a log whose footer polars reads all the same."""
    store = MemoryStore()
    made = mor.Table.create("t", SCHEMA, key="id", buckets=1, merge=PartialUpdate(), opening=mor.Opening(store=store))
    made.upsert(pa.table({"id": ["a"], "n": [1]}, SCHEMA))

    def unreadable(*_: object) -> frozenset[str]:
        raise raised

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "given_names", unreadable)
        refused = mor.StorageUnavailableError  # no bytes were read that could be damaged
        with pytest.raises(mor.errors.FormatError if "Parquet" in expected else refused, match=expected):
            made.scan().to_arrow()


def test_a_name_of_a_column_that_is_no_text_is_a_damaged_file() -> None:
    def rename(footer: Struct) -> None:
        footer[2].value.values[1][4].value = b"\xff"

    source = ParquetSource.in_memory(changed(parquet(), rename), name="base")
    with pytest.raises(mor.errors.FormatError, match=r"damaged Parquet file.*path=base"):
        base_file.read_footer(source)
    assert row_groups(source, "n") is None


@pytest.mark.skipif(not bloom.are_written(), reason="this pyarrow writes no Bloom filters")
@pytest.mark.parametrize(("field", "value"), [(14, 2**62), (15, 2**31 - 1), (14, -5), (15, -5)])
def test_a_bloom_filter_that_is_said_to_lie_elsewhere_is_not_looked_for(field: int, value: int) -> None:
    def move(footer: Struct) -> None:
        _chunk(footer, 0)[3].value[field].value = value

    assert bloom.may_have(ParquetSource.in_memory(changed(parquet(), move)), "_hoodie_record_key", ["a"]) is None


BROKEN: dict[str, Struct] = {
    "nothing": {},
    "no list": {2: Value(I32, 1), 4: Value(I32, 1)},
    "a name that is no text": {
        2: Value(LIST, Items(STRUCT, [{}, {4: Value(BINARY, b"\xff")}])),
        4: Value(LIST, Items(STRUCT, [])),
    },
    "children that are not there": {2: Value(LIST, Items(STRUCT, [{}, {4: Value(BINARY, b"a"), 5: Value(I32, 9)}]))},
    "a group of nothing": {2: Value(LIST, Items(STRUCT, [{5: Value(I32, 0)}])), 4: Value(LIST, Items(STRUCT, [{}]))},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_footer_of_another_shape_is_named(kind: str) -> None:
    with pytest.raises(mor.errors.FormatError, match="not the footer of a Parquet file"):
        choose(encode(BROKEN[kind]), None, {0})


def test_chunks_that_are_said_to_lie_outside_of_the_file_are_told() -> None:
    footer: Struct = decode(encode({}))
    data = changed(parquet(), footer.update)
    chosen = choose(footer_of(data), None, {0})
    assert chosen is not None
    assert chosen.is_before(len(data) - 8 - len(footer_of(data)))

    def far(footer: Struct) -> None:
        _chunk(footer, 0)[3].value[7] = Value(I64, 2**60)

    moved = changed(data, far)
    chosen = choose(footer_of(moved), None, {0})
    assert chosen is not None
    assert not chosen.is_before(len(moved) - 8)


@pytest.mark.parametrize(
    "data", [b"\x16" + b"\xff" * 100_000 + b"\x01\0", b"\x1c" * 100_000], ids=["a long number", "deep"]
)
def test_thrift_that_goes_on_for_ever_is_named(data: bytes) -> None:
    for parse in (decode, decode_front):
        with pytest.raises(mor.errors.FormatError, match="not a struct of Thrift's compact protocol"):
            parse(data)


@pytest.mark.parametrize("data", [b"\x15\2\5\2\4\0", b"\5\x82\x80\x08\2\0"], ids=["twice", "of 17 bits"])
def test_a_field_of_thrift_that_other_readers_take_for_another_one_is_named(data: bytes) -> None:
    """A reader that goes on to the same field has the later value or both; one that drops bits has the field 1."""
    for parse in (decode, decode_front):
        with pytest.raises(mor.errors.FormatError, match=r"a repeated or invalid field number"):
            parse(data)


def test_a_file_with_a_field_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    rows = pa.table({"a": [{"strange": 1}], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))})
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    path = tmp_path / "x.arrow"
    path.write_bytes(sink.getvalue().to_pybytes())
    assert mor.read_files(path).to_arrow().num_rows == 1
    path.write_bytes(sink.getvalue().to_pybytes().replace(b"strange", b"str\xff\xff\xffe"))
    with pytest.raises(mor.InvalidInputError, match=r"the file cannot be read.*x\.arrow"):
        mor.read_files(path).to_arrow()
