"""SQL conditions: of every form a scan shows the rows that DuckDB shows of the same data, or says that it does not."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.cli.main import app
from crdt_mor.columns.schema import TableSchema
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.pushdown import parquet_form
from crdt_mor.read.sql import Condition
from crdt_mor.read.sql_tokens import tokens_of
from crdt_mor.store import MemoryStore
from tests.tiers import long, one_in, slow

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("d", pa.date32()),
        ("n", pa.timestamp("us")), ("ms", pa.timestamp("ms")), ("u", pa.timestamp("us", "UTC")),
        ("z", pa.timestamp("us", "Europe/Berlin")), ("user", pa.struct([("id", pa.int64()), ("d", pa.date32())])),
    ]
)  # fmt: skip
NOON = dt.datetime(2026, 1, 2, 12)  # noqa: DTZ001


def some(number: int) -> dict[str, Any]:
    """A row, in every column of which null is now and then."""
    moment = NOON + dt.timedelta(hours=number - 12)
    values = {
        "v": number % 4, "s": f"2026-01-0{1 + number % 3}", "b": number % 2 == 0, "d": moment.date(),
        "n": moment + dt.timedelta(microseconds=number % 2), "ms": moment, "u": moment.replace(tzinfo=dt.UTC),
        "z": moment.replace(tzinfo=dt.UTC), "user": {"id": number, "d": moment.date()},
    }  # fmt: skip
    return {"id": number, **{name: None if (number + i) % 5 == 0 else v for i, (name, v) in enumerate(values.items())}}


ROWS = pa.Table.from_pylist([some(number) for number in range(40)], SCHEMA)


@pytest.fixture(scope="module")
def table() -> Table:
    """Forty rows, some in a base file alone, some in logs, and some in both."""
    found = Table.create("events", SCHEMA, key="id", buckets=2, opening=Opening(store=MemoryStore()))
    found.upsert(ROWS.slice(0, 30))
    found.maintenance.compact()
    found.upsert(ROWS.slice(25, 15))
    return found


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    """DuckDB, with the same rows; moments in UTC without a zone, as its zones come with an extension."""
    connection = duckdb.connect()
    naive = {name: ROWS[name].cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")) for name in ("u", "z")}
    connection.register("arrow", pa.table({name: naive.get(name, ROWS[name]) for name in SCHEMA.names}))
    connection.execute("CREATE TABLE rows AS FROM arrow")
    return connection


def shown(table: Table, condition: str | pl.Expr) -> list[int]:
    found: list[int] = sorted(table.scan(columns=["id"], filter=condition).to_arrow()["id"].to_pylist())
    assert table.scan(filter=condition).count() == len(found)
    return found


def of_duckdb(engine: duckdb.DuckDBPyConnection, condition: str) -> list[int]:
    in_utc = re.sub(r"'([^']*:\d\d[^']*(?:Z|[+-]\d+:?\d*))'", _in_utc, condition)
    in_utc = re.sub("TIMESTAMPTZ|TIMESTAMP WITH TIME ZONE", "TIMESTAMP", in_utc).replace("user.", '"user".')
    return [key for (key,) in engine.execute(f"SELECT id FROM rows WHERE {in_utc} ORDER BY id").fetchall()]


def _in_utc(text: re.Match[str]) -> str:
    """A moment with an offset in UTC, without: DuckDB leaves the offset of a TIMESTAMP out."""
    return f"'{dt.datetime.fromisoformat(text[1]).astimezone(dt.UTC).replace(tzinfo=None)}'"


# --- forms one by one -------------------------------------------------------------------------------------------------

LIKE_DUCKDB = [
    "n < TIMESTAMP '2026-01-02 12:00:00+05:00'",
    "n < TIMESTAMP '2026-01-02 12:00:00Z'",
    "u < TIMESTAMP '2026-01-02 12:00:00+05:00'",
    "u < TIMESTAMPTZ '2026-01-02 12:00:00+05:00'",
    "u >= TIMESTAMP WITH TIME ZONE '2026-01-02 12:00:00-0330'",
    "u = CAST('2026-01-02 12:00:00+05' AS TIMESTAMPTZ)",
    "u <> '2026-01-02 12:00:00+05:00'::TIMESTAMPTZ",
    "z > TIMESTAMPTZ '2026-01-02 12:00:00+05:00'",
    "z IN (TIMESTAMPTZ '2026-01-02 12:00:00+05:00', '2026-01-02T13:00:00Z')",
    "u IN ('2026-01-02 12:00:00+05:00', '2026-01-02 13:00:00')",
    "ms < TIMESTAMP '2026-01-02 12:00:00.000001' AND ms >= '2026-01-02 12:00:00'",
    "ms = TIMESTAMP '2026-01-02 12:00:00.000001' OR ms > '2026-01-02T13:00'",
    "n = '2026-01-02 13:00:00.000001'",
    "d = '2026-01-02'",
    "'2026-01-02' < d",
    "d <> '2026-01-02'",
    "d BETWEEN '2026-01-02' AND '2026-01-03'",
    "d NOT BETWEEN '2026-01-02' AND '2026-01-02' OR d IS NULL",
    "'2026-01-02' BETWEEN d AND d",
    "d IN ('2026-01-02', NULL)",
    "d NOT IN ('2026-01-02', NULL)",
    "(TIMESTAMPTZ '2026-01-02 12:00:00Z' IN (NULL)) IS NULL",
    "NOT CAST('2026-01-02 12:00:00+00:00' AS TIMESTAMPTZ) IN (NULL, NULL)",
    "d NOT IN ('2026-01-02', '2026-01-01')",
    "NOT d IN ('2026-01-02') AND s = '2026-01-02'",
    "CASE WHEN (b IS DISTINCT FROM TRUE) AND v = 1 THEN TRUE ELSE COALESCE((v IS DISTINCT FROM 1), b) END",
    "CASE WHEN v IS DISTINCT FROM 1 THEN b AND v < 3 ELSE b OR v = 1 END",
    "CASE WHEN v > 1 THEN b ELSE v = 0 END AND d > '2026-01-01'",
    "d + INTERVAL '1 day' > '2026-01-03'",
    "u >= '2026-01-02' AND u < '2026-01-02 06:00'",
    "user.id > 10 AND user.d = '2026-01-02'",
    "CASE WHEN b IS NOT TRUE THEN TRUE ELSE FALSE END",
    "CASE b IS FALSE WHEN FALSE THEN v > 1 END",
    "(b IS TRUE) <> TRUE",
    "(b IS TRUE) IS NULL",
    "b IS FALSE = FALSE",
    "b IS TRUE IS NOT NULL",
    "TRUE = NOT b IS TRUE",
    "b <> NOT v = 1 IS NOT FALSE",
    "(v = 1 IS UNKNOWN) = b",
    "v BETWEEN 1 AND 2 IS NOT TRUE = b",
    "COALESCE(NOT s LIKE '%2' IS TRUE AND v NOT BETWEEN 0 AND 1 IS FALSE, b)",
    "(((b IS TRUE))) IN (v = 1 IS TRUE, b)",
    "(v IS NULL) = (b IS TRUE)",
    "CAST(b IS UNKNOWN AS BIGINT) = 1",
    "TRY_CAST(s AS DATE) = d",
    "TRY_CAST(s AS DATE) IN ('2026-01-02', d) OR TRY_CAST(s AS TIMESTAMP) IS NULL",
    "TRY_CAST(s AS TIMESTAMP) > '2026-01-01 12:00'",
    "TRY_CAST(s || ' 12:00:00.000001' AS TIMESTAMP) BETWEEN n AND TIMESTAMP '2026-01-03 00:00:00'",
    "TRY_CAST(s || 'T12:00:00' AS DATE) IS DISTINCT FROM d",
    "TRY_CAST('x' || s AS DATE) IS NOT NULL OR TRY_CAST('2026-01-02' AS DATE) = d",
    "s NOT IN ('a', '') OR s IN ('it''s', '2026-01-02') OR COALESCE('(', ')') = s",
    "v IN (1, -2, 3.0) AND COALESCE(v, 1, 2) = 1",
    "v NOT IN (0.5, CAST(2 AS DECIMAL(5, 0)))",
    "v NOT IN (CAST(1 AS INTEGER), 0.5, NULL)",
    "v + 0.5 IN (CAST(1 AS SMALLINT), 1.5, TRY_CAST('2.5' AS DECIMAL(4, 2)))",
    "v IS NOT TRUE",
    "b IS TRUE",
    "b IS NOT TRUE",
    "b IS NOT FALSE",
    "NOT ((v = NULL) IS TRUE)",
    "v = 1 IS NOT TRUE",
    "b IS NOT DISTINCT FROM TRUE OR v IS DISTINCT FROM 1 AND v < 2",
    "v IS DISTINCT FROM 1 AND d IS NOT DISTINCT FROM '2026-01-02'",
    "v = 1 OR NULL",
    "NOT (v = 1 AND NULL)",
    "v = 1 AND NULL OR v = 2",
    "v BETWEEN NULL AND 1",
    "v NOT BETWEEN NULL AND 1",
    "NOT v NOT IN (1, NULL)",
    "NOT NOT NOT v = 1 OR NOT NOT b",
    "v = 1 -- a remark: OR 'x\n OR v = 2 /* AND 'y */",
    "s = 'it''s' OR s >= '2026-01-03'",
]


@pytest.mark.costly
@pytest.mark.parametrize("condition", one_in(3, LIKE_DUCKDB))
def test_a_condition_holds_for_the_rows_for_which_it_does_in_duckdb(
    table: Table, engine: duckdb.DuckDBPyConnection, condition: str
) -> None:
    assert shown(table, condition) == shown(table, f"({condition})") == of_duckdb(engine, condition)
    assert shown(table, f"NOT ({condition})") == of_duckdb(engine, f"NOT ({condition})")


REFUSED = {
    "a moment without a zone, for a zone but UTC": ("z > '2026-01-02'", r"add an offset.*\+00:00'. zone=Europe"),
    "a moment finer than any": ("n = TIMESTAMP '2026-01-02 12:00:00.000000001'", "microsecond precision"),
    "an offset in a function": ("COALESCE(n, CAST('2026-01-02 12:00+05' AS TIMESTAMP)) > n", "one whole side"),
    "a word of SQL": ("current_user.id = 1", 'double quotes, "user".id'),
    "a difference that is compared": ("(v IS DISTINCT FROM 1 = b) = TRUE", "put brackets around it"),
    "a difference inside of a function": ("COALESCE(v IS DISTINCT FROM 1 AND b, FALSE)", "put brackets around it"),
    "a text in other quotes": ("s = $$x$$ AND v = 1", "in single quotes|not an SQL condition|unsupported"),
    "nothing after AND": ("v = 1 AND", "not an SQL condition"),
}


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_a_text_that_goes_on_after_a_date_is_no_date(table: Table, kind: str) -> None:
    """DuckDB before 2.0 takes the date that it begins with."""
    assert shown(table, f"TRY_CAST(s || 'x' AS {kind}) IS NOT NULL") == []
    assert shown(table, f"TRY_CAST(s || '' AS {kind}) IS NOT NULL") == shown(table, "s IS NOT NULL")


@pytest.mark.parametrize(("condition", "why"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_taken_otherwise_is_refused(table: Table, condition: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        table.scan(filter=condition)


@pytest.mark.parametrize(
    ("join", "term"), [("OR", "v = {}"), ("AND", "v <> {}"), ("OR", "v + 1 = {} AND b"), (",", "")]
)
def test_many_conditions_in_a_row_are_no_deep_expression(join: str, term: str) -> None:
    terms = [f"TIMESTAMP '2026-01-02 12:00:{n % 60:02}'" if not term else term.format(n) for n in range(100)]
    text = f" {join} ".join(terms)
    columns = pl.Schema({"v": pl.Int64(), "b": pl.Boolean(), "n": pl.Datetime("us"), "ms": pl.Datetime("ms")})
    condition = Condition(text if term else f"n IN ({text}, ms)", Inputs.of_types(columns)).expression()
    in_parquet = parquet_form(condition, TableSchema.of(SCHEMA))
    assert max(map(depth, [condition, condition if in_parquet is None else in_parquet])) < 15


@pytest.mark.parametrize("listed", ["( 1,-2 , 3.5)", "('a', 'it''s', '', '20', ')')"])
def test_a_list_of_literals_is_one_token(listed: str) -> None:
    """A token for each took more time than all else that is done with `id IN (…)`."""
    assert [token.text for token in tokens_of(f"id IN {listed} ") or ()] == ["ID", "IN", listed]


def depth(condition: pl.Expr) -> int:
    """How many expressions lie in one another, polars' own list of what lies in each taken level by level."""
    level, found = [condition], 0
    while level:
        level, found = [part for one in level for part in one.meta.pop()], found + 1
    return found


def test_a_text_beside_a_date_spares_row_groups_as_a_date_does(table: Table) -> None:
    for text, date in (("d = '2026-01-02'", "d = DATE '2026-01-02'"), ("d > '2026-01-02'", "d > DATE '2026-01-02'")):
        assert table.scan(filter=text).explain() == table.scan(filter=date).explain()
    assert table.scan(filter="u > '2026-01-02' AND d IN ('2026-01-02')").explain().late is None


def test_other_doors_take_sql_in_the_same_way(fast_path: Path) -> None:
    found = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    found.upsert(ROWS)
    condition = "d = '2026-01-02' AND u < TIMESTAMP '2026-01-02 12:00:00+05:00' AND b IS NOT TRUE"
    wanted = sorted(row["id"] for row in ROWS.to_pylist() if _is_meant(row))
    assert wanted
    done = CliRunner().invoke(app, ["count", found.uri, "--where", condition])
    assert (done.exit_code, int(done.stdout)) == (0, len(wanted))
    assert found.delete(where=condition).deletes == len(wanted)
    assert found.count() == ROWS.num_rows - len(wanted)


def _is_meant(row: dict[str, Any]) -> bool:
    early = row["u"] is not None and row["u"] < dt.datetime(2026, 1, 2, 7, tzinfo=dt.UTC)
    return row["d"] == dt.date(2026, 1, 2) and early and row["b"] is not True


def test_an_open_end_of_an_interval_is_no_other_row(table: Table) -> None:
    v = pl.col("v")
    for condition in (v.is_between(None, 5), v.is_between(2, None), ~v.is_between(None, 1), (v == 1) | pl.lit(None)):
        whole = table.scan().to_polars().filter(condition)
        assert shown(table, condition) == sorted(whole["id"])


# --- any form ---------------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["2026-01-01", "2026-01-02", "2026-01-03"])
HOURS = st.sampled_from(["2026-01-02 00:00:00", "2026-01-02T12:00:00", "2026-01-02 13:00:00.000001"])
OFFSETS = st.sampled_from(["Z", "+05:00", "-0330", "+00"])


def quoted(text: str) -> str:
    return f"'{text}'"


DATES = st.one_of(TEXTS.map(quoted), TEXTS.map(lambda text: f"DATE '{text}'"))
NAIVE = st.one_of(HOURS.map(quoted), HOURS.map(lambda t: f"TIMESTAMP '{t}'"), TEXTS.map(quoted))
INSTANTS = st.builds(lambda kind, at, off: f"{kind} '{at}{off}'", st.sampled_from(["", "TIMESTAMPTZ"]), HOURS, OFFSETS)
SHIFTED = st.builds(lambda at, off: f"TIMESTAMP '{at}{off}'", HOURS, OFFSETS)
VALUES = {
    "v": st.sampled_from(["0", "1", "2", "1.5", "CAST(1 AS DECIMAL(5, 0))", "CAST(0.5 AS DECIMAL(4, 2))"]),
    "s": TEXTS.map(quoted),
    "b": st.sampled_from(["TRUE", "FALSE"]),
    "d": DATES,
    "n": st.one_of(NAIVE, SHIFTED),
    "ms": st.one_of(HOURS.map(lambda t: f"TIMESTAMP '{t}'"), TEXTS.map(quoted), SHIFTED),
    "u": st.one_of(HOURS.map(quoted), TEXTS.map(quoted), INSTANTS),
    "z": INSTANTS,
}


@st.composite
def predicates(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(sorted(VALUES)))
    value = st.one_of(VALUES[column], st.just("NULL")) if draw(st.integers(0, 4)) == 0 else VALUES[column]
    match draw(st.sampled_from(["=", "compared", "between", "in", "null", "distinct", "truth", "literal", "mirrored"])):
        case "=":
            return f"{column} = {draw(value)}"
        case "compared":
            return f"{column} {draw(st.sampled_from(['<>', '!=', '<', '<=', '>', '>=']))} {draw(value)}"
        case "between":
            return f"{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(value)} AND {draw(value)}"
        case "in":
            listed = ", ".join(draw(st.lists(value, min_size=1, max_size=3)))
            return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({listed})"
        case "null":
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case "distinct":
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}DISTINCT FROM {draw(value)}"
        case "truth":
            truth = draw(st.sampled_from(["TRUE", "FALSE"]))
            return f"({column} = {draw(value)}) IS {draw(st.sampled_from(['', 'NOT ']))}{truth}"
        case "literal":
            return draw(st.sampled_from(["NULL", "TRUE", "FALSE", "b"]))
        case _:
            return f"{draw(VALUES[column])} {draw(st.sampled_from(['=', '<', '>=']))} {column}"


TESTS = st.sampled_from([f"{a}{b}" for a in ("", "NOT ") for b in ("TRUE", "FALSE", "UNKNOWN", "NULL")])
NEGATED = st.sampled_from(["", "NOT "])
PLAIN = [
    "b",
    "TRUE",
    "v = 1",
    "v > 1",
    "s LIKE '%2'",
    "v IN (1, NULL)",
    "v NOT BETWEEN 1 AND 2",
    "v IS NULL",
]
LEAVES = st.sampled_from(PLAIN)


def valued(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Conditions that are compared, tested or chosen, as values are."""
    inner = inner.map(lambda text: f"({text})")
    return st.one_of(
        st.builds(lambda a, test: f"{a} IS {test}", inner | LEAVES, TESTS),
        st.builds(
            lambda a, sign, b: f"{a} {sign} {b}", inner, st.sampled_from(["=", "<>", "<", ">=", "AND", "OR"]), inner
        ),
        st.builds(lambda a, negated, b: f"{a} IS {negated}DISTINCT FROM {b}", inner, NEGATED, inner),
        st.builds(lambda a, negated, b, c: f"{a} {negated}IN ({b}, {c})", inner, NEGATED, inner, inner),
        st.builds(lambda a, negated, b, c: f"{a} {negated}BETWEEN {b} AND {c}", inner, NEGATED, inner, inner),
        st.builds(lambda a, test, b: f"COALESCE({a} IS {test} AND {b}, {b} IS {test})", inner, TESTS, inner),
        st.builds(
            lambda a, test, b: f"CASE WHEN {a} IS {test} THEN {b} ELSE NOT {a} IS {test} END", inner, TESTS, inner
        ),
        st.builds(lambda a, test, b: f"CASE {a} IS {test} WHEN {b} THEN b END", inner, TESTS, inner),
    )


CONDITIONS = st.recursive(
    predicates() | st.recursive(LEAVES, valued, max_leaves=4),
    lambda inner: st.one_of(
        st.builds(lambda a, word, b: f"{a} {word} {b}", inner, st.sampled_from(["AND", "OR", "and", "Or"]), inner),
        inner.map(lambda a: f"NOT ({a})"),
        inner.map(lambda a: f"({a})"),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [15, slow(300), long(1000)])
def test_any_condition_holds_for_the_rows_for_which_it_does_in_duckdb(
    table: Table, engine: duckdb.DuckDBPyConnection, examples: int
) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(condition=CONDITIONS)
    def compared(condition: str) -> None:
        assert shown(table, condition) == of_duckdb(engine, condition)

    compared()
