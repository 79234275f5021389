"""Types both ways, the door and the join. `docs/types.md` is the table of types; it is read here."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable
from io import BytesIO
from itertools import permutations

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.columns.kinds import decimal_bytes
from crdt_mor.columns.schema import META_COLUMNS, TableSchema, read_arrow
from crdt_mor.errors import FormatError, InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from tests.model.types_page import REFUSED, SUPPORTED, arrow_type, limits


def one(kind: pa.DataType, nullable: bool = True) -> TableSchema:
    return TableSchema.of(pa.schema([pa.field("c", kind, nullable)]))


def _values(kind: pa.DataType) -> pa.Array:
    def temporal(numbers: list[int | None], inner: pa.DataType) -> pa.Array:
        return pa.array(numbers, pa.int32() if inner == pa.date32() else pa.int64()).cast(inner)

    day = 86_400_000
    if kind == pa.date32():
        return temporal([None, -(2**31), 2**31 - 1], kind)
    if kind == pa.date64():
        return temporal([None, -(2**31) * day, (2**31 - 1) * day], kind)
    if pa.types.is_timestamp(kind):
        per_us = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[kind.unit]
        top = (2**63 - 1) // per_us
        top = top // 1000 * 1000 if kind.unit == "ns" else top
        return temporal([None, -top, top], kind)
    if pa.types.is_struct(kind) and kind.num_fields:
        stamps = _values(pa.timestamp("ms"))
        return pa.StructArray.from_arrays(
            [pa.array([None, -(2**15), 2**15 - 1], pa.int16()), stamps],
            fields=list(kind),
            mask=pa.array([True, False, False]),
        )
    if pa.types.is_dictionary(kind):
        return pa.array([None, *limits(kind)], kind.value_type).cast(kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        return pa.array([None, [], ["a", None]], kind)
    return pa.array([None, *limits(kind)], kind)


def _written_and_read(stored: pa.Table) -> pa.Table:
    sink = BytesIO()
    pq.write_table(stored, sink, store_schema=False)
    return pq.read_table(BytesIO(sink.getvalue()))


def _bare(node: object) -> object:
    """An Avro type without names, namespaces and defaults."""
    if isinstance(node, list):
        return [_bare(part) for part in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _bare(value) for key, value in node.items() if key not in ("namespace", "default", "name")}
    return kept | ({"name": node["name"]} if set(kept) == {"type"} else {})


@pytest.mark.parametrize(("declared", "stored", "avro", "back"), SUPPORTED, ids=lambda text: text)
def test_every_type_of_the_page_goes_both_ways(declared: str, stored: str, avro: str, back: str) -> None:
    kind = arrow_type(declared)
    schema = one(kind)
    data = pa.table({"c": _values(kind)})
    normal = schema.normalise(data)
    assert normal.schema.field("c").type == arrow_type(stored) == schema.stored.field("c").type
    field = json.loads(schema.avro("t"))["fields"][0]
    assert _bare(field["type"]) == ["null", json.loads(avro)]
    read = schema.restore(_written_and_read(normal))
    expected = kind if back == "same" else arrow_type(back)
    assert read.schema.field("c").type == expected == schema.declared.field("c").type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_struct(kind):
        assert str(read.column("c")) == str(data.column("c"))  # beyond Python's own years
    else:
        assert read.column("c").to_pylist() == data.column("c").to_pylist()
    assert TableSchema.from_json(schema.to_json()) == schema
    # What Hudi is told means the same stored type.
    assert TableSchema.from_avro(schema.avro("t")).stored == schema.stored
    assert TableSchema.from_avro(schema.create_avro("t")).stored == schema.stored


@pytest.mark.parametrize(("declared", "instead"), REFUSED, ids=lambda text: text)
def test_every_refused_type_is_named_with_its_column(declared: str, instead: str) -> None:
    kind = arrow_type(declared)
    with pytest.raises(SchemaMismatchError) as error:
        TableSchema.of(pa.schema([pa.field("here", kind)]))
    assert "column=here" in str(error.value)
    assert "type=" in str(error.value)


@pytest.mark.parametrize("name", ["_hoodie_commit_time", "_crdt_x", "a b", "é", "1a", "a-b", "", "a.b"])
def test_names_that_the_table_or_avro_needs_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="rename"):
        TableSchema.of(pa.schema([(name, pa.int8())]))


@pytest.mark.parametrize("name", ["", " ", "a\n", "x" * 256])
def test_a_field_has_a_name_that_people_can_see(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"printable.*column=c\.d field="):
        one(pa.struct([("d", pa.struct([(name, pa.int8())]))]))


def test_fields_that_would_have_one_name_in_files_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"same name in files: rename a field.*Total Sales"):
        one(pa.struct([("Total Sales", pa.int8()), ("Total_Sales_193981af", pa.int8())]))


def test_a_field_of_any_name_has_one_in_files_that_depends_on_no_other_field() -> None:
    inner = pa.struct([("@t", pa.int8()), ("ok", pa.int8())])
    kinds = [pa.struct([("Total Sales", pa.list_(inner))]), pa.struct([("Größe", inner), ("Total Sales", pa.int8())])]
    schemas = [one(kind) for kind in kinds]
    assert [column.type.field("Total_Sales_193981af").name for s in schemas for column in s.stored]
    assert "@t" in schemas[0].to_json()
    assert all(TableSchema.from_json(schema.to_json()) == schema for schema in schemas)
    assert TableSchema.of(schemas[1].stored).stored == schemas[1].stored


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="repeated"):
        TableSchema.of(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


def test_json_keeps_order_nullability_and_item_names() -> None:
    inner = pa.list_(pa.field("element", pa.struct([("x", pa.int8()), ("y", pa.timestamp("ns", "Asia/Tokyo"))])))
    schema = TableSchema.of(
        pa.schema([pa.field("b", pa.int64(), False), pa.field("a", inner), ("d", pa.decimal64(9, 2))])
    )
    text = schema.to_json()
    again = TableSchema.from_json(text)
    assert again == schema
    assert str(again.declared) == str(schema.declared)
    assert "\n" not in text


@pytest.mark.parametrize(
    "text", ["", "{", "[[1]]", '[["a","nothing"]]', '[["a",["list"]]]', '[["a","timestamp[x]"]]', "3"]
)
def test_damaged_json_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError):
        TableSchema.from_json(text)


def test_meta_columns_come_first_in_avro() -> None:
    fields = json.loads(one(pa.int8()).avro_with_meta("t"))["fields"]
    assert [field["name"] for field in fields] == [*META_COLUMNS, "c"]
    assert fields[0] == {"name": "_hoodie_commit_time", "type": ["null", "string"], "doc": "", "default": None}
    assert TableSchema.from_avro(json.dumps({"type": "record", "name": "t", "fields": fields})).declared.names == ["c"]


def test_named_types_in_avro_are_unique() -> None:
    money = pa.decimal128(9, 2)
    nested = pa.struct([("money", money), ("more", pa.list_(pa.struct([("money", money)])))])
    schema = TableSchema.of(
        pa.schema([("money", money), ("a", nested), ("b", nested), ("m", pa.map_(pa.string(), nested))])
    )
    names: list[str] = []

    def collect(node: object) -> None:
        if isinstance(node, dict):
            if node.get("type") in ("record", "fixed"):
                names.append(f"{node['namespace']}.{node['name']}")
            for part in node.values():
                collect(part)
        elif isinstance(node, list):
            for part in node:
                collect(part)

    collect(json.loads(schema.avro("t")))
    assert len(set(names)) == len(names) > 8
    assert "hoodie.t.t_record.money.fixed" in names
    import fastavro

    fastavro.parse_schema(json.loads(schema.avro_with_meta("t")))
    assert TableSchema.from_avro(schema.avro("t")).stored == schema.stored


@given(st.integers(1, 38))
def test_decimals_take_the_fewest_bytes(precision: int) -> None:
    size = decimal_bytes(precision)
    assert 2 ** (8 * size - 1) > 10**precision - 1
    assert size == 1 or 2 ** (8 * (size - 1) - 1) <= 10**precision - 1


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ({"type": "int", "logicalType": "time-millis"}, "time-millis"),
        ({"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}, "duration"),
        (["null", "int", "string"], "union"),
        ("unheard", "unheard"),
        ({"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "r"]}]}, "contains itself"),
    ],
)
def test_avro_types_that_we_lack_are_named(kind: object, what: str) -> None:
    text = json.dumps({"type": "record", "name": "t", "fields": [{"name": "col", "type": kind}]})
    with pytest.raises(UnsupportedFeatureError, match=what) as error:
        TableSchema.from_avro(text)
    assert "column=col" in str(error.value)


def test_avro_types_of_a_newer_hudi_are_refused_in_one_line() -> None:
    inner = [{"name": f"part{n}", "type": ["null", "string"], "doc": "x" * 99} for n in range(9)]
    for kind, word in (
        ({"type": "record", "name": "b", "logicalType": "blob", "fields": inner}, "blob"),
        ({"type": "fixed", "name": "v", "size": 512, "logicalType": "vector", "dimension": 128}, "vector"),
        (["null", {"type": "record", "name": "u", "fields": inner}, "string"], r'\["null'),
    ):
        text = json.dumps({"type": "record", "name": "t", "fields": [{"name": "col", "type": kind}]})
        with pytest.raises(UnsupportedFeatureError, match=f"use Hudi's own reader. column=col type={word}") as error:
            TableSchema.from_avro(text)
        assert len(str(error.value)) < 180


def test_avro_refers_to_named_types() -> None:
    fixed = {
        "type": "fixed",
        "name": "m",
        "namespace": "n",
        "size": 5,
        "logicalType": "decimal",
        "precision": 9,
        "scale": 2,
    }
    fields = [
        {"name": "a", "type": ["null", fixed]},
        {"name": "b", "type": ["null", "n.m"]},
        {"name": "k", "type": "long"},
    ]
    declared = TableSchema.from_avro(json.dumps({"type": "record", "name": "t", "fields": fields})).declared
    assert declared.field("b").type == pa.decimal128(9, 2)
    assert [field.nullable for field in declared] == [True, True, False]


@pytest.mark.parametrize("text", ["", "[]", '"int"', '{"type":"record"}', '{"type":"record","name":"a","fields":[1]}'])
def test_damaged_avro_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError):
        TableSchema.from_avro(text)


# --- the door -----------------------------------------------------------------------------------------------------


def _array(values: list[object], kind: pa.DataType, via: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, via or kind).cast(kind) if via else pa.array(values, kind)


@pytest.mark.parametrize(
    ("column", "data", "row", "value"),
    [
        (pa.timestamp("us"), _array([None, 1000, 1001], pa.timestamp("ns"), pa.int64()), 2, "000001001"),
        (pa.timestamp("us"), _array([0, 2**62], pa.timestamp("s"), pa.int64()), 1, "4611686018427387904"),
        (pa.int8(), pa.array([1, None, 300, -300]), None, "300"),
        (pa.uint8(), pa.array([1, -1]), 1, "-1"),
        (pa.int32(), pa.array([2**31 - 1, 2**31]), 1, "2147483648"),
        (pa.uint64(), pa.array([1, -1]), 1, "-1"),
        (pa.int64(), pa.array([1.0, 1.5]), 1, "1.5"),
        (pa.int64(), pa.array([1.0, float("nan")]), 1, "nan"),
        (pa.float64(), pa.array([1, 2**53 + 1]), 1, "9007199254740993"),
        (pa.float32(), pa.array([None, 0.5, 0.1]), 2, "0.1"),
        (pa.float16(), pa.array([1.0, 70000.0], pa.float32()), 1, "70000"),
        (pa.decimal128(5, 2), pa.array([decimal.Decimal("1.25"), decimal.Decimal("1.255")]), 1, "1.255"),
        (pa.decimal128(5, 2), pa.array([1, 1000]), 1, "1000"),
        (pa.date64(), _array([86_400_000, 86_400_001], pa.date64(), pa.int64()), 1, "1970"),
        (pa.date64(), _array([86_400_000, 86_400_001], pa.timestamp("ms"), pa.int64()), 1, "1970"),
        (pa.date64(), _array([86_400_000_000, 1], pa.timestamp("us"), pa.int64()), 1, "1970"),
        (pa.binary(2), pa.array([b"ab", b"a"]), 1, "b'a'"),
        (pa.time64("us"), _array([None, 1000, 1001], pa.time64("ns"), pa.int64()), 2, "1001"),
        (
            pa.time32("s"),
            pa.array([dt.time(1), dt.time(1, 0, 0, 1000)], pa.time32("ms")),
            1,
            "01:00:00.001",
        ),
        (
            pa.list_(pa.time32("s")),
            pa.array([[1001]]).cast(pa.list_(pa.time64("ns"))),
            0,
            "[datetime.time(0, 0, 0, 1)]",
        ),
        (pa.list_(pa.int8()), pa.array([[1], [1, 300]]), 1, "300"),
        (pa.list_(pa.int8(), 2), pa.array([[1, 2], [1]]), 1, "[1]"),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_refused_by_column_row_and_value(
    column: pa.DataType, data: pa.Array, row: int | None, value: str
) -> None:
    with pytest.raises(SchemaMismatchError) as error:
        one(column).normalise(pa.table({"c": data}))
    assert "column=c" in str(error.value)
    assert row is None or f"row={row}" in str(error.value)
    assert value in str(error.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "Europe", "../UTC", "+25:00", "+2", "utc+2", " "])
def test_a_time_zone_that_does_not_exist_is_refused(zone: str) -> None:
    inner = pa.list_(pa.timestamp("us", zone))
    for kind in (inner.value_type, inner):
        with pytest.raises(InvalidInputError, match=r"no such time zone.* column=c "):
            one(kind)


def test_time_zones_are_names_or_distances_and_old_tables_keep_what_they_have() -> None:
    for zone in ("UTC", "Europe/Berlin", "+05:30", "-11:00"):
        assert one(pa.timestamp("us", zone)).declared.field("c").type.tz == zone
    assert TableSchema.from_json('[["c","timestamp[us, Mars/Olympus]"]]').declared.field("c").type.tz == "Mars/Olympus"


def test_without_a_database_of_time_zones_every_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.columns.kinds_times._has_zone", lambda _: False)
    assert one(pa.timestamp("us", "Mars/Olympus")).declared.field("c").type.tz == "Mars/Olympus"


@pytest.mark.parametrize(
    ("column", "data"),
    [
        (pa.string(), pa.array([1])),
        (pa.int64(), pa.array(["1"])),
        (pa.int64(), pa.array([True])),
        (pa.timestamp("us"), pa.array([0]).cast(pa.timestamp("us", "UTC"))),
        (pa.timestamp("us", "UTC"), pa.array([0]).cast(pa.timestamp("us"))),
        (pa.date32(), pa.array([0]).cast(pa.timestamp("us"))),
        (pa.decimal128(5, 2), pa.array([1.5])),
        (pa.float64(), pa.array([decimal.Decimal("1.5")])),
        (pa.list_(pa.int8()), pa.array([1])),
        (pa.struct([("a", pa.int8())]), pa.array([{"b": 1}])),
        (pa.string(), pa.array([b"\xff"])),
        (pa.string(), pa.array([0]).cast(pa.time64("us"))),
        (pa.time64("us"), pa.array([0])),
        (pa.int64(), pa.array([0]).cast(pa.time64("us"))),
        (pa.time64("us"), pa.array([0]).cast(pa.timestamp("us"))),
        (pa.list_(pa.time64("us")), pa.array([[0]])),
    ],
    ids=str,
)
def test_data_of_another_kind_is_refused_with_both_types(column: pa.DataType, data: pa.Array) -> None:
    with pytest.raises(SchemaMismatchError) as error:
        one(column).normalise(pa.table({"c": data}))
    assert "column=c" in str(error.value)
    assert f"type={data.type}" in str(error.value)


@pytest.mark.parametrize(
    ("column", "data"),
    [
        (pa.int64(), pa.array([1, None], pa.int32())),
        (pa.int8(), pa.array([-128, 127], pa.int64())),
        (pa.int64(), pa.array([1.0, None])),
        (pa.float64(), pa.array([1, 2**53])),
        (pa.float32(), pa.array([0.5, float("nan"), float("inf")])),
        (pa.string(), pa.array(["a", None], pa.string_view())),
        (pa.string(), pa.array(["a", None]).dictionary_encode()),
        (pa.dictionary(pa.int32(), pa.string()), pa.array(["a", None], pa.large_string())),
        (pa.string(), pa.nulls(2)),
        (pa.list_(pa.int64()), pa.array([[None], None], pa.list_(pa.null()))),
        (pa.uint64(), pa.array([1, 2])),
        (pa.decimal128(5, 2), pa.array([999, -999])),
        (pa.struct([("a", pa.int8())]), pa.nulls(1)),
        (pa.time32("s"), pa.array([dt.time(1, 2, 3), None], pa.time64("ns"))),
        (pa.time64("ns"), pa.array([dt.time(1, 2, 3), None], pa.time32("s"))),
        (pa.string(), pa.array(['{"a": 1}', None], pa.json_())),
        (pa.large_string(), pa.array(["1", None], pa.json_(pa.string_view()))),
    ],
    ids=str,
)
def test_data_that_means_the_same_is_taken(column: pa.DataType, data: pa.Array) -> None:
    schema = one(column)
    normal = schema.normalise(pa.table({"c": data}))
    assert normal.schema == schema.stored
    back = schema.restore(normal).column("c").to_pylist()
    assert back == data.to_pylist() or str(back) == str([None if v is None else float(v) for v in data.to_pylist()])


def test_the_first_bad_row_is_found_across_chunks() -> None:
    chunks = pa.chunked_array([pa.array([1] * 100), pa.array([1] * 33 + [999] + [1] * 50 + [999])])
    with pytest.raises(SchemaMismatchError, match="row=133 value=999"):
        one(pa.int8()).normalise(pa.table({"c": chunks}))


def test_a_null_where_none_may_be_is_refused_by_row() -> None:
    with pytest.raises(SchemaMismatchError, match="column=c row=1"):
        one(pa.int64(), nullable=False).normalise(pa.table({"c": pa.array([1, None])}))


def test_an_unknown_column_is_named_with_the_known_ones_and_the_way_out() -> None:
    with pytest.raises(SchemaMismatchError, match=r'schema_mode="merge".*unknown=\[\'d\'\] known=\[\'c\'\]'):
        one(pa.int64()).normalise(pa.table({"c": [1], "d": [1]}))
    with pytest.raises(SchemaMismatchError, match="own columns"):
        one(pa.int64()).normalise(pa.table({"c": [1], "_hoodie_record_key": ["1"]}))


def test_a_subset_comes_out_in_the_tables_order() -> None:
    schema = TableSchema.of(pa.schema([("a", pa.int8()), ("b", pa.int8()), ("c", pa.int8())]))
    assert schema.normalise(pa.table({"c": [1], "a": [2]})).column_names == ["a", "c"]
    assert schema.normalise(pa.table({"c": pa.array([], pa.int8())})).num_rows == 0
    assert schema.select(["_hoodie_file_name", "c", "a"]).declared.names == ["c", "a"]


def test_restore_takes_any_order_views_and_meta_columns() -> None:
    schema = TableSchema.of(pa.schema([pa.field("a", pa.int8(), False), ("b", pa.large_string())]))
    rows = pa.table(
        {
            "b": pa.array(["x"], pa.string_view()),
            "_hoodie_record_key": pa.array(["1"], pa.string_view()),
            "a": pa.array([1], pa.int32()),
        }
    )
    back = schema.restore(rows)
    assert back.schema == pa.schema(
        [("b", pa.large_string()), ("_hoodie_record_key", pa.string()), pa.field("a", pa.int8(), False)]
    )


# --- the join -----------------------------------------------------------------------------------------------------

_NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
]
_OTHERS = [
    pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.binary(), pa.binary(3),
    pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("s", "Asia/Tokyo"),
    pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.time64("ns"),
    pa.uint64(), pa.decimal128(20, 0), pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal128(38, 20), pa.bool_(),
    pa.decimal128(6, 3), pa.decimal128(36, 0), pa.list_(pa.decimal128(6, 2)), pa.decimal256(38, 37),
    pa.list_(pa.int8()), pa.large_list(pa.int16()), pa.list_(pa.field("element", pa.int8())), pa.list_(pa.int64()),
    pa.struct([("x", pa.int8())]), pa.struct([("x", pa.uint8())]), pa.map_(pa.string(), pa.int8()),
    pa.struct([("y", pa.string()), ("x", pa.int64())]), pa.list_(pa.struct([("x", pa.int8()), ("z", pa.int8())])),
    pa.list_(pa.struct([("y", pa.string()), ("x", pa.float32())])),
    pa.map_(pa.large_string(), pa.int8()),
    pa.list_(pa.timestamp("ms")), pa.list_(pa.timestamp("ms", "UTC")),
]  # fmt: skip
_SCHEMAS = st.dictionaries(
    st.sampled_from("abc"), st.tuples(st.sampled_from(_NUMBERS) | st.sampled_from(_OTHERS), st.booleans()), max_size=3
).map(
    lambda columns: TableSchema(
        pa.schema([pa.field(name, kind, nullable) for name, (kind, nullable) in columns.items()])
    )
)


def _joined(*schemas: TableSchema) -> dict[str, str] | None:
    result = schemas[0]
    try:
        for schema in schemas[1:]:
            result = result.join(schema)
    except SchemaMismatchError:
        return None
    return {column.name: f"{_ordered(column.type)} {column.nullable}" for column in result.declared}


def _ordered(kind: pa.DataType) -> pa.DataType:
    """A type with the fields of structs in the order of their names: in which one they stand means nothing."""
    if pa.types.is_struct(kind):
        return pa.struct(sorted((pa.field(f.name, _ordered(f.type)) for f in kind), key=lambda f: f.name))
    return pa.list_(kind.value_field.with_type(_ordered(kind.value_type))) if pa.types.is_list(kind) else kind


@given(_SCHEMAS, _SCHEMAS, _SCHEMAS)
def test_the_join_is_a_semilattice(a: TableSchema, b: TableSchema, c: TableSchema) -> None:
    assert a.join(a) == a
    assert (
        len({str(sorted(d.items()) if (d := _joined(*order)) is not None else d) for order in permutations((a, b, c))})
        == 1
    )
    if (both := _joined(a, b)) is not None:
        joined = a.join(b)
        assert _joined(joined, a) == both
        assert a.join(b.join(joined)).declared.equals(joined.declared)


_DECIMALS = st.integers(1, 38).flatmap(lambda digits: st.builds(pa.decimal128, st.just(digits), st.integers(0, digits)))
_EXACT = st.sampled_from([*_NUMBERS, pa.uint64()]) | _DECIMALS


@given(_EXACT, _EXACT, _EXACT)
def test_join_of_numbers_holds_all_values_in_any_order(a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
    joined = {str(_joined(*map(one, order))) for order in permutations((a, b, c))}
    assert len(joined) == 1
    both = _joined(one(a), one(b))
    if both is None:
        return
    wide = one(a).join(one(b))
    for kind in (a, b):
        values = pa.table({"c": pa.array(limits(kind)[:2], kind)})
        old, new = (pl.DataFrame(schema.normalise(values)) for schema in (one(kind), wide))
        assert old.cast(new.schema).equals(new), "a scan of old files casts them"
        assert wide.join(one(kind)) == wide


@pytest.mark.slow
def test_the_join_of_every_three_types_does_not_depend_on_the_order() -> None:
    kinds = _NUMBERS[2:] + _OTHERS[::2]
    for a in kinds:
        for b in kinds:
            for c in kinds:
                one_way, other = _joined(one(a), one(b), one(c)), _joined(one(c), one(b), one(a))
                assert one_way == other, (a, b, c)


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int8(), pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int8(), pa.int32()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int8(), pa.float16(), pa.float64()),
        (pa.int64(), pa.float64(), None),
        (pa.int64(), pa.float32(), None),
        (pa.uint32(), pa.float64(), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us")),
        (pa.time32("s"), pa.time32("ms"), pa.time64("us")),
        (pa.time64("ns"), pa.time64("us"), pa.time64("us")),
        (pa.time64("us"), pa.int64(), None),
        (pa.time64("us"), pa.timestamp("us"), None),
        (pa.string(), pa.binary(), None),
        (pa.decimal128(6, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.decimal128(6, 2), pa.decimal128(6, 3), pa.decimal128(7, 3)),
        (pa.decimal128(12, 2), pa.decimal128(10, 4), pa.decimal128(14, 4)),
        (pa.decimal128(10, 0), pa.decimal64(12, 2), pa.decimal128(12, 2)),
        (pa.decimal128(38, 0), pa.decimal128(38, 1), None),
        (pa.int8(), pa.decimal128(6, 2), pa.decimal128(12, 2)),
        (pa.uint32(), pa.decimal128(6, 2), pa.decimal128(21, 2)),
        (pa.uint64(), pa.decimal128(6, 2), pa.decimal128(22, 2)),
        (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.int64(), pa.decimal128(38, 20), None),
        (pa.float64(), pa.decimal128(6, 2), None),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.date32(), pa.timestamp("us", "UTC"), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), None),
    ],
    ids=str,
)
def test_only_exact_widenings_join(left: pa.DataType, right: pa.DataType, joined: pa.DataType | None) -> None:
    if joined is not None:
        assert one(left).join(one(right)).declared.field("c").type == joined
        return
    with pytest.raises(SchemaMismatchError) as error:
        one(left).join(one(right))
    assert "column=c" in str(error.value)
    assert f"left={left} right={right}" in str(error.value)


VIEWS = [(pa.string_view(), pa.string()), (pa.binary_view(), pa.binary())]
DEPTHS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "column": lambda kind: kind,
    "list": pa.list_,
    "large_list": pa.large_list,
    "fixed_size_list": lambda kind: pa.list_(kind, 2),
    "struct": lambda kind: pa.struct([("a", kind), ("b", pa.int64())]),
    "map": lambda kind: pa.map_(pa.string(), kind),
    "dictionary": lambda kind: pa.dictionary(pa.int32(), kind),
    "deep": lambda kind: pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.large_list(kind)))])),
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("view", "plain"), VIEWS, ids=str)
def test_a_new_column_has_text_where_the_batch_has_a_view_of_it(
    depth: str, view: pa.DataType, plain: pa.DataType
) -> None:
    build, table = DEPTHS[depth], TableSchema.of(pa.schema([("k", pa.int64())]))
    batch = pa.schema([("k", pa.int64()), ("new", build(view))])
    grown = table.grow(batch)
    assert grown == table.grow(pa.schema([("new", build(plain))]))
    assert grown.declared.field("new").type == TableSchema.of(pa.schema([("new", build(plain))])).declared.field(0).type
    assert grown.grow(batch) == grown, "a later batch of the same library fits"


def test_other_types_of_new_columns_stay_what_they_are() -> None:
    kinds = [pa.large_string(), pa.large_binary(), pa.large_list(pa.large_string()), pa.string(), pa.list_(pa.string())]
    table = TableSchema.of(pa.schema([("k", pa.int64())]))
    added = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])
    assert table.grow(added).declared.types == [pa.int64(), *kinds]
    assert table.grow(pa.schema([("m", pa.map_(pa.string_view(), pa.int8()))])).declared.field("m").type == pa.map_(
        pa.string(), pa.int8()
    )


@given(st.data())
def test_growing_takes_the_batch_and_changes_as_little_as_it_can(data: st.DataObject) -> None:
    mine, theirs = (data.draw(st.sampled_from(_NUMBERS)) for _ in range(2))
    table = TableSchema.of(pa.schema([pa.field("c", mine, False), pa.field("k", pa.int64(), False)]))
    try:
        grown = table.grow(pa.schema([("c", theirs), ("new", pa.int8()), ("void", pa.null())]))
    except SchemaMismatchError:
        assert _joined(one(mine), one(theirs)) is None
        return
    assert grown.declared.names == ["c", "k", "new"]
    assert [column.nullable for column in grown.declared] == [False, False, True]
    assert grown.declared.field("k").type == pa.int64()
    values = pa.array(limits(theirs)[:2], theirs)
    assert grown.normalise(pa.table({"c": values})).num_rows == 2
    assert grown.grow(pa.schema([("c", theirs)])) == grown
    assert table.grow(table.declared) == table


# --- what users hold their rows in ----------------------------------------------------------------------------------


class _Stream:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class _Array:
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return pa.record_batch({"a": [1, 2]}).__arrow_c_array__(requested_schema)


def test_rows_are_read_from_whatever_holds_them() -> None:
    import duckdb
    import pandas as pd

    table = pa.table({"a": [1, 2]})
    shapes = [
        table, table.to_batches()[0], table.to_reader(), _Stream(table), _Array(),
        pl.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]}), duckdb.sql("select unnest([1, 2]) as a"),
    ]  # fmt: skip
    for shape in shapes:
        assert read_arrow(shape).to_pydict() == {"a": [1, 2]}, type(shape)


def test_a_named_pandas_index_is_a_column_and_a_nameless_one_is_not() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2, 3]})
    assert read_arrow(frame.iloc[[2, 0]]).to_pydict() == {"a": [3, 1]}
    assert sorted(read_arrow(frame.set_index(pd.Index([7, 8, 9], name="id"))).column_names) == ["a", "id"]


@pytest.mark.parametrize(
    "shape",
    [[{"a": 1}], {"a": [1]}, None, "text", pa.array([1]), pa.chunked_array([[1]])],
    ids=["rows", "dict", "none", "text", "array", "chunked"],
)
def test_what_is_not_a_table_is_refused_by_type(shape: object) -> None:
    with pytest.raises(InvalidInputError, match=f"type={type(shape).__name__}"):
        read_arrow(shape)


def test_a_lazy_frame_asks_to_be_collected() -> None:
    with pytest.raises(InvalidInputError, match=r"call collect\(\)"):
        read_arrow(pl.LazyFrame({"a": [1]}))
