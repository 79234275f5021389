"""What operations ask of a bucket, counted: the table in docs/stores.md says it, and cannot say anything else.

Counts are exact. A new row is a line in the page and a function here, under one name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from crdt_mor import Table
from tests.counting import Bucket, Count

PAGE = Path(__file__).parent.parent.parent / "docs" / "stores.md"
_NUMBERS = r"(?P<requests>\d+) \| (?P<trips>\d+) \| (?P<size>[\d,.]+) (?P<unit>KiB|MiB)"
ROW = re.compile(rf"^\| (?P<name>[^|]+) \| {_NUMBERS} \|$")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}

URI = "s3://counted/table"
NUMBERS = [f"c{i}" for i in range(9)]


@dataclass(frozen=True)
class Row:
    """What the page says of an operation. bytes: about so many, and no more."""

    requests: int
    trips: int
    bytes: int


@cache
def said() -> dict[str, Row]:
    """The rows of the page, by name."""
    found = filter(None, map(ROW.match, PAGE.read_text().splitlines()))
    return {
        row["name"]: Row(
            int(row["requests"]), int(row["trips"]), round(float(row["size"].replace(",", "")) * UNITS[row["unit"]])
        )
        for row in found
    }


def frame(rows: int) -> pl.DataFrame:
    """Rows of a text and nine numbers."""
    return pl.DataFrame({"id": [f"k{i:06}" for i in range(rows)], **{name: range(rows) for name in NUMBERS}})


@cache
def bucket(groups: int, rows: int = 20_000) -> Bucket:
    """A bucket with a table of some file groups: compacted, and then a commit of one row."""
    made = Bucket()
    with made.counting():
        table = Table.create(
            URI, {"id": pl.String, **dict.fromkeys(NUMBERS, pl.Int64)}, key="id", buckets=groups, store=made.store()
        )
        table.upsert(frame(rows))
        table.maintenance.compact()
        table.upsert(frame(1))
    return made


def opened(made: Bucket) -> Table:
    """The table, as another process opens it."""
    return Table.open(URI, store=made.store())


def opening() -> Count:
    """Opening a table."""
    made = bucket(1)
    with made.counting():
        return made.count(lambda: opened(made))


OPERATIONS: dict[str, Callable[[], Count]] = {"`Table.open`": opening}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_page_says_what_an_operation_asks(name: str) -> None:
    row, count = said()[name], OPERATIONS[name]()
    assert (count.requests, count.trips) == (row.requests, row.trips), count
    assert row.bytes / 2 < count.bytes <= row.bytes, count


def test_every_row_of_the_page_is_counted() -> None:
    assert said().keys() == OPERATIONS.keys()
