"""Files joined without encoding anything again: byte for byte what one writer would have written."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.errors import FormatError
from crdt_mor.format import base_file
from crdt_mor.format.base_file import write_parquet
from crdt_mor.format.row_groups import join_row_groups
from crdt_mor.ground.thrift import (
    BINARY,
    BYTE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Items,
    Parts,
    Struct,
    Value,
    decode,
    decode_items,
    encode,
)
from tests.format.helpers import ROWS, STORED

METADATA = {"hoodie_min_record_key": "ä", "parquet.avro.schema": "{}"}


def rows_of_every_type(count: int) -> pa.Table:
    """Values that differ, that repeat and that are null, and a column without statistics."""
    rows = pa.Table.from_pylist([ROWS[i % 2] for i in range(count)], STORED)
    for name in ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"):
        rows = rows.append_column(name, pa.array([str(i) for i in range(count)], pa.string()))
    return rows


def one_writer(
    rows: pa.Table, metadata: dict[str, str], repeating: tuple[str, ...], codec: str | None, row_group_rows: int
) -> bytes:
    """A file whose metadata pyarrow encodes as well."""
    sink = pa.BufferOutputStream()
    options = base_file._options(rows[:row_group_rows], repeating, repeating[:1], codec)  # they depend on the height
    with pq.ParquetWriter(sink, rows.schema, **options) as writer:
        writer.write_table(rows, row_group_size=row_group_rows)
        if metadata:
            writer.add_key_value_metadata(metadata)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.slow
@given(
    st.integers(1, 5),
    st.integers(1, 40),
    st.sampled_from([(), ("s", "i", "_hoodie_commit_time")]),
    st.sampled_from([None, "zstd", "lz4"]),
    st.sampled_from([{}, METADATA]),
)
def test_what_is_joined_is_what_one_writer_writes(
    groups: int, height: int, repeating: tuple[str, ...], codec: str | None, metadata: dict[str, str]
) -> None:
    rows = rows_of_every_type(groups * height)
    pieces = [
        memoryview(one_writer(rows.slice(i * height, height), {"a": "b"}, repeating, codec, height))
        for i in range(groups)
    ]
    whole = one_writer(rows, metadata, repeating, codec, height)
    assert b"".join(join_row_groups(pieces, lambda: metadata)) == whole


def test_row_groups_of_many_pages_keep_their_places() -> None:
    height, groups = 70_000, 3
    values = random.Random(1).choices(range(1 << 60), k=groups * height)
    rows = pa.table({"id": pa.array(map(str, values)), "n": pa.array(values, pa.int64())})
    pieces = [write_parquet(rows.slice(i * height, height), repeating=()) for i in range(groups)]
    data = b"".join(join_row_groups(pieces, dict))
    assert data == bytes(write_parquet(rows, row_group_rows=height, repeating=()))
    assert pq.read_table(pa.BufferReader(data)).equals(rows)


def test_one_file_without_rows_is_a_file_without_rows() -> None:
    empty = write_parquet(rows_of_every_type(0), repeating=())
    assert b"".join(join_row_groups([empty], dict)) == bytes(empty)


structs = st.deferred(
    lambda: st.dictionaries(st.integers(1, 300), values, max_size=6).map(lambda found: dict(sorted(found.items())))
)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
values: st.SearchStrategy[Value] = st.one_of(
    st.builds(Value, st.sampled_from([I16, I32, I64]), numbers),
    st.builds(Value, st.just(BINARY), st.binary(max_size=200)),
    st.builds(Value, st.just(STRUCT), structs),
    st.builds(Value, st.just(LIST), st.builds(Items, st.just(STRUCT), st.lists(structs, max_size=20))),
    st.builds(Value, st.just(LIST), st.builds(Items, st.just(I64), st.lists(numbers, max_size=200))),
    st.builds(Value, st.just(LIST), st.builds(Items, st.just(TRUE), st.lists(st.booleans(), max_size=20))),
    st.builds(Value, st.just(BYTE), st.integers(0, 255)),
    st.booleans().map(lambda true: Value(TRUE if true else TRUE + 1, true)),
)


@pytest.mark.slow
@given(structs)
def test_a_thrift_struct_comes_back(struct: Struct) -> None:
    assert decode(encode(struct)) == struct


@pytest.mark.slow
@given(structs, st.recursive(st.just({}), lambda parts: st.dictionaries(st.integers(0, 40), parts, max_size=8)))
def test_parts_of_a_struct_that_stay_encoded_come_back(struct: Struct, parts: Parts) -> None:
    assert encode(decode(encode(struct), parts)) == encode(struct)


def test_only_parts_are_decoded_and_an_encoded_list_one_struct_at_a_time() -> None:
    column: Struct = {1: Value(STRUCT, {2: Value(I32, 3)}), 4: Value(BINARY, b"name")}
    items = Value(LIST, Items(STRUCT, [column, {}]))
    struct: Struct = {1: items, 2: items, 3: Value(I64, 5)}
    found = decode(encode(struct), {2: {}})
    assert found[1].value == encode({1: items})[1:-1]
    assert found[2].value.values == [column | {1: Value(STRUCT, b"\x25\6\0")}, {}]
    assert found[3] == Value(I64, 5)
    assert list(decode_items(found[1].value)) == [column, {}]
    with pytest.raises(FormatError, match="not a list of Thrift structs"):
        list(decode_items(b"\x15\6"))


@pytest.mark.slow
@given(structs, st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_struct_that_is_cut_short_or_too_long_is_an_error(struct: Struct, at: int, more: bytes) -> None:
    data = encode(struct)
    for damaged in (data[: min(at, len(data) - 1)], data + more):
        with pytest.raises(FormatError, match="Thrift"):
            decode(damaged)


def test_bytes_that_no_footer_has_are_an_error() -> None:
    for data in (b"\x1b\x00\x00", b"\x17" + b"\0" * 9, b"\x18\x7fabc\0"):
        with pytest.raises(FormatError, match="compact protocol"):
            decode(data)
