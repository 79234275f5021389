"""Filters that cannot be: each is refused in one line of our own, with what is wrong and what columns there are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from crdt_mor import InvalidInputError, Opening, Rules, Table
from crdt_mor.cli.main import app
from crdt_mor.store import MemoryStore

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("views", pa.int64()), ("price", pa.float64()), ("city", pa.string()),
        ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("place", pa.struct([("x", pa.int64())])),
        ("open", pa.bool_()), ("kind", pa.dictionary(pa.int32(), pa.string())), ("opens", pa.time64("us")),
    ]
)  # fmt: skip
ROW: dict[str, Any] = {
    "id": "a", "views": 1, "price": 1.5, "city": "Rome", "day": dt.date(2026, 1, 31),
    "at": dt.datetime(2026, 1, 31, tzinfo=dt.UTC), "place": {"x": 1}, "open": True, "kind": "k",
    "opens": dt.time(8),
}  # fmt: skip
views, city, day = pl.col("views"), pl.col("city"), pl.col("day")

WRONG: dict[str, tuple[Any, str]] = {
    "an unknown column": ("wiews > 3", "is 'views' meant by 'wiews'.*unknown=\\['wiews'\\]"),
    "an unknown column, polars": (pl.col("nope") > 3, "the table has \\['id', 'views'.*unknown=\\['nope'\\]"),
    "an unknown column in a struct": (pl.struct("views", "nope") == 1, "unknown=\\['nope'\\]"),
    "another case": ("Views > 3", "is 'views' meant by 'Views'"),
    "text in double quotes": ('city = "Rome"', "single quotes, 'Rome'"),
    "a name of the table": ("t.views = 3", "unknown=\\['t'\\]"),
    "text for a number": ("views > 'a'", "number is compared with text.*'views': 'int64'"),
    "text for a number, polars": (views > "a", "number is compared with text"),
    "a number for text": ("city > 3", "number is compared with text.*'city': 'string'"),
    "text that is no date": ("day > '31.01.2026'", "DATE '2026-01-31'"),
    "text that is no day": ("day > '2026-02-30'", "DATE '2026-01-31'"),
    "a moment for a date": ("day IN ('2026-01-31', '2026-01-31 12:00')", "values of different types|DATE '2026-01-31'"),
    "a moment that is finer than any": ("at > '2026-01-31 00:00:00.1234567'", "microsecond precision"),
    "an offset in arithmetic": (
        "at > TIMESTAMP '2026-01-31 05:00:00+05:00' - INTERVAL '1 day'",
        "whole side|TIMESTAMP",
    ),
    "a field of a word of SQL": ("current_user.id = 1", "double quotes"),
    "text for a date, polars": (day > "2026-01-31", "datetime.date\\(2026"),
    "a number for a time of day": ("views = 1 AND NOT (opens > 5 OR views = 2)", "the unit is unclear: write TIME"),
    "a number for a time of day, polars": (pl.col("opens") == 5.5, "datetime.time\\(10, 30\\)"),
    "a duration for a number": (views > dt.timedelta(1), "the unit is unclear"),
    "text for a moment": ("at > 'yesterday'", "compared with text"),
    "a moment without its zone": (pl.col("at") > dt.datetime(2026, 1, 31), "tzinfo=UTC"),  # noqa: DTZ001
    "a moment without its zone, SQL": ("at > TIMESTAMP '2026-01-31'", "tzinfo=UTC"),
    "a date that is none": ("day > DATE '2026-13-01'", "2026-13-01"),
    "a number for a dictionary": (pl.col("kind") > 3, "'kind': 'dictionary"),
    "among texts": ("views IN ('a', 'b')", "another type than the column"),
    "among numbers": (city.is_in([1]), "another type than the column"),
    "among nothing": ("views IN ()", "not an SQL condition"),
    "half a comparison": ("views >", "not an SQL condition; write for example .views > 10"),
    "an aggregate": ("views > AVG(views)", r"element-wise.*delete\(\.\.\.\) or upsert\(\.\.\.\)"),
    "half an and": ("views > 1 AND", "not an SQL condition"),
    "two operators": ("views = = 3", "not an SQL condition.*'views': 'int64'"),
    "nothing": ("", "not an SQL condition"),
    "a query": ("SELECT * FROM t", "without SELECT or WHERE"),
    "a limit": ("views > 1 LIMIT 3", "without SELECT or WHERE"),
    "a column named like a keyword": ("view > 1", "a name like order in double quotes"),
    "a column named like a function": ("user = 'x'", "'user'; put a column of this name in double quotes"),
    "a value behind": ("views > 1 'Rome'", "a name follows a value.*name='Rome'"),
    "a word behind": ("views > 1 city", "a name follows a value.*name='city'"),
    "a word behind, and more": ("views > 1 AND price city > 2 OR city = 'Rome'", "name='city'|not an SQL condition"),
    "a name of its own": ("views > 1 AS more", "a name follows a value.*name='more'"),
    "two statements": ("views > 1; DROP TABLE t", "not an SQL condition"),
    "a subquery": ("views > (SELECT 1)", "subqueries are not supported"),
    "among a subquery": ("views IN (SELECT 1)", "subqueries are not supported"),
    "rows of values": ("(views, open) = (1, TRUE)", "tuples are not supported"),
    "among rows of values": ("(views, price) IN ((1, 1))", "tuples are not supported"),
    "similar": ("city SIMILAR TO 'x'", "a regular expression"),
    "a text with escapes": ("day = E'2026-01-31'", "in single quotes"),
    "another text": ("city = N'Rome'", "polars does not support this SQL"),
    "a path that is none": ("place -> 3 = 1", "polars does not support this SQL"),
    "exists": ("EXISTS (SELECT 1)", "subqueries are not supported"),
    "a parameter": ("views > ?", "parameters are not supported"),
    "an unknown function": ("foo(views) > 1", "'foo'"),
    "an unknown type": ("views::foo > 1", "foo"),
    "no pattern": ("city LIKE 5", "LIKE"),
    "a broken pattern": ("city ~ '['", "not a valid regular expression"),
    "a function of another type": (views.str.contains("a"), "'views': 'int64'"),
    "a part of a date of a number": (views.dt.year() > 3, "'views': 'int64'"),
    "an unknown field": ("place.y > 1", "no such field, 'y'"),
    "an unknown field, polars": (pl.col("place").struct.field("y") > 1, "no such field, 'y'"),
    "a sum of text": ("-city > 1", "'city': 'string'"),
    "not of text": (~city, "AND, OR and NOT take conditions"),
    "and of a number": ("views AND open", "AND, OR and NOT take conditions"),
    "a column": ("views", "must be true or false"),
    "a number": (views + 1, "must be true or false"),
    "many columns": (pl.all() > 1, r"pl\.col\(\.\.\.\) for each"),
    "an element": (pl.element() > 3, "cannot be applied"),
    "an int": (5, "type=int"),
    "a bool": (True, "type=bool"),
    "tuples": ([("views", ">", 3)], "type=list"),
    "a dict": ({"views": 3}, "type=dict"),
    "pyarrow's": (pc.field("views") > 3, "type=Expression"),
    "a function": (len, "type=builtin_function_or_method"),
}
ON_VALUES: dict[str, pl.Expr | str] = {
    "a cast": "CAST(city AS BIGINT) > 0",
    "a cast, polars": city.cast(pl.Int64) > 0,
    "an integer": city.str.to_integer() > 0,
    "a date": city.str.to_date("%Y-%m-%d") > dt.date(2026, 1, 1),
}
TEXT_AS_DATE = ("CAST(city AS DATE) = day", "city::TIMESTAMP IS NULL", "COALESCE(CAST(city AS DATE), day) = day")
POLARS_SAYS = ("Span(", "_POLARS", "Resolved plan", "FAILED HERE", "This error occurred", "context stack", "DF [", "\n")


@pytest.fixture(scope="module")
def table() -> Table:
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=MemoryStore()))
    table.upsert(pa.Table.from_pylist([ROW], SCHEMA))
    return table


def _scanned(table: Table, output: str) -> Callable[..., object]:
    return lambda **given: getattr(table.scan(**given), output)()


def _deleting(table: Table) -> Callable[..., object]:
    return lambda **given: table.delete(where=given["filter"])


@pytest.mark.costly
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_filter_is_refused_in_one_line_that_says_what_is_wrong(table: Table, name: str) -> None:
    wrong, why = WRONG[name]
    for attempt in (table.scan, table.scan().narrowed, _deleting(table)):
        with pytest.raises(InvalidInputError, match=why) as refused:
            attempt(filter=wrong)
        assert not [words for words in POLARS_SAYS if words in str(refused.value)]
    assert table.count() == 1


@pytest.mark.parametrize("name", ON_VALUES)
def test_a_filter_that_fails_on_a_value_says_so_when_it_is_read(table: Table, name: str) -> None:
    for attempt in (*(_scanned(table, output) for output in ("to_polars", "to_arrow", "count")), _deleting(table)):
        with pytest.raises(InvalidInputError, match=r"fails on a value.*Rome.*'city': 'string'") as refused:
            attempt(filter=ON_VALUES[name])
        assert not [words for words in POLARS_SAYS if words in str(refused.value)]
    assert table.count() == 1


@pytest.mark.parametrize("condition", TEXT_AS_DATE)
def test_a_text_that_polars_makes_no_date_is_refused_with_the_form_that_works(table: Table, condition: str) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot be applied.*with TRY_CAST\(… AS DATE\)"):
        table.scan(filter=condition).count()
    assert table.scan(filter="TRY_CAST(city AS DATE) IS NULL AND TRY_CAST('2026-01-31' AS DATE) = day").count() == 1
    assert table.scan(filter="COALESCE(TRY_CAST(city AS DATE), day) = day").count() == 1


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("Total Sales > 2", '"Total Sales"'),
        ("select = 2", '"select"'),
        ("id = 'select' AND Total Sales + select > 2", '"Total Sales", "select"'),
        ("id = 'Total Sales' AND", None),
        ('"Total Sales" > 2 AND', None),
    ],
)
def test_a_name_without_the_quotes_that_it_needs_is_named_with_them(text: str, quoted: str | None) -> None:
    schema = pa.schema([("id", pa.string()), ("Total Sales", pa.int64()), ("select", pa.int64())])
    table = Table.create("t", schema, key="id", buckets=1, opening=Opening(store=MemoryStore()))
    said = f"; put SQL keywords and names with special characters in double quotes: {quoted}. columns="
    doors: list[Callable[[], object]] = [
        lambda: table.scan(filter=text),
        lambda: table.delete(where=text),
        lambda: table.update({"select": 1}, where=text),
        lambda: table.add_rules(Rules(check={"a": text})),
    ]
    for door in doors:
        with pytest.raises(InvalidInputError, match="cannot be applied") as refused:
            door()
        assert (said in str(refused.value)) == (quoted is not None)
    with pytest.raises(InvalidInputError, match="invalid new value") as refused:
        table.update({"select": text.removesuffix(" > 2").removesuffix(" = 2") + " +"})
    assert (f". Write {quoted}. column=" in str(refused.value)) == (quoted is not None)


def test_what_the_messages_advise_works(table: Table) -> None:
    moment = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
    for right in (
        "day = DATE '2026-01-31'", day == dt.date(2026, 1, 31), pl.col("at") >= moment, "city = 'Rome'", "place.x = 1",
        "city ~ '^R.*e$'",
    ):  # fmt: skip
        assert table.scan(filter=right).count() == 1, right
    assert table.scan(filter="TRY_CAST(city AS BIGINT) > 0").count() == 0
    assert table.scan(filter=city.cast(pl.Int64, strict=False) > 0).count() == 0


def test_a_wide_table_lists_some_of_its_columns() -> None:
    wide = Table.create(
        "t", pa.schema([(f"c{n}", pa.int64()) for n in range(500)]), key="c0", opening=Opening(store=MemoryStore())
    )
    for wrong in ("c0 >", "nope > 1"):
        with pytest.raises(InvalidInputError) as refused:
            wide.scan(filter=wrong)
        assert len(str(refused.value)) < 1500


@pytest.mark.parametrize("where", ["wiews > 3", "day > '31.01.2026'", "views >", "place.y > 1"])
def test_the_command_line_says_the_same(fast_path: Any, where: str) -> None:
    folder = str(fast_path / "t")
    Table.create(folder, SCHEMA, key="id")
    done = CliRunner().invoke(app, ["cat", folder, "--where", where])
    assert done.exit_code != 0
    said = str(done.exception) + done.output
    assert "columns" in said or "no such field" in said
    assert not [words for words in POLARS_SAYS[:-1] if words in said]


@pytest.mark.parametrize("wrong", ["views +", "", "NOT", "'half", "SELECT views", "views, city"])
def test_an_error_says_what_it_is_that_is_no_sql(table: Table, wrong: str) -> None:
    rows = pa.table({"id": ["a"]})
    says: dict[str, Callable[[], object]] = {
        "the filter cannot be applied": lambda: table.update({"views": "views + 1"}, wrong),
        "invalid new value of a column: .*SQL expression.*column=views": lambda: table.update({"views": wrong}),
        "invalid condition of a clause: .*SQL condition.*condition=": (
            lambda: table.merge(rows).when_matched_delete(wrong).execute()
        ),
        "(a check must be a valid filter|pass checks as names)": lambda: table.add_rules(Rules(check={"c": wrong})),
    }
    for said, attempt in says.items():
        with pytest.raises(InvalidInputError, match=said) as refused:
            attempt()
        assert "filter" in said or "filter" not in str(refused.value)
