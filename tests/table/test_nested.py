"""Fields inside of structs, lists and maps: matched by name, added and widened as columns are, and null where absent.

Files are never rewritten when a struct grows, so every way to read has files with fewer fields before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import time
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Rules, Table
from crdt_mor.errors import ConstraintViolationError, SchemaMismatchError
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.store import MemoryStore
from tests.tiers import slow

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


@dataclass(frozen=True)
class Around:
    """What is around a struct: its type, and a value of it."""

    kind: Callable[[pa.DataType], pa.DataType]
    value: Callable[[Any], Any]
    path: str


AROUND = {
    "struct": Around(lambda inner: inner, lambda value: value, "c"),
    "struct in a struct": Around(lambda inner: struct(deep=inner), lambda value: {"deep": value}, "c.deep"),
    "list": Around(pa.list_, lambda value: [value, None], "c.element"),
    "map": Around(lambda inner: pa.map_(TEXT, inner), lambda value: [("k", value)], "c.value"),
    "list in a map": Around(
        lambda inner: pa.map_(TEXT, pa.list_(inner)), lambda value: [("k", [value])], "c.value.element"
    ),
}
MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "payload": {"merge": {"n": Counter()}},
}
each_around = pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
each_merge = pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)

OLD, NEW = struct(x=INT, y=TEXT), struct(z=TEXT, y=TEXT, x=LONG)
"""The new one has a field more, in another order, and a wider one."""

A, B = {"x": 1, "y": "a"}, {"x": 1 << 40, "y": "b", "z": "new"}
A_GROWN = {**A, "z": None}


def table_of(kind: pa.DataType, **settings: Any) -> Table:
    schema = pa.schema([("id", LONG), ("n", LONG), ("c", kind)])
    options: dict[str, Any] = {"key": "id", "buckets": 1, "opening": Opening(store=MemoryStore()), **settings}
    return Table.create("t", schema, **options)


def frame(around: Around, kind: pa.DataType, **values: Any) -> pa.Table:
    """Rows whose keys are the digits of the names."""
    ids = [int(name[1:]) for name in values]
    column = pa.array([None if v is None else around.value(v) for v in values.values()], around.kind(kind))
    return pa.table({"id": ids, "n": [1] * len(ids), "c": column})


def values(table: Table, **options: Any) -> dict[int, Any]:
    rows = table.scan(**options).to_arrow().to_pylist()
    return {row["id"]: row["c"] for row in rows}


def wrapped(around: Around, **expected: Any) -> dict[int, Any]:
    return {int(name[1:]): None if v is None else around.value(v) for name, v in expected.items()}


def upserted(around: Around, **settings: Any) -> Table:
    """A table in which old rows lie in a base file, and in a log above it; the first row of a struct that has grown."""
    table = table_of(around.kind(OLD), **settings)
    table.upsert(frame(around, OLD, k1=A, k2=None, k3=A))
    table.maintenance.compact()
    table.upsert(frame(around, OLD, k4=A))
    table.upsert(frame(around, NEW, k3=B, k5=B), schema_mode="merge")
    return table


GROWN = {"k1": A_GROWN, "k2": None, "k3": B, "k4": A_GROWN, "k5": B}


@pytest.mark.costly
@each_merge
@each_around
def test_old_files_are_read_as_the_struct_is_now(around: Around, merge: dict[str, Any]) -> None:
    table = upserted(around, **merge)
    expected = wrapped(around, **GROWN)
    assert values(table) == expected
    assert table.schema.field("c").type == around.kind(struct(x=LONG, y=TEXT, z=TEXT))
    assert {row["id"]: row["c"] for row in table.scan(columns=["id", "c"]).to_arrow().to_pylist()} == expected
    assert values(table, filter="id < 4") == {key: expected[key] for key in (1, 2, 3)}
    table.maintenance.compact()
    assert values(table) == expected


@each_merge
def test_filters_on_a_field_that_old_files_lack(merge: dict[str, Any]) -> None:
    table = upserted(AROUND["struct"], **merge)
    z, x = (pl.col("c").struct.field(name) for name in "zx")
    for _ in range(2):
        assert values(table, filter=z.is_null() & pl.col("c").is_not_null()) == {1: A_GROWN, 4: A_GROWN}
        assert values(table, filter=z == "new") == values(table, filter=x > 1 << 33) == {3: B, 5: B}
        assert values(table, filter=(x == 1) & (pl.col("id") > 3)) == {4: A_GROWN}
        assert table.scan(filter="c IS NULL").count() == 1
        table.maintenance.compact()


@pytest.mark.costly
@each_merge
@each_around
def test_changes_and_images_have_old_rows_with_the_fields_of_now(around: Around, merge: dict[str, Any]) -> None:
    table = table_of(around.kind(OLD), **merge)
    first = table.upsert(frame(around, OLD, k1=A, k2=A))
    checkpoint = table.changes(since=0).checkpoint
    table.upsert(frame(around, NEW, k2=B), schema_mode="merge")
    changed = table.changes(since=0).to_arrow().to_pylist()
    assert {row["id"]: row["c"] for row in changed} == wrapped(around, k1=A_GROWN, k2=B)
    images = table.changes(since=checkpoint, images=True).to_arrow().to_pylist()
    found = {row["_change_type"]: row["c"] for row in images}
    assert found == {"update_preimage": around.value(A_GROWN), "update_postimage": around.value(B)}
    assert values(table, as_of=first) == wrapped(around, k1=A_GROWN, k2=A_GROWN)


@each_around
def test_fields_in_another_order_and_absent_ones_are_taken_in_any_mode(around: Around) -> None:
    table = table_of(around.kind(NEW))
    for mode in ("strict", "merge"):
        table.upsert(frame(around, struct(y=TEXT, x=LONG), k1=A), schema_mode=mode)
        assert values(table) == wrapped(around, k1=A_GROWN)
    table.overwrite(frame(around, struct(y=TEXT), k2={"y": "b"}))
    assert values(table) == wrapped(around, k2={"x": None, "y": "b", "z": None})
    assert table.schema.field("c").type == around.kind(NEW)


@each_around
def test_a_field_that_the_column_lacks_is_named_where_it_is_not_added(around: Around) -> None:
    table = table_of(around.kind(OLD))
    with pytest.raises(SchemaMismatchError, match=rf'schema_mode="merge"\. column={around.path} unknown=\[\'z\'\]'):
        table.upsert(frame(around, NEW, k1=B))
    with pytest.raises(SchemaMismatchError, match=rf"only in case: rename .*'X': 'x'.* column={around.path}"):
        table.upsert(frame(around, struct(X=INT), k1={"X": 1}))
    with pytest.raises(InvalidInputError, match=r"names differ only in case.*\.X other=.*\.x"):
        table.upsert(frame(around, struct(X=INT), k1={"X": 1}), schema_mode="merge")
    with pytest.raises(SchemaMismatchError, match=rf"of type null.* column={around.path} unknown=\['w'\]"):
        table.upsert(frame(around, struct(w=pa.null()), k1={"w": None}), schema_mode="merge")
    with pytest.raises(SchemaMismatchError, match=rf"no common type.* column={around.path}\.y left=string right=int32"):
        table.upsert(frame(around, struct(y=INT), k1={"y": 1}), schema_mode="merge")
    assert table.schema.field("c").type == around.kind(OLD)


def test_a_struct_with_two_fields_of_one_name_is_refused() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1], INT)] * 2, fields=[pa.field("x", INT)] * 2)
    with pytest.raises(InvalidInputError, match=r"repeats a field name: rename a field\. column=c"):
        table_of(OLD).upsert(pa.table({"id": [1], "n": [1], "c": twice}))


def test_a_field_of_type_null_says_nothing_of_a_field_that_is_there() -> None:
    table = table_of(OLD)
    table.upsert(frame(AROUND["struct"], struct(x=pa.null(), y=TEXT), k1={"x": None, "y": "a"}), schema_mode="merge")
    assert values(table) == {1: {"x": None, "y": "a"}}
    assert table.schema.field("c").type == OLD


def test_frames_of_polars_add_fields_in_ordinary_types() -> None:
    table = table_of(OLD)
    table.upsert(pl.DataFrame({"id": [1], "n": [1], "c": [{"z": ["t"], "x": 5}]}), schema_mode="merge")
    assert table.schema.field("c").type == struct(x=LONG, y=TEXT, z=pa.large_list(TEXT))
    assert values(table) == {1: {"x": 5, "y": None, "z": ["t"]}}


@each_around
def test_two_writers_that_grow_one_struct_at_once_meet(around: Around) -> None:
    store = MemoryStore()
    one, two = table_of(around.kind(OLD), opening=Opening(store=store)), Table("t", opening=Opening(store=store))
    with one.transaction() as first, two.transaction() as second:
        first.upsert(frame(around, struct(v=INT, x=INT), k1={"v": 1, "x": 1}), schema_mode="merge")
        second.upsert(frame(around, struct(w=TEXT, x=LONG), k2={"w": "w", "x": 1 << 40}), schema_mode="merge")
    for table in (one, two):
        assert values(table) == wrapped(
            around,
            k1={"x": 1, "y": None, "v": 1, "w": None},
            k2={"x": 1 << 40, "y": None, "v": None, "w": "w"},
        )
        table.maintenance.compact()


@each_around
def test_a_job_planned_before_a_field_came_stages_rows_without_it(around: Around) -> None:
    table = table_of(around.kind(OLD))
    rows = frame(around, OLD, k1=A)
    job = table.jobs.plan("upsert", rows.schema)
    first = job.stage(rows, task=0)
    table.upsert(frame(around, NEW, k2=B), schema_mode="merge")
    table.jobs.complete(job, [first, job.stage(frame(around, OLD, k3=A), task=1)])
    assert values(table) == wrapped(around, k1=A_GROWN, k2=B, k3=A_GROWN)


def test_a_struct_is_one_value_to_a_partial_update() -> None:
    table = table_of(NEW, merge=PartialUpdate())
    table.upsert(frame(AROUND["struct"], NEW, k1=B))
    table.upsert(frame(AROUND["struct"], struct(x=LONG), k1={"x": 7}))
    assert values(table) == {1: {"x": 7, "y": None, "z": None}}


def test_rows_of_one_transaction_meet_when_its_second_statement_adds_a_field() -> None:
    table = table_of(OLD)
    with table.transaction() as tx:
        tx.upsert(frame(AROUND["struct"], OLD, k1=A))
        tx.upsert(frame(AROUND["struct"], NEW, k2=B), schema_mode="merge")
    assert values(table) == {1: A_GROWN, 2: B}


# --- fields of any name -----------------------------------------------------------------------------------------------

ODD = pa.struct([("Total Sales", INT), ("Größe", pa.struct([("@t", pa.time64("us"))]))])
ODDER = pa.struct(
    [("1Min", TEXT), ("Größe", pa.struct([("a.b", LONG), ("@t", pa.time64("us"))])), ("Total Sales", LONG)]
)
C = {"Total Sales": 1, "Größe": {"@t": time(4)}}
D = {"Total Sales": 1 << 40, "Größe": {"@t": time(5), "a.b": 7}, "1Min": "new"}
C_GROWN = {"Total Sales": 1, "Größe": {"@t": time(4), "a.b": None}, "1Min": None}


@pytest.mark.parametrize(
    ("where", "merge"),
    [slow(*both) if "in a" in both[0] else both for both in zip(AROUND, [*MERGES, "latest"], strict=True)],
)
def test_fields_of_any_name_are_written_grown_and_read(where: str, merge: str) -> None:
    around = AROUND[where]
    table = table_of(around.kind(ODD), **MERGES[merge])
    table.upsert(frame(around, ODD, k1=C, k2=None, k3=C))
    before = table.version
    assert table.schema.field("c").type == around.kind(ODD)
    assert values(table) == wrapped(around, k1=C, k2=None, k3=C)
    table.maintenance.compact()
    table.upsert(frame(around, ODD, k4=C))
    table.upsert(frame(around, ODDER, k3=D, k5=D), schema_mode="merge")
    expected = wrapped(around, k1=C_GROWN, k2=None, k3=D, k4=C_GROWN, k5=D)
    assert values(table) == expected
    assert {
        row["id"]: row["c"] for row in table.scan().to_polars().to_arrow().cast(table.schema).to_pylist()
    } == expected
    assert values(table, as_of=before) == wrapped(around, k1=C_GROWN, k2=None, k3=C_GROWN)
    changed = table.changes(since=before).to_arrow().to_pylist()
    assert {row["id"]: row["c"] for row in changed} == wrapped(around, k3=D, k4=C_GROWN, k5=D)
    table.maintenance.compact()
    table.upsert(frame(around, ODD, k6=C))
    assert values(table) == {**expected, **wrapped(around, k6=C_GROWN)}
    with pytest.raises(SchemaMismatchError, match=r"no such fields.*unknown=\['Total_Sales_193981af'\]"):
        table.upsert(frame(around, pa.struct([("Total_Sales_193981af", INT)]), k7={"Total_Sales_193981af": 1}))


def test_statements_go_by_fields_of_any_name() -> None:
    around = AROUND["struct"]
    table = table_of(ODD, rules=Rules(check={"some": 'c."Total Sales" > 0'}), merge={"n": Counter()})
    table.upsert(frame(around, ODD, k1=C, k2=None, k3={**C, "Total Sales": 3}))
    assert [*values(table, filter='c."Total Sales" > 1')] == [3]
    assert [*values(table, filter=pl.col("c").struct.field("Größe").struct.field("@t") == time(4), columns=["id", "c"])]
    with pytest.raises(ConstraintViolationError, match="some"):
        table.upsert(frame(around, ODD, k4={**C, "Total Sales": -1}))
    table.update({"n": 'c."Total Sales" + 10'}, where='c."Total Sales" > 1')
    table.update({"c": pl.struct(pl.lit(9, pl.Int32).alias("Total Sales"))}, where="id = 2")
    table.merge(frame(around, ODD, k1={**C, "Total Sales": 5}), on="id").when_matched_update_all(
        'source.c."Total Sales" > target.c."Total Sales"'
    ).execute()
    assert values(table) == {
        1: {**C, "Total Sales": 5},
        2: {"Total Sales": 9, "Größe": None},
        3: {**C, "Total Sales": 3},
    }
    table.delete(where='c."Total Sales" = 9')
    table.alter(rename={"c": "of any name"})
    assert [*table.scan(filter='"of any name"."Total Sales" = 5').to_polars()["id"]] == [1]


@pytest.mark.parametrize("word", ["rename", "drop", "comment"])
def test_a_field_is_not_altered_and_the_error_says_why(word: str) -> None:
    table = table_of(ODD)
    asked: dict[str, Any] = {word: ["c.Total Sales"] if word == "drop" else {"c.Total Sales": "x"}}
    with pytest.raises(InvalidInputError, match=r"fields inside a column.*field='c\.Total Sales'"):
        table.alter(**asked)


def test_two_writers_that_add_one_field_of_an_odd_name_add_one_field() -> None:
    table = table_of(OLD)
    with table.transaction() as one, table.transaction() as other:
        for tx, key in ((one, "k1"), (other, "k2")):
            more = struct(**{"Total Sales": LONG})
            tx.upsert(frame(AROUND["struct"], more, **{key: {"Total Sales": 4}}), schema_mode="merge")
    assert table.schema.field("c").type == struct(x=INT, y=TEXT, **{"Total Sales": LONG})
    assert values(table) == {k: {"x": None, "y": None, "Total Sales": 4} for k in (1, 2)}
