"""Values that SQL texts compute, inside of other values too: what DuckDB computes of the same rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Rules, Table
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.read.conditions import is_element_wise
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql import Condition
from crdt_mor.store import MemoryStore

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("n", pa.int64()), ("s", pa.string()), ("p", pa.string()), ("b", pa.bool_()),
        ("d", pa.date32()), ("ts", pa.timestamp("us")), ("tm", pa.time64("us")),
        ("st", pa.struct([("a", pa.int64()), ("d", pa.date32())])), ("m", pa.map_(pa.string(), pa.int64())),
        ("deep", pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))), ("times", pa.list_(pa.time64("us"))),
    ]
)  # fmt: skip
TIMES = [dt.time(12, 30), dt.time(1, 2, 3, 500000), dt.time(23, 59, 59, 999999), dt.time(0), dt.time(0, 0, 0, 1)]


def some(number: int) -> dict[str, Any]:
    """A row; the first is null in every column, and the others in some."""
    moment = dt.datetime(2026, 1, 31, 12, 34, 56, 789012) + dt.timedelta(days=40 * number, hours=7 * number)  # noqa: DTZ001
    values = {
        "n": number,
        "s": ["", "aéb", "2026-01-31", "b a", "é"][number - 1],
        "p": ["b", "é", "a", None, "x"][number - 1],
        "b": number % 2 == 0,
        "d": moment.date(),
        "ts": moment,
        "tm": TIMES[number - 1],
        "st": {"a": number, "d": moment.date()},
        "m": [("k", number), ("z", None)][: number % 3],
        "deep": [("k", [("a", number)])][: number % 2],
        "times": TIMES[: number - 1],
    }
    return {"id": number, **(dict.fromkeys(values) if number == 0 else values)}


ROWS = pa.Table.from_pylist([some(number) for number in range(6)], SCHEMA)
FRAME = pl.DataFrame(pl.from_arrow(ROWS))

LIKE_DUCKDB = {
    "times of day as texts": [
        "CAST(tm AS VARCHAR)",
        "tm::VARCHAR",
        "TRY_CAST(tm AS VARCHAR)",
        "tm || ''",
        "s || tm",
        "CONCAT(tm, 'x')",
        "CONCAT_WS('-', tm, s)",
        "CASE WHEN b THEN CAST(tm AS VARCHAR) ELSE s END",
        "CAST(tm AS VARCHAR) = '01:02:03.5'",
        "LENGTH(CAST(tm AS VARCHAR))",
        "CAST(CAST(ts AS TIME) AS VARCHAR)",
        "LEFT(CAST(tm AS VARCHAR), 5)",
        "CAST(COALESCE(tm, TIME '10:00:00.25') AS VARCHAR)",
        "UPPER(CAST(tm AS VARCHAR)) || 'x'",
        "tm > TIME '10:00:00'",
        "CAST(tm AS VARCHAR) LIKE '%.5'",
        "REPLACE(CAST(tm AS VARCHAR), ':', '')",
        "CAST(CAST(tm AS VARCHAR) AS VARCHAR)",
    ],
    "null for null": [
        "STRPOS(s, 'b')",
        "STRPOS(s, p)",
        "POSITION('b' IN s)",
        "POSITION(p IN s)",
        "1 + STRPOS(s, 'b') * 2",
        "LEFT(s, 0)",
        "LEFT(s, n)",
        "LEFT('abc', n)",
        "LEFT('abc', -1)",
        "LEFT(s, -n)",
        "RIGHT(s, 0)",
        "RIGHT('abc', n)",
        "RIGHT('ab', 3)",
        "RIGHT(s, -1)",
        "LEFT(s, NULL)",
        "SUBSTR('abc', 1, n)",
        "SUBSTR(s, 2)",
        "SUBSTRING(s FROM 2 FOR 1)",
        "SUBSTR(s, n)",
        "SPLIT_PART(s, '-', 2)",
        "SPLIT_PART('a,b', ',', n)",
        "LEFT(s, 0) = ''",
        "COALESCE(LEFT(s, 0), 'none')",
        "CASE WHEN STRPOS(s, 'b') > 0 THEN LEFT(s, STRPOS(s, 'b')) ELSE 'x' END",
        "STRPOS(s, '')",
        "LEFT(NULL, 0)",
        "RIGHT(NULL, 0)",
        "LEFT(NULL, 0) = ''",
        "COALESCE(LEFT(NULL, 0), 'none')",
        "STRPOS(NULL, 'b')",
        "STRPOS(s, NULL)",
        "POSITION(s IN NULL)",
    ],
    "DATE_TRUNC": [
        *(f"DATE_TRUNC('{unit}', d)" for unit in ("year", "quarter", "month", "week", "day", "hour")),
        *(f"DATE_TRUNC('{unit}', ts)" for unit in ("year", "quarter", "MONTH", "week", "day", "hour", "minute")),
        "DATE_TRUNC('second', ts)",
        "DATE_TRUNC('millisecond', ts)",
        "DATE_TRUNC('microsecond', ts)",
        "DATE_TRUNC('month', d) = '2026-03-01'",
        "DATE_TRUNC('month', st.d)",
        "DATE_TRUNC('month', d + INTERVAL '1 month')",
        "COALESCE(DATE_TRUNC('month', d), DATE '2020-01-01')",
        "EXTRACT(day FROM DATE_TRUNC('month', d))",
        "DATE_TRUNC('month', COALESCE(d, DATE '2026-05-05'))",
        "CAST(DATE_TRUNC('month', ts) AS DATE) = '2026-03-01'",
        "DATE_TRUNC('day', ts) BETWEEN '2026-02-01' AND '2026-05-01'",
    ],
    "a date or a moment inside of a value": [
        "CASE WHEN d > '2026-04-01' THEN d END",
        "CASE WHEN d > '2026-04-01' AND b THEN 1 ELSE 2 END",
        "CASE WHEN d = '2026-03-12' THEN 'x' WHEN d < '2026-06-01' THEN 'y' ELSE 'z' END",
        "COALESCE(d > '2026-04-01', TRUE)",
        "CASE WHEN ts >= '2026-04-01 12:00:00' THEN 1 END",
        "CASE d WHEN '2026-03-12' THEN 1 WHEN '2026-04-22' THEN 2 ELSE 3 END",
        "CASE d WHEN '2026-03-12' THEN 1 END",
        "CASE WHEN d IN ('2026-03-12', '2026-04-22') THEN b ELSE d IS NULL END",
        "CASE ts WHEN '2026-03-12 19:34:56.789012' THEN b ELSE d > '2026-06-01' END",
        "IF(d > '2026-04-01', 1, 0)",
        "CASE WHEN st.d = '2026-03-12' THEN TRUE END",
        "NULLIF(d > '2026-04-01', b)",
        "(d > '2026-04-01') = b",
        "CASE WHEN CASE WHEN d > '2026-04-01' THEN b ELSE d < '2026-03-15' END THEN 1 ELSE 0 END",
        "(d > '2026-04-01' IS TRUE) = b",
        "CASE WHEN NOT (d BETWEEN '2026-03-01' AND '2026-05-01') THEN 1 END",
        "CASE WHEN s = '2026-01-31' THEN 1 END",
        "CAST(d > '2026-04-01' AS INT)",
        "n + CASE WHEN d > '2026-04-01' THEN 1 ELSE 0 END",
        "CASE WHEN d > '2026-04-01' IS NOT TRUE THEN 1 END",
        "CASE WHEN d IS DISTINCT FROM '2026-03-12' AND b THEN 1 END",
        "(CASE WHEN d > '2026-04-01' THEN n END) > 3 OR b",
        "COALESCE(TRY_CAST(s AS DATE), d)",
        "CASE WHEN TRY_CAST(s AS DATE) = '2026-01-31' THEN 1 ELSE 0 END",
        "TRY_CAST(s AS TIMESTAMP) < ts",
        "CASE WHEN d > '2026-04-01' THEN d ELSE DATE '2020-01-01' END = d",
    ],
    "maps and structs": [
        "m['k']",
        "m['k'] + 1",
        "m['q']",
        "m['z'] IS NULL",
        "deep['k']['a']",
        "COALESCE(m['k'], 7)",
        "m[s]",
        "st['a']",
        "st['d'] = '2026-03-12'",
        "CASE WHEN m['k'] > 2 THEN m['k'] END",
        "m['k'] IN (1, 4)",
        "NOT m['k'] = 1",
        "-m['k']",
        "m['k'] BETWEEN 1 AND 3",
        "m IS NULL",
        "m['k'] = n OR b",
        "CAST(m['k'] AS VARCHAR)",
        "m [ 'k' ] * st . a",
    ],
}


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("arrow", ROWS)
    connection.execute("CREATE TABLE rows AS FROM arrow")
    return connection


def _as_moment(value: object) -> object:
    """DuckDB truncates a date to a date or a moment, by its release."""
    return dt.datetime(value.year, value.month, value.day) if type(value) is dt.date else value  # noqa: DTZ001


@pytest.mark.parametrize("kind", LIKE_DUCKDB)
def test_value_of_sql_is_the_value_of_duckdb(engine: duckdb.DuckDBPyConnection, kind: str) -> None:
    wrong = []
    for text in LIKE_DUCKDB[kind]:
        made = Condition(text, Inputs(FRAME)).expression()
        found = FRAME.select(pl.col("id"), made.alias("value"))["value"].to_list()
        wanted = [value for (value,) in engine.execute(f"SELECT {text} FROM rows ORDER BY id").fetchall()]
        if [*map(_as_moment, found)] != [*map(_as_moment, wanted)]:
            wrong.append((text, found, wanted))
        assert is_element_wise(made.is_null(), FRAME.schema), text
    assert not wrong


def made_table() -> Table:
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=MemoryStore()))
    table.upsert(ROWS)
    return table


def column(table: Table, name: str) -> list[Any]:
    return [row[name] for row in sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])]


def test_such_values_mean_the_same_in_updates_filters_checks_and_merges() -> None:
    table = made_table()
    table.update({"s": "CAST(tm AS VARCHAR)", "n": "STRPOS(p, 'x')", "d": "DATE_TRUNC('month', d)"}, where="m['k'] = 1")
    assert (column(table, "s")[1], column(table, "n")[1], column(table, "d")[1]) == ("12:30:00", 0, dt.date(2026, 3, 1))
    table.update({"n": "STRPOS(p, 'x')", "s": "LEFT(p, 0)"})
    assert column(table, "n") == [None, 0, 0, 0, None, 1]
    assert column(table, "s") == [None, "", "", "", None, ""]
    assert table.scan(filter="LEFT(p, 0) = ''").count() == 4
    condition = "CASE WHEN source.d > '2026-04-01' THEN source.m['k'] > 3 ELSE FALSE END"
    done = table.merge(ROWS, on="id").when_matched_update({"n": "source.m['k']"}, condition).execute()
    assert (done.clauses, column(table, "n")[4:]) == ((2,), [4, 5])
    table.add_rules(Rules(check={"month": "COALESCE(DATE_TRUNC('month', d) > '2020-01-01' AND m['k'] < 9, TRUE)"}))
    assert table.count() == 6


def test_time_in_a_zone_is_truncated_in_that_zone() -> None:
    noon = dt.datetime(2026, 7, 1, 22, 30, tzinfo=dt.UTC)
    frame = pl.DataFrame({"z": pl.Series([noon]).dt.convert_time_zone("Europe/Berlin")})
    made = Condition("DATE_TRUNC('day', z)", Inputs(frame)).expression()
    assert frame.select(made).item() == dt.datetime(2026, 7, 1, 22, tzinfo=dt.UTC)


REFUSED = {
    "DATE_TRUNC('fortnight', d) = d": "pass a unit.*'month'.*sql=DATE_TRUNC",
    "DATE_TRUNC(s, d) = d": "pass a unit",
    "DATE_TRUNC('month', n) = 1": "needs a date or a timestamp.*type=Int64",
    "DATE_TRUNC('month', nope) = d": "names unknown columns.*unknown=\\['nope'\\]",
    "m['k']['a'] = 1": "List",
    "st['nope'] = 1": "no such field",
    "COALESCE(n, CASE WHEN ts > '2026-01-02 12:00+05:00' THEN 1 END": "not an SQL condition",
}


@pytest.mark.parametrize("text", REFUSED)
def test_value_that_cannot_be_computed_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(InvalidInputError, match=REFUSED[text]):
        made_table().scan(filter=text)


# --- maps -------------------------------------------------------------------------------------------------------------


def test_update_and_merge_set_a_map_to_a_python_value() -> None:
    table = made_table()
    table.update({"m": {"a": 1, "b": None}, "deep": {"x": {"y": 2}}}, where="id = 1")
    table.update({"m": [("q", 3)], "deep": {}}, where="id = 2")
    source = ROWS.slice(3, 1)
    table.merge(source, on="id").when_matched_update({"m": {"z": 9}}).execute()
    table.merge(pa.table({"id": [9]}), on="id").when_not_matched_insert({"id": "source.id", "m": {"new": 1}}).execute()
    assert column(table, "m")[1:4] == [[("a", 1), ("b", None)], [("q", 3)], [("z", 9)]]
    assert column(table, "deep")[1:3] == [[("x", [("y", 2)])], []]
    assert column(table, "m")[-1] == [("new", 1)]


def test_update_sets_a_map_that_polars_makes_of_the_row() -> None:
    table = made_table()
    entries = pl.concat_list(pl.struct(key=pl.lit("n"), value=pl.col("n")))
    table.update({"m": entries.cast(pl.Map(pl.String, pl.Int64))}, where="id > 3")
    assert column(table, "m")[4:] == [[("n", 4)], [("n", 5)]]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 1.5}, "cannot hold this value unchanged"),
        ({"a": 2**63}, "cannot hold this value unchanged"),
        ({"a": "x"}, "another type"),
        ({1: 1}, "invalid new value"),
        ([("a", 1), ("a", 2)], "must not repeat a key"),
    ],
)
def test_map_that_the_column_cannot_hold_is_refused(value: object, why: str) -> None:
    table = made_table()
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=why):
        table.update({"m": value})
    assert column(table, "m") == ROWS["m"].to_pylist()
