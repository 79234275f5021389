"""Parsed SQL texts are kept for the next call, unless the parser reads the clock."""

from __future__ import annotations

import polars as pl
import pytest

from crdt_mor.read.expressions import _has_moment, once_per_text
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql import Condition

KINDS = {
    "CURRENT_DATE": pl.Date(),
    "CURRENT_TIME": pl.Time(),
    "CURRENT_TIMESTAMP": pl.Datetime("us"),
    "LOCALTIMESTAMP": pl.Datetime("us"),
    "NOW()": pl.Datetime("us"),
}
TEXTS = [
    "{} > at",
    "at BETWEEN {} AND NULL",
    "at IN ({}, at)",
    "at IN ({}, {})",
    "CASE WHEN n = 1 THEN {} ELSE at END > at",
    "COALESCE(at, {}) > at",
    "CAST({} AS VARCHAR) > '2'",
    "NOT (n = 1 AND {} > at)",
    "EXTRACT(HOUR FROM {}) > n",
]


@pytest.mark.parametrize("moment", KINDS)
def test_a_text_of_now_is_parsed_each_time(moment: str) -> None:
    """polars replaces CURRENT_DATE by the date of the parsing. Tomorrow other rows match."""
    try:
        pl.sql_expr(moment)
    except pl.exceptions.SQLInterfaceError:
        pytest.skip(f"this release of polars knows no {moment}")
    asked = 0
    for text in TEXTS:
        columns = pl.Schema({"at": KINDS[moment], "n": pl.Int64()})
        try:
            condition = Condition(text.replace("{}", moment), Inputs.of_types(columns)).expression()
        except pl.exceptions.PolarsError:
            continue  # polars lacks this combination
        assert _has_moment(condition), text
        asked += 1
    assert asked > 5


@pytest.mark.parametrize(
    ("given", "times"),
    [("a = 1", 1), ("a > DATE '2026-01-01'", 3), (pl.col("a") == 1, 2), (f"a = '{'1' * 1000}'", 2)],
)
def test_a_short_text_is_parsed_once(given: object, times: int) -> None:
    parsed = list[object]()

    @once_per_text
    def parse(given: object, column: str) -> pl.Expr:
        parsed.append(given)
        return pl.sql_expr(given.replace("a", column)) if isinstance(given, str) else pl.col(column)

    for _ in range(2):
        assert "b" in str(parse(given, "b"))
    assert len(parsed) == times
    assert "c" in str(parse(given, "c"))
