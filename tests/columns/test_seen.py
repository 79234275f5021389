"""What each reader sees of a column, as `docs/types.md` says it."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.store import MemoryStore
from tests.model.types_page import SEEN, SUPPORTED, arrow_type


def table_with(kind: pa.DataType) -> Table:
    """A table with a column of the type, and one row, in which it is null."""
    schema = pa.schema([("id", pa.int64()), ("c", kind)])
    table = Table.create("t", schema, key="id", buckets=1, opening=Opening(store=MemoryStore()))
    table.upsert(pa.table({"id": [1], "c": pa.nulls(1, table.schema.field("c").type)}))
    return table


def polars_sees(table: Table) -> str:
    return str(table.to_polars().schema["c"])


def duckdb_sees(table: Table) -> str:
    try:
        ((found,),) = duckdb.from_arrow(table.to_arrow()).project("typeof(c)").fetchall()
    except duckdb.Error:
        return "refused"
    return str(found)


def test_the_page_has_a_row_for_each_type_that_a_table_can_have() -> None:
    assert [row[0] for row in SEEN] == [row[0] for row in SUPPORTED]


@pytest.mark.parametrize(("declared", "seen"), [(row[0], row[1]) for row in SEEN], ids=lambda text: text)
def test_polars_sees_what_the_page_says(declared: str, seen: str) -> None:
    assert polars_sees(table_with(arrow_type(declared))) == seen


@pytest.mark.skipif(duckdb.__version__.startswith("1."), reason="DuckDB 1 knows no moments in nanoseconds with a zone")
@pytest.mark.parametrize(("declared", "seen"), [(row[0], row[2]) for row in SEEN], ids=lambda text: text)
def test_duckdb_sees_what_the_page_says(declared: str, seen: str) -> None:
    assert duckdb_sees(table_with(arrow_type(declared))) == seen
