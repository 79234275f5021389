"""The columns of a replicated table follow those of its source, by PostgreSQL's numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cdc.postgres_columns import (
    Column,
    SnapshotNeededError,
    SourceColumns,
    columns_in,
    comment_of,
    keeps_values,
)
from crdt_mor.store import MemoryStore
from crdt_mor.testing import SimulatedEnvironment

SOURCE = {1: Column("id", "bigint"), 2: Column("note", "text"), 3: Column("price", "numeric(6,2)")}
SCHEMA = pa.schema({"id": pa.int64(), "note": pa.string(), "price": pa.decimal128(6, 2)})


OID = 16385


class World:
    """A table with a row, and the source's columns now."""

    def __init__(self) -> None:
        opening = mor.Opening(store=MemoryStore(), environment=SimulatedEnvironment())
        self.table = mor.Table.create("t", SCHEMA, key="id", merge=mor.PartialUpdate(), opening=opening, buckets=1)
        self.source = dict(SOURCE)
        self.columns = self.restarted()
        self.columns.take_over(self.source)
        self.table.upsert(pl.DataFrame({"id": [1], "note": ["x"], "price": [Decimal("1.50")]}))

    def restarted(self) -> SourceColumns:
        return SourceColumns(self.table, "slot", OID, lambda: self.source)

    def event(self, action: str, *numbers: int, value: Any = 1) -> dict[str, Any]:
        return {"action": action, "columns": [self.told(number, value) for number in numbers]}

    def told(self, number: int, value: Any = 1) -> dict[str, Any]:
        column = self.source[number]
        return {"name": column.name, "type": column.type, "value": value, "position": number}

    def names(self, *events: dict[str, Any]) -> list[list[str]]:
        return [[column["name"] for column in event["columns"]] for event in self.columns.named(events)]

    def row(self) -> dict[str, Any]:
        [row] = self.table.to_polars().to_dicts()
        return row


def test_comments_keep_the_numbers_beside_the_users_own() -> None:
    world = World()
    assert columns_in(world.table.inspect.comments(), OID) == SOURCE
    assert (
        comment_of(OID, 7, Column("a", "text"), "metres; of wood") == "metres; of wood; PostgreSQL column 16385.7: text"
    )
    again = comment_of(OID, 7, Column("a", "integer"), "metres; of wood; PostgreSQL column 16385.7: text")
    assert again == "metres; of wood; PostgreSQL column 16385.7: integer"
    assert columns_in({"a": again, "b": "mine"}, OID) == {7: Column("a", "integer")}
    assert columns_in({"a": again}, OID + 1) == {}  # another table of this name


def test_a_renamed_column_keeps_its_values() -> None:
    world = World()
    before = world.event("U", 1, 2)
    world.source[2] = Column("memo", "text")
    assert world.names(before, world.event("U", 1, 2)) == [["id", "memo"], ["id", "memo"]]
    assert world.row() == {"id": 1, "memo": "x", "price": Decimal("1.50")}
    world.columns = world.restarted()
    assert world.names(world.event("U", 2)) == [["memo"]]


def test_columns_may_swap_names_and_updates_may_leave_one_out() -> None:
    world = World()
    world.source[4] = Column("other", "text")
    world.names(world.event("I", 1, 2, 3, 4))
    world.source[2], world.source[4] = Column("other", "text"), Column("note", "text")
    assert world.names(world.event("U", 1, 4)) == [["id", "note"]]
    assert world.row() == {"id": 1, "other": "x", "price": Decimal("1.50"), "note": None}


def test_a_new_column_has_its_default_in_older_rows() -> None:
    world = World()
    before = world.event("I", 1, 2, 3)
    world.source[9] = Column("extra", "integer", fill="7")
    old, new = world.columns.named([before, world.event("I", 1, 2, 3, 9, value=5)])
    assert old["columns"][-1] == {"name": "extra", "type": "integer", "value": "7"}
    assert (len(old["columns"]), len(new["columns"])) == (4, 4)
    assert world.row() == {"id": 1, "note": "x", "price": Decimal("1.50"), "extra": 7}
    assert world.table.schema.field("extra").type == pa.int32()


def test_a_default_that_only_the_server_knows_needs_a_snapshot() -> None:
    world = World()
    world.source[9] = Column("extra", "uuid", is_computed=True)
    with pytest.raises(SnapshotNeededError):
        world.names(world.event("I", 1, 2, 3, 9))
    assert world.table.schema.names == ["id", "note", "price"]


def test_a_dropped_column_stays_until_another_takes_its_name() -> None:
    world = World()
    del world.source[2]
    world.source[9] = Column("extra", "text")
    world.names(world.event("I", 1, 3, 9))
    assert world.row()["note"] == "x"
    del world.source[9]
    world.source[10] = Column("note", "integer")
    assert world.names(world.event("U", 1, 10)) == [["id", "note"]]
    assert world.row() == {"id": 1, "price": Decimal("1.50"), "extra": None, "note": None}
    assert world.table.schema.field("note").type == pa.int32()


def test_values_of_a_column_that_was_dropped_meanwhile_are_discarded() -> None:
    world = World()
    world.source[9] = Column("note2", "text")
    late = world.event("I", 1, 2, 3, 9)
    del world.source[9]
    assert world.names(late) == [["id", "note", "price"]]


def test_a_wider_type_widens_the_column_and_another_type_needs_a_snapshot() -> None:
    world = World()
    world.source[9] = Column("n", "integer")
    world.names(world.event("I", 1, 2, 3, 9))
    world.source[9] = Column("n", "bigint")
    world.names(world.event("U", 1, 9))
    assert world.table.schema.field("n").type == pa.int64()
    world.source[9] = Column("n", "text")
    with pytest.raises(SnapshotNeededError):
        world.names(world.event("U", 1, 9))
    world.columns.take_over(world.source)
    assert world.table.schema.field("n").type == pa.string()
    assert world.row()["n"] is None
    assert columns_in(world.table.inspect.comments(), OID)[9] == Column("n", "text")


def test_old_keys_get_our_names() -> None:
    world = World()
    world.names(world.event("U", 1, 2))
    world.source[1] = Column("number", "bigint")
    changed = world.event("U", 1, 2) | {"identity": [{"name": "number", "type": "bigint", "value": 1}]}
    deleted = {"action": "D", "identity": [{"name": "number", "type": "bigint", "value": 2}]}
    found = world.columns.named([changed, deleted])
    assert [event["identity"][0]["name"] for event in found] == ["number", "number"]
    assert world.table.config.key == ("number",)
    assert world.columns.named([{"action": "T"}]) == [{"action": "T"}]


def test_changes_of_a_type_that_keep_all_values() -> None:
    kept = [
        ("smallint", "bigint"), ("integer", "numeric(20,0)"), ("numeric(6,2)", "numeric(12,2)"), ("text", "text"),
        ("numeric(6,2)", "numeric(8,4)"), ("numeric(6,2)", "numeric"), ("character varying(5)", "text"),
        ("character varying(5)", "character varying(9)"), ("character varying", "text"), ("real", "double precision"),
    ]  # fmt: skip
    changed = [
        ("bigint", "integer"), ("numeric(6,2)", "numeric(6,4)"), ("numeric(6,2)", "numeric(6,1)"), ("text", "integer"),
        ("character varying(9)", "character varying(5)"), ("character varying", "character varying(5)"),
        ("character(4)", "character(6)"), ("timestamp without time zone", "timestamp with time zone"),
        ("numeric", "numeric(6,2)"), ("double precision", "real"),
    ]  # fmt: skip
    assert [pair for pair in kept if not keeps_values(*pair)] == []
    assert [pair for pair in changed if keeps_values(*pair)] == []
