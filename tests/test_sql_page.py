"""docs/sql.md: each row of its tables is what we say and what DuckDB says of the row on the page."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from crdt_mor import InvalidInputError, Table
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql import Condition
from tests.guides import blocks

PAGE = (Path(__file__).parents[1] / "docs" / "sql.md").read_text()
CELL = r" *(?:`([^`]*)`)? *"
OTHER = re.findall(rf"^\|{CELL}\|{CELL}\|{CELL}\|[^|]*\|{CELL}\|$", PAGE, re.MULTILINE)
REFUSED = re.findall(rf"^\|{CELL}\|{CELL}\|[^|`]*\|$", PAGE, re.MULTILINE)


class Sample:
    """The table of the page, and DuckDB with its row."""

    def __init__(self) -> None:
        names: dict[str, Any] = {}
        exec(blocks(PAGE)[0].code, names)
        self.table: Table = names["table"]
        self.row: pl.DataFrame = names["row"]
        self.engine = duckdb.connect()
        self.engine.register("arrow", self.row.to_arrow())
        self.engine.execute("CREATE TABLE sample AS FROM arrow")

    def here(self, text: str) -> object:
        return self.row.select(Condition(text, Inputs(self.row)).expression().alias("value"))["value"][0]

    def in_duckdb(self, text: str) -> object:
        try:
            return self.engine.execute(f"SELECT {text} FROM sample").fetchall()[0][0]
        except duckdb.Error:
            return "error"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("page"))
        return Sample()


def shown(value: object) -> str:
    """A value as a cell of the page has it."""
    match value:
        case None:
            return "null"
        case float():
            return f"{value:.6g}"
        case "error":
            return value
        case str():
            return repr(value)
    return str(value)


def as_moment(value: object) -> object:
    return datetime(value.year, value.month, value.day) if type(value) is date else value  # noqa: DTZ001


def test_the_tables_have_rows() -> None:
    assert len(OTHER) > 15
    assert len(REFUSED) > 10


@pytest.mark.skipif(
    duckdb.__version__.startswith("1."),
    reason="the page shows DuckDB 2, where a division by 0 is an error and not null",
)
@pytest.mark.parametrize(("text", "here", "there", "instead"), OTHER, ids=[text for text, *_ in OTHER])
def test_text_with_another_value_has_both_values_of_the_page(
    sample: Sample, text: str, here: str, there: str, instead: str
) -> None:
    assert (shown(sample.here(text)), shown(sample.in_duckdb(text))) == (here, there)
    if instead:
        assert shown(sample.here(instead)) == there


@pytest.mark.parametrize(("text", "instead"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused_text_has_the_value_of_its_substitute_in_duckdb(sample: Sample, text: str, instead: str) -> None:
    with pytest.raises(InvalidInputError):
        sample.table.scan(filter=f"({text}) IS NULL").count()
    value = sample.in_duckdb(text)
    assert value != "error"
    assert shown(as_moment(sample.here(instead))) == shown(as_moment(value))
