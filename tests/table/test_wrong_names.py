"""Columns that a table has not: each door says what became of a former name, or which is meant. Names of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, InvalidInputError, Opening, Rules, Table
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.payloads import PartialUpdate
from crdt_mor.store import MemoryStore

SCHEMA = pa.schema([("id", pa.string()), ("land", pa.string()), ("old", pa.int64()), ("gone", pa.int64())])
SCHEMA = SCHEMA.append(pa.field("price", pa.int64()))


def row(**values: Any) -> pa.Table:
    return pa.table({name: [value] for name, value in values.items()})


@pytest.fixture(scope="module")
def table() -> Table:
    """A table in which `old` is called `new`, and `gone` was dropped."""
    settings: dict[str, Any] = {"merge": PartialUpdate(), "buckets": 1, "partition_by": "land"}
    table = Table.create("memory", SCHEMA, key=["land", "id"], opening=Opening(store=MemoryStore()), **settings)
    table.upsert(row(id="a", land="DE", old=1, gone=2, price=3))
    table.alter(rename={"old": "new"}, drop="gone")
    return table


def each(parts: Sequence[Any]) -> Iterable[Any]:
    return [part.execute() for part in parts]


def merge(table: Table, **source: Any) -> Any:
    return table.merge(row(id="a", land="DE", **source))


def merge_in_parts(table: Table, name: str) -> Any:
    source = row(id="a", land="DE", **{name: 1})
    parts = table.merge(source.schema, parts=1, execute_parts=lambda ps, _: [p.execute(source) for p in ps])
    return parts.when_matched_update_all().execute()


def in_a_block(table: Table, name: str) -> None:
    with table.transaction(isolation="serializable") as tx:
        tx.update({name: 1})


DOORS: dict[str, Callable[[Table, str], object]] = {
    "update, set": lambda t, name: t.update({name: 1}),
    "update in a block": in_a_block,
    "update, SQL": lambda t, name: t.update({"price": f"{name} + 1"}),
    "update, expression": lambda t, name: t.update({"price": pl.col(name) + 1}),
    "update, where": lambda t, name: t.update({"price": 1}, where=f"{name} = 1"),
    "update in parts": lambda t, name: t.update({name: 1}, execute_parts=each),
    "update in parts, where": lambda t, name: t.update({"price": 1}, f"{name} = 1", execute_parts=each),
    "delete": lambda t, name: t.delete(where=f"{name} = 1"),
    "merge, on": lambda t, name: t.merge(row(**{name: 1}), on=[name]).when_matched_delete().execute(),
    "merge, all": lambda t, name: merge(t, **{name: 1}).when_matched_update_all().execute(),
    "merge, insert all": lambda t, name: merge(t, **{name: 1}).when_not_matched_insert_all().execute(),
    "merge, set": lambda t, name: merge(t).when_matched_update({name: 1}).execute(),
    "merge, value": lambda t, name: merge(t).when_matched_update({"price": f"target.{name}"}).execute(),
    "merge, condition": lambda t, name: merge(t).when_matched_delete(f"target.{name} = 1").execute(),
    "merge, insert": lambda t, name: merge(t).when_not_matched_insert({"id": "source.id", name: 1}).execute(),
    "merge in parts": merge_in_parts,
    "scan, columns": lambda t, name: t.scan(columns=["id", name]),
    "scan, filter": lambda t, name: t.scan(filter=pl.col(name) == 1),
    "changes": lambda t, name: t.changes(columns=[name]),
    "images": lambda t, name: t.changes(columns=[name], images=True),
    "erase": lambda t, name: t.maintenance.erase(keys=[("DE", "a")], columns=[name]),
    "not_null": lambda t, name: t.add_rules(Rules(not_null=[name])),
    "check": lambda t, name: t.add_rules(Rules(check={"positive": f"{name} > 0"})),
    "default": lambda t, name: t.add_rules(Rules(default={name: 1})),
    "upsert": lambda t, name: t.upsert(row(id="a", land="DE", **{name: 1})),
    "append": lambda t, name: t.append(row(id="b", land="DE", **{name: 1})),
    "overwrite, partition": lambda t, name: t.overwrite(row(id="b", land="DE"), partitions=[{name: "DE"}]),
    "declared columns": lambda t, name: t.transaction(columns=["price", name]).__enter__(),
    "declared columns of a job": lambda t, name: t.jobs.plan("upsert", row(id="a", land="DE").schema, columns=[name]),
    "declared partitions": lambda t, name: t.transaction(partitions=[{name: "DE"}]).__enter__(),
    "jobs.plan": lambda t, name: t.jobs.plan("upsert", row(id="a", land="DE", **{name: 1}).schema),
    "alter": lambda t, name: t.alter(rename={name: "other"}),
    "comment": lambda t, name: t.alter(comment={name: "other"}),
}


@pytest.mark.costly
@pytest.mark.parametrize("door", DOORS)
def test_an_unknown_name_is_refused_with_what_became_of_it_or_a_near_one(table: Table, door: str) -> None:
    before = table.scan().to_arrow()
    for name, said in {
        "old": "'old' was renamed to 'new'",
        "gone": "'gone' was dropped",
        "pricee": "'price' meant by 'pricee'",
    }.items():
        with pytest.raises(CrdtMorError) as raised:
            DOORS[door](table, name)
        assert said in str(raised.value)
    assert table.scan().to_arrow() == before
    assert table.schema.names == ["id", "land", "new", "price"]


MERGING: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda t, rows: t.upsert(rows, schema_mode="merge"),
    "append": lambda t, rows: t.append(rows, schema_mode="merge"),
    "overwrite": lambda t, rows: t.overwrite(rows, schema_mode="merge"),
    "jobs.plan": lambda t, rows: t.jobs.plan("upsert", rows.schema, schema_mode="merge"),
    "merge": lambda t, rows: t.merge(rows).when_matched_update_all().execute(),
    "without merge": lambda t, rows: t.upsert(rows),
}


@pytest.mark.parametrize("door", MERGING)
def test_a_renamed_column_gets_no_second_one_of_its_former_name(table: Table, door: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"^'old' was renamed to 'new': write it as 'new'[.;]"):
        MERGING[door](table, row(id="a", land="DE", old=1, more=2))
    assert table.schema.names == ["id", "land", "new", "price"]


def test_another_column_gets_a_former_name_by_a_rename() -> None:
    table = Table.create("memory", SCHEMA, key="id", opening=Opening(store=MemoryStore()), buckets=1)
    table.alter(rename={"old": "new"})
    table.upsert(row(id="a", land="DE", new=1, gone=2, price=3, third=4), schema_mode="merge")
    table.alter(rename={"third": "old"})
    assert table.scan(columns=["new", "old"]).to_arrow().to_pylist() == [{"new": 1, "old": 4}]


def test_a_job_declares_columns_that_its_rows_bring(table: Table) -> None:
    brought = row(id="a", land="DE", **{"What for": 1}).schema
    job = table.jobs.plan("upsert", brought, columns=["What for"], schema_mode="merge")
    table.jobs.abandon(job)


OWN = ["_change_type", "_commit_version", "_Commit_Timestamp", "_hoodie_x", "_crdt_x"]


@pytest.mark.parametrize("name", OWN)
def test_no_new_column_has_a_name_of_the_tables_or_the_changes_own(name: str) -> None:
    def create(*names: str) -> Table:
        schema = pa.schema([("id", pa.string()), ("n", pa.int64()), *((other, pa.int64()) for other in names)])
        return Table.create("memory", schema, key="id", opening=Opening(store=MemoryStore()), buckets=1)

    table = create()
    own = pa.table({"id": ["a"], name: [1]})
    odd = own.append_column("Total Sales", pa.array([1]))
    doors: list[Callable[[], object]] = [
        lambda: create(name),
        lambda: create(name, "Total Sales"),
        lambda: table.upsert(own, schema_mode="merge"),
        lambda: table.upsert(odd, schema_mode="merge"),
        lambda: table.append(own, schema_mode="merge"),
        lambda: table.overwrite(own, schema_mode="merge"),
        lambda: table.jobs.plan("upsert", own.schema, schema_mode="merge"),
        lambda: table.alter(rename={"n": name}),
        lambda: Table.create_from("other", own, key="id", opening=Opening(store=MemoryStore())),
        lambda: Table.create_from(
            "other", own.rename_columns(["id", "n"]), key="id", rename={"n": name}, opening=Opening(store=MemoryStore())
        ),
        lambda: table.upsert(own),
    ]
    for refused in doors:
        with pytest.raises((InvalidInputError, SchemaMismatchError), match=r"reserved|own columns"):
            refused()
    assert table.schema.names == ["id", "n"]
