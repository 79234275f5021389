"""SQL means the same in filters, checks, new values and conditions of a merge: what DuckDB says of the same rows."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Rules, Table
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql import Condition
from crdt_mor.store import MemoryStore

BERLIN = "Europe/Berlin"
ZONED = pa.timestamp("us", BERLIN)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("n", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("d", pa.date32()),
        ("z", ZONED), ("st", pa.struct([("a", pa.int64()), ("z", ZONED)])), ("said", pa.bool_()),
    ]
)  # fmt: skip


def some(number: int) -> dict[str, Any]:
    moment = dt.datetime(2026, 1, 1 + number, tzinfo=dt.UTC)
    values = {"n": number, "s": "x" * number, "b": number > 1, "d": moment.date(), "z": moment}
    nested = None if number == 3 else {"a": number, "z": moment}
    return {"id": number, **(dict.fromkeys(values) if number == 4 else values), "st": nested, "said": None}


ROWS = pa.Table.from_pylist([some(number) for number in range(5)], SCHEMA)


def made() -> Table:
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=MemoryStore()))
    table.upsert(ROWS)
    return table


@pytest.fixture(scope="module")
def table() -> Table:
    """For tests that change nothing."""
    return made()


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    """DuckDB, with the same rows; moments are naive and in UTC, since its zones come with an extension."""
    naive = [
        row | {"z": row["z"] and row["z"].replace(tzinfo=None), "st": row["st"] and _without_zone(row["st"])}
        for row in (some(number) for number in range(5))
    ]
    plain = pa.struct([("a", pa.int64()), ("z", pa.timestamp("us"))])
    kinds = {"z": pa.timestamp("us"), "st": plain}
    connection = duckdb.connect()
    schema = pa.schema([pa.field(field.name, kinds.get(field.name, field.type)) for field in SCHEMA])
    connection.register("arrow", pa.Table.from_pylist(naive, schema))
    connection.execute("CREATE TABLE rows AS FROM arrow")
    return connection


def _without_zone(struct: dict[str, Any]) -> dict[str, Any]:
    return struct | {"z": struct["z"].replace(tzinfo=None)}


BESIDE_A_ZONE = [
    "z = '2026-01-02 00:00:00Z'",
    "z > '2026-01-02 00:00:00Z'",
    "z > TIMESTAMPTZ '2026-01-02 00:00:00Z'",
    "z BETWEEN '2026-01-02 00:00:00Z' AND '2026-01-03 00:00:00Z'",
    "z IN ('2026-01-02 00:00:00Z')",
    "NOT z = '2026-01-02 00:00:00Z'",
    "st.z = '2026-01-02 00:00:00Z'",
    "st.z > '2026-01-02 00:00:00Z' AND n > 0",
]
WITH_A_NULL = [
    "n = NULL",
    "n <> NULL",
    "n BETWEEN NULL AND 2",
    "n NOT BETWEEN NULL AND 0",
    "(n BETWEEN NULL AND 0) IS NULL",
    "CASE n WHEN 1 THEN TRUE WHEN NULL THEN FALSE END",
    "COALESCE(n > NULL, TRUE)",
    "CASE WHEN n = NULL THEN FALSE ELSE TRUE END",
    "NULLIF(n, NULL) = 1",
    "st.a = NULL",
    "st.a BETWEEN NULL AND 1",
    "d > NULL",
    "d = '2026-01-02' OR n = NULL",
    "s LIKE 'x' AND n = NULL",
    "(n = NULL) = (n = 1)",
    "(n = NULL) IS NOT DISTINCT FROM (s = NULL)",
]


def of_duckdb(engine: duckdb.DuckDBPyConnection, text: str) -> dict[int, Any]:
    in_utc = text.replace("Z'", "'").replace("TIMESTAMPTZ", "TIMESTAMP")
    return dict(engine.execute(f"SELECT id, ({in_utc}) FROM rows").fetchall())


@pytest.mark.parametrize("condition", [*BESIDE_A_ZONE, *WITH_A_NULL])
def test_filter_beside_a_zone_or_a_null_shows_the_rows_of_duckdb(
    table: Table, engine: duckdb.DuckDBPyConnection, condition: str
) -> None:
    wanted = [key for key, holds in of_duckdb(engine, condition).items() if holds]
    assert sorted(table.scan(filter=condition).to_arrow()["id"].to_pylist()) == wanted


def test_update_beside_a_zone_or_a_null_sets_the_values_of_duckdb(engine: duckdb.DuckDBPyConnection) -> None:
    for text in ["z > '2026-01-02 00:00:00Z'", "st.z = '2026-01-02 00:00:00Z'", "n = NULL", "COALESCE(n > NULL, b)"]:
        table = made()
        table.update({"said": text})
        assert {row["id"]: row["said"] for row in table.to_arrow().to_pylist()} == of_duckdb(engine, text)


def test_merge_and_check_take_conditions_beside_a_zone_or_a_null() -> None:
    table = made()
    source = ROWS.drop_columns("said").set_column(1, "n", pa.array([7] * 5, pa.int64()))
    for condition, met in [("source.z > '2026-01-02 00:00:00Z'", 2), ("(target.n = NULL) IS NULL", 5)]:
        done = table.merge(source, on="id").when_matched_update({"n": "source.n"}, condition).execute()
        assert done.clauses == (met,)
    table.add_rules(Rules(check={"old": "st.z < '2027-01-01 00:00:00Z'", "unknown": "COALESCE(n = NULL, TRUE)"}))
    assert table.count() == 5


def test_condition_with_an_aggregate_beside_a_null_is_refused(table: Table) -> None:
    for text in ("n = NULL AND n = MAX(n)", "COALESCE(n = NULL, n = MAX(n))", "MAX(NULL) = n"):
        with pytest.raises(InvalidInputError, match="element-wise"):
            table.scan(filter=text)


def test_moment_in_a_zone_is_the_same_moment_when_clocks_go_back_and_at_the_ends_of_the_calendar() -> None:
    columns = pl.Schema({"z": pl.Datetime("us", BERLIN)})
    texts = ("2026-10-25 00:30:00", "2026-10-25 01:30:00", "9999-12-31 23:30:00", "0001-01-01 00:30:00")
    for text in texts:
        moment = dt.datetime.fromisoformat(f"{text}+00:00")
        rows = pl.DataFrame({"z": pl.Series([moment]).dt.convert_time_zone(BERLIN)})
        assert rows.filter(Condition(f"z = '{text}Z'", Inputs.of_types(columns)).expression()).height == 1


def test_update_with_a_moment_of_another_zone_says_that_types_differ() -> None:
    noon = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
    table = made()
    with pytest.raises(InvalidInputError, match=r"values of different types are compared|a moment with"):
        table.update({"said": pl.col("z") > noon})
    table.update({"said": pl.col("z") > noon.astimezone(ZoneInfo(BERLIN))})
    assert table.scan(filter="said").count() == 2
