"""Time travel and changes in batch reads on a standalone cluster, against rows that plain Python has kept.

python -m tests.spark.cluster -k moments
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from crdt_mor import Commit, Table
from crdt_mor.readers.spark import compact, delete, delete_where, maintain, update, upsert
from tests.spark.helpers import read

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64()), ("s", pa.string())])
COLUMNS = "id long, day string, n long, s string"
KEYS = 5000
WRITTEN = 2000
ROUNDS = 3

Row = tuple[int, str, int | None, str | None]
Rows = dict[int, Row]
Change = tuple[str, Row]


class Moment(NamedTuple):
    """The rows after a commit, and its written keys."""

    commit: Commit
    rows: Rows
    touched: frozenset[int]


def day(number: int) -> str:
    return f"d{number % 3}"


def history(spark: Any, table: Table, chance: random.Random) -> Iterator[Moment]:
    """Write in each way that a cluster has, with upkeep in between."""
    rows: Rows = {}
    for number in range(ROUNDS):
        new = {i: (i, day(i), 1000 * number + i % 100, f"s{number}") for i in chance.sample(range(KEYS), WRITTEN)}
        done = upsert(spark.createDataFrame([*new.values()], COLUMNS).repartition(4), table.uri)
        rows = rows | new
        yield Moment(done, rows, frozenset(new))

        gone = chance.sample(sorted(rows), WRITTEN // 4)
        keys = spark.createDataFrame([(i, day(i)) for i in gone], "id long, day string").repartition(4)
        done = delete(keys, table.uri)
        rows = {i: row for i, row in rows.items() if i not in set(gone)}
        yield Moment(done, rows, frozenset(gone))
        (compact if number % 2 else maintain)(spark, table.uri)

        met = {i for i in rows if i % 7 == number}
        done = update(spark, table.uri, {"n": "n + 1", "s": "s || '!'"}, f"id % 7 = {number}")
        rows = rows | {i: (i, at, n + 1, f"{s}!") for i, at, n, s in map(rows.get, met)}  # type: ignore[misc, operator]
        yield Moment(done, rows, frozenset(met))

        met = {i for i in rows if i % 11 == number and day(i) == "d1"}
        done = delete_where(spark, table.uri, f"id % 11 = {number} AND day = 'd1'")
        rows = {i: row for i, row in rows.items() if i not in met}
        yield Moment(done, rows, frozenset(met))


def merged(before: Moment, window: list[Moment]) -> list[Change]:
    """Each key that the window wrote, as it is at its end."""
    rows = window[-1].rows
    keys = frozenset[int]().union(*(moment.touched for moment in window))
    return [("upsert", rows[i]) if i in rows else ("delete", (i, day(i), None, None)) for i in keys]


def images(before: Moment, window: list[Moment]) -> Iterator[Change]:
    """Yield the changes of each commit."""
    for old, new in zip([before, *window], window, strict=False):
        for i in new.touched:
            was, row = old.rows.get(i), new.rows.get(i)
            if was is None or row is None:
                yield ("insert", row) if row else ("delete", was or (0, "", None, None))
            else:
                yield from (("update_preimage", was), ("update_postimage", row))


def found(frame: Any) -> list[Change]:
    rows = frame.select("_change_type", "id", "day", "n", "s").collect()
    return [(kind, tuple(row)) for kind, *row in rows]


def same(changes: Iterable[Change], expected: Iterable[Change]) -> bool:
    return sorted(changes, key=repr) == sorted(expected, key=repr)


def test_each_moment_and_the_changes_between_two_are_what_was_written(on_standalone: Any, tmp_path: Path) -> None:
    spark = on_standalone
    table = Table.create(tmp_path / "t", SCHEMA, key=["id", "day"], partition_by="day", buckets=4)
    table.set_properties({"crdt_mor.compaction.log_files": "2"})
    moments = [*history(spark, table, random.Random(7))]
    for commit, rows, _ in moments:
        for as_of in (commit.version, commit.completed_at):
            now = read(spark, table.uri, asOf=as_of).collect()
            assert sorted(map(tuple, now)) == sorted(rows.values()), as_of
    for first, last in combinations(range(len(moments)), 2):
        before, window = moments[first], moments[first + 1 : last + 1]
        bounds: dict[str, Any] = {"since": before.commit.version, "until": window[-1].commit.version}
        assert same(found(read(spark, table.uri, changes="merged", **bounds)), merged(before, window)), bounds
        if last - first < 4:
            assert same(found(read(spark, table.uri, changes="images", **bounds)), images(before, window)), bounds
