"""Columns whose type widens: old base files, old logs and running writes keep their rows, in all reads."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Rules, Table
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import ConstraintViolationError, InvalidInputError, SchemaMismatchError
from crdt_mor.merge.blocks import Columns
from crdt_mor.payloads import Counter, Last, LatestBy, Max, PartialUpdate
from crdt_mor.read.pushdown import parquet_form
from crdt_mor.read.row_groups import not_ruled_out
from tests.table.helpers import Place, rows

D = Decimal


class Case(NamedTuple):
    narrow: pa.DataType
    old: tuple[Any, Any]
    wide: pa.DataType
    new: Any
    joined: pa.DataType


def decimal(digits: int, scale: int) -> pa.DataType:
    return pa.decimal128(digits, scale)


OLD = (D("12.34"), D("-9999.99"))
INNER = pa.struct([("a", pa.int32()), ("b", decimal(6, 2))])
WIDER = pa.struct([("b", decimal(9, 4)), ("a", decimal(12, 2))])
CASES = {
    "more digits": Case(decimal(6, 2), OLD, decimal(12, 2), D("1234567890.12"), decimal(12, 2)),
    "many more digits": Case(decimal(6, 2), OLD, decimal(38, 2), D("1234567890.12"), decimal(38, 2)),
    "a greater scale": Case(decimal(6, 2), OLD, decimal(6, 3), D("1.234"), decimal(7, 3)),
    "both": Case(decimal(10, 0), (D(12), D(-9999999999)), decimal(12, 2), D("1.25"), decimal(12, 2)),
    "another width": Case(pa.decimal32(6, 2), OLD, pa.decimal64(12, 4), D("1.2345"), decimal(12, 4)),
    "int to decimal": Case(pa.int32(), (12, -(2**31)), decimal(12, 2), D("1.25"), decimal(12, 2)),
    "small int to decimal": Case(pa.int8(), (12, -128), decimal(4, 2), D("1.25"), decimal(12, 2)),
    "long to decimal": Case(pa.int64(), (12, -(2**63)), decimal(21, 2), D("1.25"), decimal(21, 2)),
    "long beside unsigned": Case(pa.int64(), (12, -(2**63)), pa.uint64(), 2**64 - 1, decimal(20, 0)),
    "unsigned to decimal": Case(pa.uint64(), (12, 2**64 - 1), decimal(4, 2), D("1.25"), decimal(22, 2)),
    "in a list": Case(pa.list_(decimal(6, 2)), ([OLD[0], None], []), pa.list_(decimal(9, 4)), [D("1.2345")],
                      pa.list_(decimal(9, 4))),
    "in a struct": Case(INNER, ({"a": 5, "b": OLD[0]}, {"a": None, "b": None}), WIDER,
                        {"b": D("1.2345"), "a": D("0.5")}, pa.struct([("a", decimal(12, 2)), ("b", decimal(9, 4))])),
    "in a map": Case(pa.map_(pa.string(), pa.int32()), ([("k", 5)], [("k", None)]), pa.map_(pa.string(), decimal(4, 2)),
                     [("k", D("1.25"))], pa.map_(pa.string(), decimal(12, 2))),
    "float to double": Case(pa.float32(), (0.5, -2.5), pa.float64(), 0.1, pa.float64()),
}  # fmt: skip
FLAT = [name for name, case in CASES.items() if not pa.types.is_nested(case.narrow)]


def given(kind: pa.DataType, *pairs: tuple[int, Any]) -> pa.Table:
    ids, values = zip(*pairs, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array(values, kind)})


def made(place: Place, case: Case, **settings: Any) -> Table:
    """Two rows in base files, one of them again in a log, beside rows without a value."""
    schema = pa.schema([("id", pa.int64()), ("x", case.narrow)])
    table = place.create(schema=schema, **{"key": "id", **settings})
    one, other = case.old
    table.upsert(given(case.narrow, (1, one), (2, other), (3, None)))
    table.maintenance.compact()
    table.upsert(given(case.narrow, (2, one), (4, other)))
    return table


def seen(table: Table, **scan: Any) -> dict[Any, Any]:
    return {row[0]: row[1] for row in rows(table, "id", "x", **scan)}


def before(case: Case) -> dict[int, Any]:
    one, other = case.old
    return {1: one, 2: one, 3: None, 4: other}


@pytest.mark.parametrize("name", CASES)
def test_old_rows_have_the_wider_type_in_every_read(place: Place, name: str) -> None:
    case = CASES[name]
    table = made(place, case)
    old = table.version
    table.upsert(given(case.wide, (5, case.new)), schema_mode="merge")
    assert table.schema.field("x").type == case.joined
    after = {**before(case), 5: case.new}
    for _ in range(3):  # base files and logs; compacted; read by another process
        assert seen(table) == after
        assert seen(table, as_of=old) == before(case)
        assert table.verify(deep=True).findings == ()
        table.maintenance.compact()
        table = place.open()
    assert table.to_polars().height == 5


@pytest.mark.parametrize("name", CASES)
def test_compaction_without_new_rows_has_the_wider_type(place: Place, name: str) -> None:
    case = CASES[name]
    table = made(place, case)
    table.alter(widen={"x": case.wide})
    assert table.schema.field("x").type == case.joined
    assert seen(table) == before(case)
    table.maintenance.compact()
    assert seen(table) == before(case)
    assert table.verify(deep=True).findings == ()
    version = table.version
    table.alter(widen={"x": case.wide})
    table.alter(widen={"x": case.narrow})
    assert table.version == version, "the column holds both already"


@pytest.mark.parametrize("name", FLAT)
def test_filters_skip_no_old_rows(place: Place, name: str) -> None:
    case = CASES[name]
    table = made(place, case, cluster_by="x")
    table.upsert(given(case.wide, (5, case.new)), schema_mode="merge")
    for _ in range(2):
        after = {**before(case), 5: case.new}
        for value in {v for v in after.values() if v is not None}:
            literal = pl.lit(value)
            assert seen(table, filter=pl.col("x") == literal) == {i: v for i, v in after.items() if v == value}
            assert seen(table, filter=pl.col("x") >= literal) == {
                i: v for i, v in after.items() if v is not None and v >= value
            }
            assert seen(table, filter=pl.col("x") < literal) == {
                i: v for i, v in after.items() if v is not None and v < value
            }
            assert table.scan(filter=f"x = {value}").count() == sum(v == value for v in after.values())
        table.maintenance.compact()


SETTINGS: dict[str, dict[str, Any]] = {
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "payload": {"merge": {"n": Max()}},
    "partitioned": {"partition_by": "n", "key": ["id", "n"]},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_old_rows_have_the_wider_type_under_each_merge(place: Place, settings: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("n", pa.int64())])
    table = place.create(schema=schema, **{"key": "id", **SETTINGS[settings]})
    table.upsert(pa.table({"id": [1, 2, 3], "x": [1, 2, 3], "n": [1, 1, 1]}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": [2, 4], "x": [5, 6], "n": [1, 1]}, schema))
    wide = schema.set(1, pa.field("x", decimal(4, 2)))
    table.upsert(pa.table({"id": [3, 5], "x": [D("0.25"), D("0.75")], "n": [1, 1]}, wide), schema_mode="merge")
    table.delete(where="id = 4")
    expected = {1: D(1), 2: D(5), 3: D("0.25"), 5: D("0.75")}
    for _ in range(2):
        assert seen(table) == expected
        assert seen(table, filter="x < 1") == {3: D("0.25"), 5: D("0.75")}
        table.maintenance.compact()
    assert table.verify(deep=True).findings == ()


@pytest.mark.parametrize("name", FLAT)
def test_statistics_of_old_files_rule_out_no_matching_row_group(name: str) -> None:
    case, content = CASES[name], BytesIO()
    old, new = (TableSchema.of(pa.schema([("x", kind)])) for kind in (case.narrow, case.joined))
    values = sorted(case.old)
    pq.write_table(old.normalise(pa.table({"x": pa.array(values, case.narrow)})), content, row_group_size=1)
    footer, types = pq.read_metadata(content), Columns.of(new.stored).schema
    skipped = 0
    for value in (*values, case.new):
        for condition, expected in (
            (pl.col("x") == value, [v == value for v in values]),
            (pl.col("x") < value, [v < value for v in values]),
            (pl.col("x") >= value, [v >= value for v in values]),
        ):
            kept = not_ruled_out(footer, parquet_form(condition, new), types)
            assert {*kept} >= {group for group, matches in enumerate(expected) if matches}
            skipped += len(values) - len(kept)
    assert skipped, "statistics serve"


@pytest.mark.parametrize("name", CASES)
def test_changes_and_history_of_a_row_cross_the_widening(place: Place, name: str) -> None:
    case = CASES[name]
    table = made(place, case)
    start = table.version
    table.upsert(given(case.wide, (1, case.new)), schema_mode="merge")
    table.upsert(given(case.wide, (2, case.new)))
    found = table.changes(since=start).to_arrow()
    assert found.schema.field("x").type == case.joined
    assert sorted(zip(found["id"].to_pylist(), found["x"].to_pylist(), strict=True)) == [(1, case.new), (2, case.new)]
    images = table.changes(since=start, images=True).to_arrow()
    assert all(value in (case.old[0], case.new) for value in images["x"].to_pylist())
    assert images.num_rows == 4
    assert table.diff(start, table.version).to_arrow().num_rows
    told = table.why(1)
    assert [row["effect"] for row in told.to_pylist()][-1] == "updated"


# --- beside other writers ---------------------------------------------------------------------------------------------

NARROW, WIDE, DEEP = decimal(6, 2), decimal(12, 2), decimal(10, 4)
NARROW_SCHEMA = pa.schema([("id", pa.int64()), ("x", NARROW)])


def empty(place: Place, **settings: Any) -> Table:
    return place.create(schema=NARROW_SCHEMA, **{"key": "id", **settings})


@pytest.mark.parametrize("compacts", [False, True])
def test_rows_of_writers_that_began_before_the_widening_arrive(place: Place, compacts: bool) -> None:
    table, other = empty(place), place.open()
    job = other.jobs.plan("upsert", NARROW_SCHEMA)
    early = job.stage(given(NARROW, (1, D("1.25"))), task=0)
    with other.transaction() as tx:
        tx.upsert(given(NARROW, (2, D("2.25"))))
        table.upsert(given(decimal(6, 3), (3, D("3.125"))), schema_mode="merge")
        if compacts:
            table.maintenance.compact()
        tx.upsert(given(NARROW, (4, D("4.25"))))
        assert tx.scan().schema.field("x").type == NARROW
    late = job.stage(given(NARROW, (5, D("5.25"))), task=1)
    other.jobs.complete(job, [early, late])
    expected = {1: D("1.25"), 2: D("2.25"), 3: D("3.125"), 4: D("4.25"), 5: D("5.25")}
    assert table.schema.field("x").type == decimal(7, 3)
    assert seen(table) == seen(place.open()) == expected
    table.maintenance.compact()
    assert seen(table) == expected
    assert table.verify(deep=True).findings == ()


@pytest.mark.parametrize("turns", [(0, 1), (1, 0)])
def test_two_writers_that_widen_differently_get_the_type_of_both(place: Place, turns: tuple[int, int]) -> None:
    table = empty(place)
    writers = [place.open().transaction() for _ in range(2)]
    begun = [writer.__enter__() for writer in writers]
    begun[0].upsert(given(WIDE, (1, D("1234567890.12")), (3, D("0.12"))), schema_mode="merge")
    begun[1].upsert(given(DEEP, (2, D("123456.1234")), (3, D("0.1234"))), schema_mode="merge")
    for turn in turns:
        writers[turn].__exit__(None, None, None)
    assert table.schema.field("x").type == decimal(14, 4)
    expected = {1: D("1234567890.12"), 2: D("123456.1234"), 3: D("0.1234")}
    assert seen(table) == expected, "the later begin wins"
    table.maintenance.compact()
    assert seen(table) == expected
    assert table.verify(deep=True).findings == ()


def test_statements_of_one_transaction_widen_each_other(place: Place) -> None:
    table = empty(place)
    with table.transaction() as tx:
        tx.upsert(given(NARROW, (1, D("1.25"))))
        tx.upsert(given(DEEP, (2, D("2.1234"))), schema_mode="merge")
        tx.upsert(given(WIDE, (3, D("1234567890.12"))), schema_mode="merge")
    assert table.schema.field("x").type == decimal(14, 4)
    assert seen(table) == {1: D("1.25"), 2: D("2.1234"), 3: D("1234567890.12")}


def test_update_and_merge_compute_with_old_rows(place: Place) -> None:
    table = empty(place)
    table.upsert(given(NARROW, (1, D("1.25")), (2, D("2.25"))))
    table.maintenance.compact()
    table.alter(widen={"x": DEEP})
    table.update({"x": "x + 0.1234"}, where="x < 2")
    assert seen(table) == {1: D("1.3734"), 2: D("2.25")}
    source = given(DEEP, (2, D("0.0001")), (3, D("0.0003")))
    merge = table.merge(source, on="id").when_matched_update({"x": "target.x + source.x"})
    merge.when_not_matched_insert_all().execute()
    assert seen(table) == {1: D("1.3734"), 2: D("2.2501"), 3: D("0.0003")}


# --- narrower input, and what does not widen --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["strict", "merge"])
@pytest.mark.parametrize(
    ("column", "data", "expected"),
    [
        (decimal(6, 2), pa.array([D("12.34")], decimal(4, 2)), D("12.34")),
        (decimal(12, 2), pa.array([12], pa.int32()), D("12.00")),
        (decimal(21, 2), pa.array([-(2**63)], pa.int64()), D(-(2**63))),
        (decimal(20, 0), pa.array([2**64 - 1], pa.uint64()), D(2**64 - 1)),
        (pa.timestamp("us"), pa.array([date(2020, 1, 2)]), datetime.fromisoformat("2020-01-02")),
        (pa.timestamp("s"), pa.array([date(1969, 12, 31)], pa.date64()), datetime.fromisoformat("1969-12-31")),
        (pa.float64(), pa.array([0.5], pa.float32()), 0.5),
    ],
    ids=str,
)
def test_narrower_input_is_taken_and_changes_no_type(
    place: Place, column: pa.DataType, data: pa.Array, expected: Any, mode: Any
) -> None:
    table = place.create(schema=pa.schema([("id", pa.int64()), ("x", column)]), key="id")
    table.upsert(pa.table({"id": [1], "x": data}), schema_mode=mode)
    assert seen(table) == {1: expected}
    assert table.schema.field("x").type == column


def test_strict_write_takes_an_integer_that_the_decimal_holds_and_names_the_way_for_others(place: Place) -> None:
    table = empty(place)
    table.upsert(given(pa.int64(), (1, 9999)))
    assert seen(table) == {1: D(9999)}
    with pytest.raises(SchemaMismatchError, match=r'unchanged.*schema_mode="merge".*value=10000') as error:
        table.upsert(given(pa.int64(), (1, 10000)))
    assert "row=0" in str(error.value)
    with pytest.raises(SchemaMismatchError) as other:
        table.upsert(given(pa.float64(), (1, 0.5)))
    assert "schema_mode" not in str(other.value), "no type holds both"


APART = [
    (decimal(38, 0), decimal(38, 1), "more than 38 digits"),
    (pa.int64(), decimal(38, 20), "more than 38 digits"),
    (decimal(6, 2), pa.float64(), "floats round decimals"),
    (pa.int64(), pa.float64(), "no float holds every integer of 64 bits"),
    (pa.date32(), pa.timestamp("us"), "add a column of timestamps"),
    (pa.date32(), pa.timestamp("us", "UTC"), "add a column of timestamps"),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), "the zone of times without one would be a guess"),
    (pa.string(), pa.int64(), "cast one side"),
    (pa.list_(decimal(6, 2)), pa.list_(pa.float64()), "floats round decimals"),
]


@pytest.mark.parametrize(("column", "other", "reason"), APART, ids=str)
def test_type_that_does_not_widen_is_refused_with_the_reason(
    place: Place, column: pa.DataType, other: pa.DataType, reason: str
) -> None:
    table = place.create(schema=pa.schema([("id", pa.int64()), ("x", column)]), key="id")
    for widen in (
        lambda: table.alter(widen={"x": other}),
        lambda: table.upsert(pa.table({"id": [1], "x": pa.nulls(1, other)}), schema_mode="merge"),
    ):
        with pytest.raises(SchemaMismatchError, match=rf"no common type.*{reason}.*column=x") as error:
            widen()
        assert str(other) in str(error.value) or pa.types.is_list(other)
    assert table.schema.field("x").type == column


def test_date_does_not_become_a_moment_of_a_zone(place: Place) -> None:
    table = place.create(schema=pa.schema([("id", pa.int64()), ("x", pa.timestamp("us", "UTC"))]), key="id")
    with pytest.raises(SchemaMismatchError, match="convert the dates to timestamps in their time zone"):
        table.upsert(pa.table({"id": [1], "x": [date(2020, 1, 1)]}))


# --- columns with a role ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key": "n"}, "key or partition column"),
        ({"key": ["id", "n"]}, "key or partition column"),
        ({"key": ["id", "n"], "partition_by": "n"}, "key or partition column"),
        ({"ordering": "n"}, "ordering column keeps its type"),
    ],
)
def test_key_partition_and_ordering_become_no_decimals(place: Place, settings: dict[str, Any], message: str) -> None:
    table = place.create(schema=NARROW_SCHEMA.append(pa.field("n", pa.int32())), **{"key": "id", **settings})
    row = pa.table({"id": [1], "x": pa.array([D("1.25")], NARROW), "n": pa.array([D("1.25")], WIDE)})
    for widen in (lambda: table.alter(widen={"n": WIDE}), lambda: table.upsert(row, schema_mode="merge")):
        with pytest.raises(SchemaMismatchError, match=message):
            widen()
    assert table.schema.field("n").type == pa.int32()
    if "ordering" not in settings:  # the text of an integer is the same in more bits
        table.alter(widen={"n": pa.int64()})


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(Counter(), D("3.3701")), (Max(), D("2.25")), (Last(), D("0.0001"))],
    ids=str,
)
def test_payload_goes_on_over_the_widening(place: Place, payload: Any, expected: Decimal) -> None:
    table = empty(place, merge={"x": payload})
    table.upsert(given(NARROW, (1, D("1.12"))))
    table.maintenance.compact()
    table.upsert(given(NARROW, (1, D("2.25"))))
    table.upsert(given(DEEP, (1, D("0.0001"))), schema_mode="merge")
    assert seen(table) == {1: expected}
    table.maintenance.compact()
    assert seen(table) == {1: expected}
    assert table.verify(deep=True).findings == ()


def test_several_columns_that_decide_together_widen(place: Place) -> None:
    schema = NARROW_SCHEMA.append(pa.field("n", pa.int32()))
    table = place.create(schema=schema, key="id", merge=PartialUpdate(columns={("n", "x"): LatestBy("n")}))
    table.upsert(pa.table({"id": [1], "x": pa.array([D("1.25")], NARROW), "n": pa.array([5], pa.int32())}))
    table.alter(widen={"n": WIDE, "x": DEEP})
    table.upsert(pa.table({"id": [1], "x": pa.array([D("0.0001")], DEEP), "n": pa.array([D("4.5")], WIDE)}))
    assert rows(table) == [(1, D("1.25"), D("5.00"))]
    table.upsert(pa.table({"id": [1], "x": pa.array([D("0.0001")], DEEP), "n": pa.array([D("5.5")], WIDE)}))
    table.maintenance.compact()
    assert rows(table) == [(1, D("0.0001"), D("5.50"))]


def test_defaults_and_checks_hold_for_the_wider_type(place: Place) -> None:
    table = empty(place, rules=Rules(default={"x": D("1.50")}, check={"small": "x < 2"}))
    table.upsert(given(NARROW, (1, D("1.25"))))
    table.alter(widen={"x": DEEP})
    table.upsert(pa.table({"id": [2]}))
    assert seen(table) == {1: D("1.25"), 2: D("1.50")}
    with pytest.raises(ConstraintViolationError, match="small"):
        table.upsert(given(DEEP, (3, D("2.0001"))))


# --- alter(widen=) ----------------------------------------------------------------------------------------------------


def test_alter_renames_and_widens_in_one_event(place: Place) -> None:
    table = empty(place)
    table.upsert(given(NARROW, (1, D("1.25"))))
    version = table.version
    table.alter(rename={"x": "price"}, widen={"x": DEEP}, comment={"price": "net"})
    assert (table.version, table.schema.field("price").type) == (version + 1, DEEP)
    assert rows(table, "id", "price") == [(1, D("1.25"))]
    assert table.history().to_pylist()[0]["operation"] == "ALTER_SCHEMA"
    assert rows(table, as_of=version) == [(1, D("1.25"))]


def test_alter_refuses_what_it_cannot_widen(place: Place) -> None:
    table = empty(place)
    version = table.version
    cases: list[tuple[dict[str, Any], str]] = [
        ({"widen": {"y": WIDE}}, "no such column"),
        ({"widen": {"x": "decimal(12, 2)"}}, "pass a type of pyarrow"),
        ({"widen": {"x": WIDE}, "drop": ["x"]}, "not both"),
        ({}, "widen="),
    ]
    for arguments, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            table.alter(**arguments)
    with pytest.raises(SchemaMismatchError, match="at most 38 digits"):
        table.alter(widen={"x": pa.decimal256(50, 2)})
    assert table.version == version


# --- upkeep -----------------------------------------------------------------------------------------------------------


def test_copy_restore_and_erasure_read_old_files(place: Place, fast_path: Path) -> None:
    table = empty(place)
    table.upsert(given(NARROW, (1, D("1.25")), (2, D("2.25"))))
    table.maintenance.compact()
    narrow = table.version
    table.upsert(given(DEEP, (2, D("2.1234")), (3, D("3.1234"))), schema_mode="merge")
    table.copy(fast_path / "copy")
    assert seen(Table(fast_path / "copy")) == seen(table) == {1: D("1.25"), 2: D("2.1234"), 3: D("3.1234")}
    table.maintenance.restore(narrow)
    assert (seen(table), table.schema.field("x").type) == ({1: D("1.25"), 2: D("2.25")}, DEEP)
    table.maintenance.erase(keys=[1])
    assert seen(table) == {2: D("2.25")}
    assert table.verify(deep=True).findings == ()
