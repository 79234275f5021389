"""Columns that are added without rows, with and without defaults."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.api import alteration
from crdt_mor.errors import CrdtMorError, EarlierWritePendingError, UnsupportedFeatureError
from crdt_mor.payloads import Counter, PartialUpdate
from tests.mirror.delta_reading import by_delta_rs
from tests.mirror.iceberg_reading import by_pyiceberg
from tests.mirror.shapes import scanned
from tests.simulated import Simulated
from tests.table.helpers import Place

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("at", pa.struct([("lat", pa.float64())]))])
MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "counter": {"merge": {"n": Counter()}},
    "partitioned": {"key": ["id", "n"], "partition_by": "n"},
}


def rows(*ids: int, n: int = 1) -> pa.Table:
    return pa.table({"id": ids, "n": [n] * len(ids), "at": [{"lat": 1.0}] * len(ids)}, schema=SCHEMA)


def values(table: Table, *columns: str) -> list[tuple[object, ...]]:
    return sorted(table.to_polars().select(columns).rows(), key=str)


def opened(world: Simulated) -> Table:
    return Table("simulated", opening=Opening(store=world.store, environment=world.environment))


@pytest.fixture
def world() -> Simulated:
    return Simulated()


@pytest.fixture
def table(world: Simulated) -> Table:
    table = world.create(SCHEMA, key="id", buckets=2)
    table.upsert(rows(1, 2))
    return table


def test_columns_of_any_name_and_type_are_null_in_existing_rows(place: Place) -> None:
    table = place.create(schema=SCHEMA, key="id")
    table.upsert(rows(1, 2))
    files = table.inspect.files()["path"].to_pylist()
    tags = pa.map_(pa.string(), pa.list_(pa.int64()))
    table.add_columns({"tags": tags, "Total Sales": pl.Float64}, comment={"Total Sales": "net"})
    assert table.inspect.files()["path"].to_pylist() == files
    assert table.history().to_pylist()[0]["kind"] == "schema"
    again = place.open()
    assert again.schema == pa.schema([*SCHEMA, ("tags", tags), ("Total Sales", pa.float64())])
    assert again.inspect.comments() == {"Total Sales": "net"}
    assert values(again, "id", "tags", "Total Sales") == [(1, None, None), (2, None, None)]
    again.update({"Total Sales": "2.5"}, "id = 1")
    again.maintenance.compact()
    assert values(again, "id", "Total Sales") == [(1, 2.5), (2, None)]


@pytest.mark.parametrize("merge", MERGES)
def test_a_default_is_in_all_rows_of_before_and_after(world: Simulated, merge: str) -> None:
    table = world.create(SCHEMA, **{"key": "id", "buckets": 2, **MERGES[merge]})
    table.upsert(rows(1, 2))
    table.maintenance.compact()
    table.upsert(rows(3))
    before = table.version
    table.add_columns({"x": pa.int64(), "y": pa.string(), "z": pa.int64()}, default={"x": 7, "y": "it's"})
    table.upsert(rows(4))
    table.upsert(rows(1).append_column("x", pa.array([None], pa.int64())))  # an explicit null
    new = (None, None) if merge == "partial" else (7, "it's")  # there, only an append knows that a row is new
    expected = [(1, None, "it's", None), *((key, 7, "it's", None) for key in (2, 3)), (4, *new, None)]
    assert values(table, "id", "x", "y", "z") == expected
    assert {*table.scan(as_of=before).to_polars()["x"]} == {None}
    table.maintenance.compact()
    assert values(table, "id", "x", "y", "z") == expected
    assert dict(table.rules.default) == {"x": 7, "y": "it's"}


def test_defaults_have_the_types_of_their_columns(table: Table) -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    types = {
        "day": pa.date32(), "money": pa.decimal128(10, 2), "yes": pa.bool_(), "when": pa.timestamp("us", "UTC"),
        "small": pa.float32(), "text": pa.large_string(), "old": pa.date32(),
    }  # fmt: skip
    given = {
        "day": dt.date(2026, 1, 2), "money": Decimal("1.50"), "yes": True, "when": moment, "small": 0.5,
        "text": "null", "old": "2025-01-01",
    }  # fmt: skip
    table.add_columns(types, default=given)
    expected = {**given, "old": dt.date(2025, 1, 1)}
    assert table.to_polars().select(*given).unique().rows(named=True) == [expected]


def test_a_write_that_began_before_gets_the_default_too(world: Simulated, table: Table) -> None:
    other = opened(world)
    with other.transaction() as held:
        with pytest.raises(EarlierWritePendingError, match=re.escape("write the defaults with update(...)")):
            table.add_columns({"x": pa.int64()}, default={"x": 7}, wait=dt.timedelta(0))
        held.upsert(rows(3))
    table.upsert(rows(4))
    assert values(table, "id", "x") == [(1, None), (2, None), (3, None), (4, 7)]
    table.update({"x": 7}, "x IS NULL")
    assert {*values(table, "x")} == {(7,)}


def test_two_processes_that_add_a_column_add_one(
    world: Simulated, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alteration, "_require_addable", lambda *_: None)  # each looked before the other added
    other = opened(world)
    table.add_columns({"x": pa.int64(), "Größe": pa.string()})
    other.add_columns({"x": pa.int32(), "Größe": pa.string()})
    assert other.schema.names == table.schema.names == [*SCHEMA.names, "x", "Größe"]
    assert other.schema.field("x").type == pa.int64()
    last = other.version
    other.add_columns({"x": pa.int32()})
    assert other.version == last


def test_a_dropped_name_may_be_added_again_and_a_renamed_one_may_not(table: Table) -> None:
    table.alter(drop=["n"])
    table.add_columns({"n": pa.string()}, default={"n": "new"})
    assert values(table, "id", "n") == [(1, "new"), (2, "new")]
    table.alter(rename={"n": "m"})
    with pytest.raises(CrdtMorError, match="was renamed to 'm'"):
        table.add_columns({"n": pa.string()})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"columns": {}}, "pass new columns and their types"),
        ({"columns": {"n": pa.int64()}}, "existing=['n']"),
        ({"columns": {"N": pa.int64()}}, "differ only in case"),
        ({"columns": {"x": pa.null()}}, "without_type=['x']"),
        ({"columns": {"at.zone": pa.string()}}, "alter(widen="),
        ({"columns": {"_hoodie_x": pa.string()}}, "reserved"),
        ({"columns": {"x": pa.int64()}, "default": {"x": "much"}}, "convert it. column='x'"),
        ({"columns": {"x": pa.int64()}, "default": {"n": 1}}, "unknown=['n']"),
        ({"columns": {"x": pa.int64()}, "comment": {"y": "?"}}, "unknown=['y']"),
        ({"columns": {"x": pa.int64()}, "comment": {"x": "?" * 2000}}, "at most 1024"),
        ({"columns": {"x": pa.list_(pa.int64())}, "default": {"x": [1]}}, "a default must be"),
        ({"columns": {"x": pa.int64()}, "wait": 3}, "wait"),
    ],
)
def test_what_is_refused_changes_nothing(table: Table, asked: dict[str, Any], said: str) -> None:
    before = table.version
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        table.add_columns(**asked)
    assert (table.version, table.schema, bool(table.rules)) == (before, SCHEMA, False)


def test_a_column_with_a_dot_in_its_name_is_a_column(table: Table) -> None:
    table.add_columns({"n.x": pa.int64()}, default={"n.x": 1})
    assert values(table, "n.x") == [(1,), (1,)]


def test_a_table_of_hudi_takes_plain_columns_alone(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(table._session.config), "ours", property(lambda _: False))
    for asked in ({"columns": {"Größe": pa.int64()}}, {"columns": {"x": pa.int64()}, "comment": {"x": "?"}}):
        with pytest.raises(UnsupportedFeatureError, match="Hudi made this table"):
            table.add_columns(**asked)  # type: ignore[arg-type]


@pytest.mark.slow
def test_readers_of_mirrors_see_defaults(fast_path: Any) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=2)
    table.upsert(rows(1, 2))
    table.maintenance.compact()
    table.add_columns({"x": pa.int64(), "y": pa.string()}, default={"x": 7})
    table.mirror("delta")
    table.mirror("iceberg")
    assert by_delta_rs(table) == by_pyiceberg(table) == scanned(table)
