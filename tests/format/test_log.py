"""Log files: what is written is read, what Hudi wrote is read, and no damage passes unseen."""

from __future__ import annotations

import decimal
import io
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedFeatureError, UnsupportedVersionError
from crdt_mor.format import log
from crdt_mor.format.log import (
    BlockKind,
    HeaderKey,
    LogBlock,
    decode_avro,
    read_log,
)
from crdt_mor.format.log_compaction import places
from crdt_mor.model.instant import InstantTime
from tests.format.helpers import T1, T2, raw_block
from tests.format.hudi_files import hudi_files

SCHEMA = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{"name":"id","type":["null","string"]}]}'


def parquet_block(*given: Any, **named: Any) -> bytes:
    return b"".join(log.parquet_block(*given, **named))


def delete_block(*given: Any, **named: Any) -> bytes:
    return b"".join(log.delete_block(*given, **named))


def decode_deletes(block: LogBlock) -> pa.Table:
    (deletes,) = log.decode_deletes([block])
    small = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    table = deletes.to_arrow()
    return table.cast(pa.schema([field.with_type(small.get(field.type, field.type)) for field in table.schema]))


def only(data: bytes) -> LogBlock:
    [block] = read_log(data, "p/.a_1.log.1_0-0-0")
    return block


def deletes_of(keys: list[str], ordering: pa.Array | None, partition: str = "region=eu") -> pa.Table:
    return decode_deletes(only(delete_block(T1, SCHEMA, keys, partition, ordering)))


# ---- blocks --------------------------------------------------------------------------------------------------------


def test_a_written_log_is_read_in_file_order() -> None:
    data = (
        delete_block(T1, SCHEMA, ["a"], "", None)
        + parquet_block(T1, SCHEMA, b"PAR1..PAR1")
        + parquet_block(T2, SCHEMA, b"", partial=True)
    )
    first, second, third = read_log(data, "log")
    assert (first.kind, first.instant, first.partial, first.offset) == (BlockKind.DELETE, T1, False, 0)
    assert (second.kind, second.schema, bytes(second.content)) == (BlockKind.PARQUET, SCHEMA, b"PAR1..PAR1")
    assert (third.instant, third.partial, third.headers[HeaderKey.IS_PARTIAL]) == (T2, True, "true")
    assert data[third.offset :].startswith(b"#HUDI#")


def test_reading_copies_nothing() -> None:
    data = parquet_block(T1, SCHEMA, b"x" * 1000)
    assert only(data).content.obj is data


def test_an_empty_file_has_no_blocks() -> None:
    assert read_log(b"", "log") == []


def test_our_blocks_are_the_formats_words_byte_for_byte() -> None:
    ours = parquet_block(T1, SCHEMA, b"content", partial=True)
    assert ours == raw_block(5, {0: T1, 2: SCHEMA, 7: "true"}, b"content")


def test_set_nulls_are_at_the_end_of_the_schema() -> None:
    block = only(parquet_block(T1, SCHEMA, b"content", nulls=("a", "ä")))
    assert block.schema == SCHEMA.removesuffix("}") + ',"crdt_mor.nulls":["a", "\\u00e4"]}'
    assert (block.nulls, block.record) == (("a", "ä"), SCHEMA)
    assert (only(parquet_block(T1, SCHEMA, b"")).nulls, only(parquet_block(T1, SCHEMA, b"")).record) == ((), SCHEMA)


@pytest.mark.parametrize("said", ["{", "5", '["a",5]', "[" * 100_000])
def test_damaged_names_of_set_nulls_are_an_error(said: str) -> None:
    block = only(parquet_block(T1, f'{{"name":"t","crdt_mor.nulls":{said}}}', b""))
    with pytest.raises(FormatError, match="columns with set nulls are not a list of names"):
        _ = block.nulls


def test_the_example_of_the_format_comes_out_to_the_byte() -> None:
    natural_order = pa.array([0, 0], pa.int32())
    block = only(delete_block(InstantTime("20260101000004000"), SCHEMA, ["k002", "k015"], "", natural_order))
    assert bytes(block.content).hex(" ") == (
        "00 00 00 03 00 00 00 16 04 02 08 6b 30 30 32 02 00 04 00 02 08 6b 30 31 35 02 00 04 00 00"
    )


@pytest.mark.parametrize("kind", [BlockKind.HFILE, BlockKind.CDC])
def test_kinds_that_we_do_not_read_are_refused_by_name(kind: BlockKind) -> None:
    with pytest.raises(UnsupportedFeatureError, match=kind.name):
        read_log(raw_block(kind, {0: T1}), "log")


def test_a_block_of_an_unknown_kind_is_of_another_version_and_says_which() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Upgrade crdt_mor, or let Hudi compact .*kind=9$"):
        read_log(raw_block(9, {0: T1}), "log")


def test_a_block_of_another_format_version_says_which() -> None:
    with pytest.raises(UnsupportedVersionError, match="found=2 supported=1"):
        read_log(raw_block(5, {0: T1}, version=2), "log")


def instants(*of: tuple[int, ...]) -> list[LogBlock]:
    """Blocks of a slice: each of an instant, and of the instants for which it stands."""
    headers = [
        {0: f"2026{at:013}", **({4: ",".join(f"2026{i:013}" for i in rest)} if rest else {})} for at, *rest in of
    ]
    return [read_log(raw_block(BlockKind.DELETE, named), "f")[0] for named in headers]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([(1,), (2,)], [1, 2]),
        ([(1,), (2,), (3,), (4, 1, 2)], [None, None, 3, 2]),
        ([(1,), (2,), (3, 1, 2), (3, 1, 2)], [None, None, 2, 2]),
        ([(1,), (2,), (3, 1, 2), (4,), (5, 3, 4)], [None, None, None, None, 4]),
        ([(1,), (2,), (3, 1, 2), (4,), (5,), (6, 3, 5)], [None, None, None, 4, None, 5]),
        ([(2,), (3, 1, 2)], [None, 2]),
        ([(3, 1, 2), (4,)], [None, 4]),
    ],
)
def test_a_block_of_hudis_log_compaction_counts_in_place_of_others(
    blocks: list[tuple[int, ...]], expected: list[int | None]
) -> None:
    found = places(instants(*blocks))
    assert [None if at is None else int(at[4:]) for at in found] == expected


def test_a_rollback_command_undoes_its_target_before_it_and_nothing_else() -> None:
    rollback = raw_block(0, {0: T2, 1: T1, 3: "0"})
    data = (
        parquet_block(T1, SCHEMA, b"a") + parquet_block(T2, SCHEMA, b"b") + rollback + parquet_block(T1, SCHEMA, b"c")
    )
    assert [bytes(block.content) for block in read_log(data, "log")] == [b"b", b"c"]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "garbage behind the last block": (lambda block: block + b"garbage", "no block begins here"),
    "no magic": (lambda block: b"X" + block[1:], "no block begins here"),
    "a size too small": (lambda block: block[:6] + struct.pack(">q", 9) + block[14:], "impossible size"),
    "a negative size": (lambda block: block[:6] + struct.pack(">q", -1) + block[14:], "impossible size"),
    "a size too large": (lambda block: block[:6] + struct.pack(">q", 10**12) + block[14:], "cut short"),
    "sizes that disagree": (lambda block: block[:-1] + b"\x00", "two sizes disagree"),
    "an unknown kind": (lambda _: raw_block(9, {0: T1}), "a newer Hudi wrote it, or the file is damaged"),
    "a corrupt block": (lambda _: raw_block(2, {0: T1}), "marked as corrupt"),
    "no instant": (lambda _: raw_block(5, {2: SCHEMA}), "no instant time"),
    "an unknown command": (lambda _: raw_block(0, {0: T2, 1: T1, 3: "1"}), "not a rollback"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_an_error_with_path_and_offset(name: str) -> None:
    damage, what = DAMAGE[name]
    good = parquet_block(T1, SCHEMA, b"good")
    with pytest.raises(FormatError, match=what) as caught:
        read_log(good + damage(parquet_block(T2, SCHEMA, b"bad")), "p/.a_1.log.1_0-0-0")
    assert "path=p/.a_1.log.1_0-0-0 offset=" in str(caught.value)


def test_a_log_cut_inside_a_block_is_never_read_as_a_shorter_log() -> None:
    first, second = delete_block(T1, SCHEMA, ["a", "b"], "", None), parquet_block(T2, SCHEMA, b"rows")
    data = first + second
    for length in range(1, len(data)):
        if length == len(first):
            assert len(read_log(data[:length], "log")) == 1
        else:
            with pytest.raises(FormatError):
                read_log(data[:length], "log")


BYTES = delete_block(T1, SCHEMA, ["a", "b"], "p", pa.array([1, 2])) + parquet_block(T2, SCHEMA, b"rows")


@given(st.integers(0, len(BYTES) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_is_our_error_never_anything_else(place: int, byte: int) -> None:
    data = bytearray(BYTES)
    data[place] = byte
    with suppress(FormatError, UnsupportedFeatureError):
        for block in read_log(bytes(data), "log"):
            if block.kind is BlockKind.DELETE:
                decode_deletes(block)


def test_a_block_too_large_for_java_is_refused_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.format.log.BLOCK_BYTES_MAX", 1000)
    with pytest.raises(InvalidInputError, match="bytes_max=1000"):
        parquet_block(T1, SCHEMA, bytes(1000))


# ---- deletes -------------------------------------------------------------------------------------------------------

ORDERINGS = [
    pa.array([True, False, True]),
    pa.array([0, -1, 2**31 - 1], pa.int32()),
    pa.array([0, -(2**63), 2**63 - 1], pa.int64()),
    pa.array([0.5, -1.5, float("inf")], pa.float32()),
    pa.array([0.1, -1e300, float("-inf")], pa.float64()),
    pa.array(["", "ä€😀", "x" * 200], pa.string()),
    pa.array([b"", b"\x00\xff", b"x" * 200], pa.binary()),
    pa.array([date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)], pa.date32()),
    pa.array(
        [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, 2, 3, 456789, UTC), datetime(9999, 1, 1, tzinfo=UTC)],
        pa.timestamp("us", tz="UTC"),
    ),
]


def as_hudi_compares(ordering: pa.Array) -> pa.Array:
    """Dates and timestamps are written as the numbers that Hudi's Spark reader compares them with."""
    if pa.types.is_date32(ordering.type):
        return ordering.cast(pa.int32())
    return ordering.cast(pa.int64()) if pa.types.is_timestamp(ordering.type) else ordering


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda array: str(array.type))
def test_an_ordering_value_of_each_type_comes_back_typed(ordering: pa.Array) -> None:
    for values in (ordering, ordering.slice(1)):
        keys = [f"key-{index}" for index in range(len(values))]
        table = deletes_of(keys, values)
        assert table["record_key"].to_pylist() == keys
        assert table["ordering"].combine_chunks().equals(as_hudi_compares(values))


def test_decimal_ordering_values_are_javas_big_integers() -> None:
    texts = ["0", "0.01", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "9" * 23 + ".99", "-" + "9" * 23 + ".99"]
    values = pa.array([decimal.Decimal(text) for text in texts], pa.decimal128(25, 2))
    block = delete_block(T1, SCHEMA, texts, "", values)
    table = decode_deletes(only(block))
    assert table["ordering"].type == pa.decimal128(38, 15)
    assert table["ordering"].to_pylist() == [decimal.Decimal(text) for text in texts]
    for text in texts:
        unscaled = int(decimal.Decimal(text).scaleb(15, decimal.Context(prec=60)))
        length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        key = bytes([2, 2 * len(text)]) + text.encode()
        assert key + b"\x02\x00\x12" + bytes([2 * length]) + unscaled.to_bytes(length, "big", signed=True) in block
    with pytest.raises(InvalidInputError, match="23 digits"):
        delete_block(T1, SCHEMA, ["a"], "", pa.array([decimal.Decimal(10) ** 23], pa.decimal128(38, 2)))
    smallest = decimal.Decimal(2**64 - 1).scaleb(-15)
    block = delete_block(T1, SCHEMA, ["a"], "", pa.array([smallest], pa.decimal128(38, 30)))
    assert decode_deletes(only(block))["ordering"].to_pylist() == [smallest], "Arrow's own cast refuses it"


def test_a_plain_delete_has_hudis_natural_order_and_an_ordered_zero_is_told_from_it() -> None:
    for plain in (None, pa.nulls(2)):
        block = only(delete_block(T1, SCHEMA, ["a", "b"], "", plain))
        assert decode_deletes(block).to_pydict() == {"record_key": ["a", "b"], "ordering": [0, 0]}
        assert decode_deletes(block)["ordering"].type == pa.int32()
        assert not block.ordered
    block = only(delete_block(T1, SCHEMA, ["a"], "", pa.array([0], pa.int32())))
    assert block.ordered
    assert json.loads(block.schema) == json.loads(SCHEMA) | {"crdt_mor.ordered": True}


def test_integer_zero_stays_zero_and_the_caller_decides_what_it_means() -> None:
    assert deletes_of(["a"], pa.array([0], pa.int32()))["ordering"].to_pylist() == [0]


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda array: str(array.type))
def test_plain_and_ordered_deletes_mix_in_one_block(ordering: pa.Array) -> None:
    mixed = pa.concat_arrays([pa.nulls(1, ordering.type), ordering, pa.nulls(2, ordering.type)])
    table = deletes_of([str(index) for index in range(6)], mixed)
    assert table["ordering"].combine_chunks().equals(as_hudi_compares(mixed))


def test_an_ordering_type_without_a_wrapper_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="list<item: int64>"):
        delete_block(T1, SCHEMA, ["a"], "", pa.array([[1]]))


def test_a_block_without_deletes_is_read() -> None:
    assert deletes_of([], None).num_rows == 0
    assert deletes_of([], pa.array([], pa.int64())).num_rows == 0


def test_keys_may_come_as_arrow_in_chunks_or_slices_or_large() -> None:
    whole = pa.array(["skip", "a", "bb", "ccc"])
    for keys in (whole.slice(1), pa.chunked_array([["a"], ["bb", "ccc"]]), whole.slice(1).cast(pa.large_string())):
        block = delete_block(T1, SCHEMA, keys, "", pa.chunked_array([[1], [2, 3]]))
        assert decode_deletes(only(block)).to_pydict() == {"record_key": ["a", "bb", "ccc"], "ordering": [1, 2, 3]}


@settings(max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=80), st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=12), st.text())
def test_any_deletes_come_back_and_fastavro_agrees(rows: list[tuple[str, int | None]], partition: str) -> None:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    block = only(delete_block(T1, SCHEMA, keys, partition, pa.array(values, pa.int64())))
    table = decode_deletes(block)
    assert table["record_key"].to_pylist() == keys
    assert table["ordering"].to_pylist() == values
    wrapper = {"type": "record", "name": "W", "fields": [{"name": "value", "type": "long"}]}
    fillers = [{"type": "enum", "name": f"F{index}", "symbols": ["x"]} for index in range(2)]
    union = ["null", *fillers, wrapper]
    fields = [
        {"name": "key", "type": ["null", "string"]},
        {"name": "partition", "type": ["null", "string"]},
        {"name": "value", "type": union},
    ]
    schema = fastavro.parse_schema({"type": "array", "items": {"type": "record", "name": "D", "fields": fields}})
    records = fastavro.schemaless_reader(io.BytesIO(block.content[8:]), schema, None)
    expected = [{"key": k, "partition": partition, "value": None if v is None else {"value": v}} for k, v in rows]
    assert records == (expected or [])


BLOCK_ORDERINGS: st.SearchStrategy[pa.DataType | str | None] = st.one_of(
    st.none(),
    st.just(pa.int64()),
    st.just(pa.string()),
    st.just(pa.decimal128(25, 2)),
    st.just("a null among values"),
)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.lists(st.text(max_size=9), max_size=5), BLOCK_ORDERINGS, st.text(max_size=9)), max_size=6))
def test_blocks_that_are_read_together_say_what_each_says_alone(
    made: list[tuple[list[str], pa.DataType | str | None, str]],
) -> None:
    blocks = []
    for keys, kind, partition in made:
        nulls = kind == "a null among values"
        numbers = pa.array([None if nulls and i % 2 else i for i in range(len(keys))], pa.int64())
        ordering = numbers.cast(kind) if isinstance(kind, pa.DataType) else numbers if kind else None
        blocks.append(only(delete_block(T1, SCHEMA, keys, partition, ordering)))
    together = log.decode_deletes(blocks)
    for deletes, block in zip(together, blocks, strict=True):
        assert_frame_equal(deletes, log.decode_deletes([block])[0])
    assert [deletes["record_key"].to_list() for deletes in together] == [keys for keys, _, _ in made]


def test_a_damaged_block_among_others_is_named() -> None:
    good = delete_block(T1, SCHEMA, ["a", "b"], "p", None)
    bad = raw_block(1, {0: T1}, good[good.index(b"\0\0\0\3\0") :][:-13].replace(b"\x02\x02b", b"\x02\x04b"))
    with pytest.raises(FormatError, match=f"damaged delete block.*offset={len(good)}"):
        log.decode_deletes(read_log(good + bad + good, "p/.a_1.log.1_0-0-0"))


def test_deletes_written_in_several_avro_blocks_are_all_read() -> None:
    one = b"\x02\x02a\x02\x00\x00"
    two = b"\x02\x02b\x02\x00\x00"
    body = b"\x02" + one + b"\x01" + b"\x0c" + two + b"\x00"  # a count of -1 is followed by its size
    block = only(raw_block(1, {0: T1}, struct.pack(">ii", 3, len(body)) + body))
    assert decode_deletes(block)["record_key"].to_pylist() == ["a", "b"]


def test_deletes_of_two_ordering_types_are_refused() -> None:
    body = b"\x04" + b"\x02\x02a\x02\x00\x04\x00" + b"\x02\x02b\x02\x00\x06\x00" + b"\x00"
    block = only(raw_block(1, {0: T1}, struct.pack(">ii", 3, len(body)) + body))
    with pytest.raises(UnsupportedFeatureError, match=r"IntWrapper.*LongWrapper.*path=p/"):
        decode_deletes(block)


def test_deletes_with_several_ordering_fields_are_refused() -> None:
    body = b"\x02" + b"\x02\x02a\x02\x00" + b"\x18" + b"\x02\x04\x00" + b"\x00" + b"\x00"
    block = only(raw_block(1, {0: T1}, struct.pack(">ii", 3, len(body)) + body))
    with pytest.raises(UnsupportedFeatureError, match="several ordering fields"):
        decode_deletes(block)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\0\3\0\0\0\5\0", b"\0\0\0\3\0\0\0\2\2\0", b"\0\0\0\3\0\0\0\5\2\0\2\0\0", b"\0\0\0\3\0\0\0\2\0\0"],
)
def test_a_damaged_delete_block_is_a_format_error(content: bytes) -> None:
    with pytest.raises(FormatError, match=r"damaged delete block.*offset=0"):
        decode_deletes(only(raw_block(1, {0: T1}, content)))


# ---- Avro rows -----------------------------------------------------------------------------------------------------


def avro_block(schema: dict[str, object], rows: list[dict[str, object]]) -> LogBlock:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    content = struct.pack(">ii", 3, len(rows))
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        content += struct.pack(">i", len(buffer.getvalue())) + buffer.getvalue()
    return only(raw_block(3, {0: T1, 2: json.dumps(schema)}, content))


def nullable(name: str, type_: object) -> dict[str, object]:
    return {"name": name, "type": ["null", type_], "default": None}


def record(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": list(fields)}


DECIMAL = {
    "type": "fixed",
    "name": "fixed",
    "namespace": "hoodie.t.t_record.d",
    "size": 7,
    "logicalType": "decimal",
    "precision": 15,
    "scale": 2,
}
NESTED = {"type": "record", "name": "n", "fields": [nullable("x", "int"), nullable("y", "string")]}
WIDE = record(
    nullable("s", "string"),
    nullable("i", "int"),
    nullable("l", "long"),
    nullable("f", "float"),
    nullable("b", "bytes"),
    nullable("t", {"type": "long", "logicalType": "timestamp-micros"}),
    nullable("day", {"type": "int", "logicalType": "date"}),
    nullable("d", DECIMAL),
    nullable("a", {"type": "array", "items": ["null", "int"]}),
    nullable("n", NESTED),
    nullable("flag", "boolean"),
)
DECODED = pa.schema(
    {
        "s": pa.string(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "b": pa.binary(),
        "t": pa.timestamp("us", tz="UTC"),
        "day": pa.date32(),
        "d": pa.decimal128(15, 2),
        "a": pa.list_(pa.int32()),
        "n": pa.struct({"x": pa.int32(), "y": pa.string()}),
        "flag": pa.bool_(),
    }
)
ROW: dict[str, object] = {
    "s": "ä",
    "i": -5,
    "l": 2**62,
    "f": 0.5,
    "b": b"\0\1",
    "t": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "day": date(2026, 1, 2),
    "d": decimal.Decimal("-12.34"),
    "a": [1, None],
    "n": {"x": 1, "y": "z"},
    "flag": True,
}
EMPTY_ROW: dict[str, object] = dict.fromkeys(ROW)


def test_avro_rows_come_with_all_their_columns() -> None:
    table = decode_avro(avro_block(WIDE, [ROW, EMPTY_ROW, ROW]))
    assert pl.DataFrame(table).schema == pl.DataFrame(DECODED.empty_table()).schema
    assert table.to_pylist() == [ROW, EMPTY_ROW, ROW]


def test_a_block_without_rows_has_columns() -> None:
    table = decode_avro(avro_block(WIDE, []))
    assert table.num_rows == 0
    assert pl.DataFrame(table).schema == pl.DataFrame(DECODED.empty_table()).schema


def test_maps_are_read_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> pl.DataFrame:
        raise AssertionError("polars panics on maps")

    monkeypatch.setattr(pl, "read_avro", never)
    schema = record(
        nullable("m", {"type": "map", "values": "long"}),
        nullable("in", {"type": "array", "items": {"type": "map", "values": "string"}}),
    )
    rows: list[dict[str, object]] = [{"m": {"a": 1}, "in": [{"k": "v"}]}, {"m": None, "in": None}]
    table = decode_avro(avro_block(schema, rows))
    elements = pa.field("element", pa.map_(pa.string(), pa.string()))
    assert table.schema == pa.schema({"m": pa.map_(pa.string(), pa.int64()), "in": pa.list_(elements)})
    assert table.to_pylist() == [{"m": [("a", 1)], "in": [[("k", "v")]]}, {"m": None, "in": None}]


def test_wide_unions_are_refused_by_name() -> None:
    wide = record({"name": "u", "type": ["null", "int", "string"], "default": None})
    with pytest.raises(UnsupportedFeatureError, match=r"u.*path=p/"):
        decode_avro(avro_block(wide, [{"u": 5}]))


@pytest.mark.parametrize(
    ("content", "schema"),
    [
        (b"", SCHEMA),
        (b"\0\0\0\3\0\0\0\1", SCHEMA),
        (b"\0\0\0\3\0\0\0\1\0\0\0\3\2\2a!", SCHEMA),
        (b"\0\0\0\3\0\0\0\1\0\0\0\4\2\2a", SCHEMA),
        (b"\0\0\0\3\0\0\0\0", "not json"),
        (b"\0\0\0\3\0\0\0\0", ""),
    ],
)
def test_a_damaged_avro_block_is_a_format_error(content: bytes, schema: str) -> None:
    with pytest.raises(FormatError, match=r"damaged Avro log block.*path=p/"):
        decode_avro(only(raw_block(3, {0: T1, 2: schema}, content)))


# ---- Hudi's own files ----------------------------------------------------------------------------------------------


def test_every_log_of_hudis_tables_is_read_and_its_blocks_write_the_same_bytes() -> None:
    kinds: dict[BlockKind, int] = {}
    for name, data in hudi_files(r"^[^/]+/(?!\.hoodie)([^/]+/)?\.[^/]+\.log\.\d+_[^/]*$"):
        again = b""
        for block in read_log(data, name):
            kinds[block.kind] = kinds.get(block.kind, 0) + 1
            headers = {HeaderKey(key): text for key, text in block.headers.items()}
            again += b"".join(log._block(block.kind, headers, bytes(block.content)))
            if block.kind is BlockKind.DELETE:
                deletes = decode_deletes(block)
                assert deletes["ordering"].to_pylist() == [0] * deletes.num_rows  # Spark's natural order
                partition = name.split("/")[1] if name.count("/") == 2 else ""
                ours = delete_block(block.instant, block.schema, deletes["record_key"], partition, deletes["ordering"])
                assert bytes(only(ours).content) == bytes(block.content)
            else:
                rows = decode_avro(block)
                assert set(rows["_hoodie_commit_time"].to_pylist()) == {block.instant}
        assert again == data
    assert kinds[BlockKind.DELETE] >= 8
    assert kinds[BlockKind.AVRO] >= 12


def test_a_parquet_block_is_a_parquet_file() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    assert pl.read_parquet(io.BytesIO(only(parquet_block(T1, SCHEMA, sink.getvalue())).content))["a"].to_list() == [1]
