"""SQL of DuckDB on a table by the name of a variable: a lazy frame gets columns and conditions, a table streams."""

from __future__ import annotations

from typing import Any

import duckdb
import polars as pl
import pytest

from crdt_mor import Opening, Scan, Table
from crdt_mor.readers.polars import scan_table
from crdt_mor.store import MemoryStore

pytestmark = pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 pushes nothing into lazy frames of polars")

CITIES = [["Rome", "Oslo", None][i % 3] for i in range(100)]
ROWS = pl.DataFrame({"id": range(100), "city": CITIES, "views": range(100), "note": ["x"] * 100})


@pytest.fixture(scope="module")
def table() -> Table:
    made = Table.create("events", ROWS, key="id", buckets=4, opening=Opening(store=MemoryStore()))
    made.upsert(ROWS)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The columns and conditions that reach scans."""
    found: list[dict[str, Any]] = []
    narrowed = Scan.narrowed

    def noted(self: Scan, **given: Any) -> Scan:
        found.append(given)
        return narrowed(self, **given)

    monkeypatch.setattr(Scan, "narrowed", noted)
    return found


def test_conditions_and_columns_of_sql_reach_the_scan(table: Table, asked: list[dict[str, Any]]) -> None:
    lazy = scan_table(table)
    query = "SELECT sum(views) FROM lazy WHERE city = 'Rome' AND id BETWEEN 3 AND 9"
    assert duckdb.execute(query).fetchall() == [(3 + 6 + 9,)]
    last = asked[-1]
    assert "note" not in last["columns"]
    assert set(last["filter"].meta.root_names()) == {"city", "id"}
    del lazy


@pytest.mark.parametrize(
    "where",
    [
        "city IS NULL", "city <> 'Rome'", "city IN ('Rome', 'Oslo') OR id < 5", "city LIKE 'R%'", "views % 7 = 0",
        "NOT (city = 'Rome')", "id = 5", "views > 90 AND city IS NOT NULL", "true",
    ],
)  # fmt: skip
def test_answers_are_those_of_a_table_read_whole(table: Table, where: str) -> None:
    lazy, whole = scan_table(table), table.to_arrow()
    query = "SELECT id, city FROM {} WHERE {} ORDER BY id"
    assert (
        duckdb.execute(query.format("lazy", where)).fetchall()
        == duckdb.execute(query.format("whole", where)).fetchall()
    )
    assert (
        duckdb.execute(query.format('"table"', where)).fetchall()
        == duckdb.execute(query.format("whole", where)).fetchall()
    )
    del lazy, whole
