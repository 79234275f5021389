"""Whatever is written comes back as it was, at every depth of its type, or is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest

from crdt_mor import PartialUpdate, Table
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CrdtMorError, SchemaMismatchError

S, INT64 = pa.string(), pa.int64()
IN_STRUCT = pa.struct([("m", pa.map_(S, pa.int8()))])
DEEP = pa.list_(pa.struct([("m", pa.map_(S, pa.float32()))]))


def entries(*pairs: tuple[str, object], kind: pa.DataType = INT64) -> pa.Array:
    return pa.array([None, [], list(pairs)], pa.map_(S, kind))


# What was written, the declared type, the path of the field whose value would change, and the row.
CHANGED: dict[str, tuple[pa.Array, pa.DataType, str, int]] = {
    "a float in a list": (pa.array([[0.5], [0.1]]), pa.list_(pa.float32()), "c.element", 1),
    "a float in a list, as a half": (pa.array([[0.5], [0.1]]), pa.list_(pa.float16()), "c.element", 1),
    "a float in a struct": (pa.array([{"a": 0.5}, {"a": 0.1}]), pa.struct([("a", pa.float32())]), "c.a", 1),
    "a float in a map": (entries(("k", 0.1), kind=pa.float64()), pa.map_(S, pa.float32()), "c.value", 2),
    "a float, deep inside": (pa.array([[], [{"m": [("k", 0.5)]}, {"m": [("k", 0.1)]}]],
                                      pa.list_(pa.struct([("m", pa.map_(S, pa.float64()))]))),
                             DEEP, "c.element.m.value", 1),
    "a large integer in a list of floats": (pa.array([[2**53 + 1]]), pa.list_(pa.float64()), "c.element", 0),
    "a fraction in a list of integers": (pa.array([[1.0], [1.5]]), pa.list_(pa.int8()), "c.element", 1),
    "an integer out of range": (pa.array([[127], [128]]), pa.list_(pa.int8()), "c.element", 1),
    "a decimal in a list of floats": (pa.array([[Decimal("0.1")]]), pa.list_(pa.float64()), "c.element", 0),
    "a decimal that loses digits": (pa.array([[Decimal("0.10")], [Decimal("0.11")]]), pa.list_(pa.decimal128(5, 1)),
                                    "c.element", 1),
    "nanoseconds in a list": (pa.array([[1000], [1]], pa.list_(pa.timestamp("ns"))), pa.list_(pa.timestamp("ns")),
                              "c.element", 1),
    "a time of day in a list": (pa.array([[86_400_000], [1]], pa.list_(pa.date64())), pa.list_(pa.date64()),
                                "c.element", 1),
    "seconds beyond what microseconds hold": (pa.array([[2**62]], pa.list_(pa.timestamp("s"))),
                                              pa.list_(pa.timestamp("s")), "c.element", 0),
    "bytes of another length": (pa.array([[b"abcd"], [b"abc"]]), pa.list_(pa.binary(4)), "c.element", 1),
    "a list of another length": (pa.array([[1, 2], None, [1, 2, 3]]), pa.list_(pa.int64(), 2), "c", 2),
    "a key twice in a map": (entries(("a", 1), ("b", 2), ("a", 3)), pa.map_(S, pa.int64()), "c", 2),
    "a key twice in a map inside": (pa.array([[[("a", 1)]], [[("a", 1)], [("b", 1), ("b", 1)]]],
                                             pa.list_(pa.map_(S, pa.int32()))), pa.list_(pa.map_(S, pa.int32())),
                                    "c.element", 1),
    "a key twice in a map of a struct": (pa.array([{"m": [("a", 1), ("a", 1)]}], IN_STRUCT), IN_STRUCT, "c.m", 0),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_a_value_that_would_change_is_refused_by_its_path_row_and_value(case: str) -> None:
    written, declared, path, row = CHANGED[case]
    table = TableSchema.of(pa.schema([("c", declared)]))
    for data, shift in ((written, 0), (pa.concat_arrays([written.slice(0, 0), pa.nulls(3, written.type), written]), 3)):
        with pytest.raises(
            SchemaMismatchError, match=rf"cannot hold this value.* column={path} row={row + shift} value"
        ):
            table.normalise(pa.table({"c": data}))
    if row:
        good = table.normalise(pa.table({"c": written.slice(0, row)}))  # what lies outside of the slice is no value
        assert good.num_rows == row


def test_a_new_column_with_such_a_value_is_refused_before_it_is_added(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", pa.schema([("k", S)]), key="k")
    for bad in (entries(("a", 1), ("a", 2)), pa.array([[1]] * 3, pa.list_(pa.timestamp("ns")))):
        with pytest.raises(SchemaMismatchError, match="cannot hold this value"):
            table.upsert(pa.table({"k": ["a", "b", "c"], "new": bad}), schema_mode="merge")
    assert table.schema.names == ["k"]


# --- random types and values ------------------------------------------------------------------------------------------

SCALARS: list[pa.DataType] = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), S, pa.large_string(), pa.binary(), pa.binary(4), pa.date32(), pa.date64(),
    pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"),
    pa.decimal128(5, 2), pa.decimal128(20, 0), pa.decimal128(38, 10), pa.dictionary(pa.int32(), S),
]  # fmt: skip
NUMBERS = [kind for kind in SCALARS if pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)]
TIMES = [kind for kind in SCALARS if pt.is_timestamp(kind)]


def some_type(r: Random, depth: int) -> pa.DataType:
    if depth == 0 or r.random() < 0.3:
        return r.choice(SCALARS)
    inner = some_type(r, depth - 1)
    match r.randrange(5):
        case 0:
            return pa.struct([("a", inner), ("b", some_type(r, depth - 1))])
        case 1:
            return pa.map_(r.choice([S, pa.large_string()]), inner)
        case 2:
            return pa.list_(inner, 2)
        case 3:
            return pa.large_list(inner)
    return pa.list_(inner)


def relative(r: Random, kind: pa.DataType) -> pa.DataType:
    """A type of which some values, or all, are also values of `kind`."""
    if pt.is_struct(kind):
        return pa.struct([(field.name, relative(r, field.type)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, relative(r, kind.item_type))
    if hasattr(kind, "value_field"):
        inner = relative(r, kind.value_type)
        return r.choice([pa.list_(inner), pa.large_list(inner), pa.list_(pa.field("x", inner))])
    if r.random() < 0.4:
        return kind
    if kind in NUMBERS:
        return r.choice(NUMBERS)
    if kind in TIMES:
        return r.choice([other for other in TIMES if (other.tz is None) == (kind.tz is None)])
    return kind


def some_value(r: Random, kind: pa.DataType) -> object:
    """Of the type, often at its edge or just beside what narrower types hold."""
    if r.random() < 0.1:
        return None
    if pt.is_struct(kind):
        return {field.name: some_value(r, field.type) for field in kind}
    if pt.is_map(kind):
        return [(r.choice("abcdefgh"), some_value(r, kind.item_type)) for _ in range(r.choice([0, 1, 1, 2]))]
    if pt.is_fixed_size_list(kind) or hasattr(kind, "value_field"):
        return [some_value(r, kind.value_type) for _ in range(2)]
    if pt.is_dictionary(kind):
        return some_value(r, kind.value_type)
    return r.choice(edges(kind))


def edges(kind: pa.DataType) -> list[Any]:
    if pt.is_boolean(kind):
        return [False, True]
    if pt.is_integer(kind):
        low, high = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        if pt.is_unsigned_integer(kind):
            low, high = 0, 2**kind.bit_width - 1
        return [0, 1, 2, 100, *(n for n in (-1, 128, 2049, 2**24 + 1, 2**53 + 1) if low <= n <= high), low, high]
    if pt.is_floating(kind):
        return [0.0, -0.0, 1.0, 0.5, 2.0, 0.1, 3.0, float("nan"), float("inf"), 1e30 if kind != pa.float16() else 9.0]
    if pt.is_decimal(kind):
        return [Decimal(0), Decimal(1), Decimal(10), Decimal(1).scaleb(-kind.scale), Decimal(99)]
    if pt.is_date32(kind):
        return [-1, 0, 20_000]
    if pt.is_date64(kind):
        return [0, 86_400_000, 86_400_000 * 20_000, 1]
    if pt.is_timestamp(kind):
        return [0, 1, 1000, 1_000_000, 86_400_000_000_000, -1_000_000_000, 2**40]
    if pt.is_fixed_size_binary(kind):
        return [b"\0\0\0\0", b"abcd"]
    return ["", "a", "é\0"] if "string" in str(kind) else [b"", b"\xff\0"]


def exact(value: pa.Scalar) -> object:
    """What a value is, however it is written down: numbers as numbers, moments in nanoseconds, maps without order."""
    kind = value.type
    if not value.is_valid:
        return None
    if pt.is_struct(kind):
        return {name: exact(value[name]) for name in (field.name for field in kind)}
    if pt.is_map(kind):
        keys, items = value.values.flatten()
        return sorted(((exact(key), exact(item)) for key, item in zip(keys, items, strict=True)), key=repr)
    if pt.is_dictionary(kind):
        return exact(value.value)
    if hasattr(kind, "value_field"):
        return [exact(item) for item in value.values]
    if pt.is_timestamp(kind):
        return value.value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
    if pt.is_date(kind):
        return value.value * (86_400_000 if pt.is_date32(kind) else 1)
    found = value.as_py()
    if isinstance(found, float):
        return "nan" if found != found else "-0.0" if str(found) == "-0.0" else found
    return found


def alike(read: object, given: object) -> bool:
    """Whether two answers of `exact` are equal; an integer column has no zero below zero."""
    if isinstance(given, list | tuple) and isinstance(read, list | tuple):
        return len(read) == len(given) and all(map(alike, read, given))
    if isinstance(given, dict) and isinstance(read, dict):
        return read.keys() == given.keys() and all(alike(read[name], given[name]) for name in given)
    return read == given or (given == "-0.0" and isinstance(read, int | Decimal) and read == 0)


def some_array(r: Random, kind: pa.DataType, rows: int) -> pa.Array:
    """Values of a type, as a slice with others around."""
    array = pa.array([some_value(r, kind) for _ in range(rows + 4)], kind)
    return array.slice(2, rows)


def some_batch(seed: int) -> tuple[pa.DataType, pa.ChunkedArray]:
    r = Random(seed)
    while True:
        declared = some_type(r, 3)
        given = declared if r.random() < 0.2 else relative(r, declared)
        try:
            chunks = [some_array(r, given, r.choice([1, 1, 2, 5])) for _ in range(r.choice([1, 2]))]
            return declared, pa.chunked_array(chunks, given)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
            continue  # pyarrow makes no such array of Python's values


@pytest.mark.parametrize("seed", range(10))
def test_values_come_through_the_door_as_they_are_or_not_at_all(seed: int) -> None:
    kept = 0
    for number in range(40):
        declared, data = some_batch(1000 * seed + number)
        schema = TableSchema.of(pa.schema([("c", declared)]))
        try:
            stored = schema.normalise(pa.table({"c": data}))
        except CrdtMorError:
            continue
        kept += 1
        stored.validate(full=True)
        back = schema.restore(stored)["c"]
        assert alike([exact(value) for value in back], [exact(value) for value in data]), (declared, data)
    assert kept


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(4))
def test_values_are_read_as_they_were_written_or_the_write_changes_nothing(fast_path: Path, seed: int) -> None:
    batches = [some_batch(77_000 + 100 * seed + number) for number in range(8)]
    columns = {f"c{number}": declared for number, (declared, _) in enumerate(batches)}
    table = Table.create(fast_path / "t", pa.schema([("k", S), *columns.items()]), key="k", merge=PartialUpdate())
    written: dict[str, dict[str, object]] = {}
    for number, (_, data) in enumerate(batches):
        name, keys = f"c{number}", [f"k{i}" for i in range(len(data))]
        try:
            table.upsert(pa.table({"k": keys, name: data}))
        except CrdtMorError:
            assert table.inspect.timeline()["state"].to_pylist().count("completed") == len(written)
        else:
            written[name] = {key: exact(value) for key, value in zip(keys, data, strict=True)}
    assert written
    for _ in range(2):
        found = table.scan().to_arrow()
        for name, values in written.items():
            read = dict(zip(found["k"].to_pylist(), (exact(value) for value in found[name]), strict=True))
            assert alike({key: read[key] for key in values}, values), (columns[name], name)
        table.maintenance.compact()
