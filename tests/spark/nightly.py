"""A driver of nightly jobs on a table of orders, as a process that can be killed: `python -m tests.spark.nightly ...`

Each night merges a feed, updates, deletes and maintains, in this order, and then counts what there is, while another
thread looks at the table all the time. The driver notes the jobs that are done, and one that is started again goes on
after the last of them: the job that was under way is repeated under its token. What each job does to a plain dictionary
of rows stands beside it.

Amounts only move from one order to another, so that of any snapshot their sum is zero.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from crdt_mor import PartialUpdate
from crdt_mor.payloads import Counter
from tests.spark.sessions import start

SCHEMA = pa.schema(
    [("region", pa.string()), ("id", pa.int64()), ("amount", pa.int64()), ("state", pa.string()), ("views", pa.int64())]
)
SHAPE: dict[str, Any] = {
    "key": ["region", "id"],
    "partition_by": "region",
    "buckets": 2,
    "merge": PartialUpdate(columns={"views": Counter()}),
}
"""Of the table. Views come from elsewhere, at the same time, in rows that have no other columns."""

ACCOUNTS = 40
NEW = 8
JOBS = ("merge", "update", "delete", "maintain", "count")
WAIT = timedelta(minutes=10)
EVERY_S = 1
"""How long a dashboard rests between two looks."""

Key = tuple[str, int]
Orders = dict[Key, tuple[int, str]]
"""The amount and the state of each order."""


def region_of(number: int) -> str:
    return f"r{number % 4}"


def opening() -> Orders:
    """The orders before the first night."""
    return {(region_of(i), i): (0, "open") for i in range(ACCOUNTS)}


def feed(night: int) -> list[tuple[str, int, int, str]]:
    """The rows of a merge: amounts that move between accounts, and new orders that together amount to nothing."""
    moved = [(i, (i * 7 + night * 13) % 11 - 5) for i in range(ACCOUNTS // 2)]
    rows = [*moved, *((i + ACCOUNTS // 2, -amount) for i, amount in moved)]
    rows += [(number, 5 if number % 2 else -5) for number in new(night)]
    return [(region_of(number), number, amount, f"night {night}") for number, amount in rows]


def new(night: int) -> range:
    """The numbers of the orders that a night's feed brings."""
    return range(1000 + night * NEW, 1000 + (night + 1) * NEW)


def after(nights: int) -> Orders:
    """What must be there after so many nights."""
    orders = opening()
    for night in range(nights):
        for region, number, amount, state in feed(night):
            had, was = orders.get((region, number), (0, state))
            orders[region, number] = (had + amount, was)
        for (region, number), (amount, _) in list(orders.items()):
            if number < ACCOUNTS:
                orders[region, number] = (amount + (3 if number % 2 == 0 else -3), f"seen {night}")
        for number in new(night - 1):
            orders.pop((region_of(number), number), None)
    return orders


def merge(spark: Any, path: str, night: int) -> None:
    from crdt_mor.readers.spark import merge

    frame = spark.createDataFrame(feed(night), "region string, id long, amount long, state string")
    merging = merge(spark, path, frame, on=["region", "id"], wait=WAIT, token=("nightly merge", night))
    merging = merging.when_matched_update({"amount": "target.amount + source.amount"})
    merging.when_not_matched_insert_all().execute()


def update(spark: Any, path: str, night: int) -> None:
    from crdt_mor.readers.spark import update

    values = {"amount": "amount + CASE WHEN id % 2 = 0 THEN 3 ELSE -3 END", "state": f"'seen {night}'"}
    update(spark, path, values, f"id < {ACCOUNTS}", wait=WAIT, token=("nightly update", night))


def delete(spark: Any, path: str, night: int) -> None:
    from crdt_mor.readers.spark import delete_where

    gone = new(night - 1)
    where = f"id >= {gone.start} AND id < {gone.stop}"
    delete_where(spark, path, where, wait=WAIT, token=("nightly delete", night))


def maintain(spark: Any, path: str, night: int) -> None:
    from crdt_mor.readers.spark import maintain

    maintain(spark, path)


def count(spark: Any, path: str, night: int) -> None:
    """The dashboard of a night: what each region has."""
    rows = spark.read.format("crdt_mor").load(path).groupBy("region").agg({"id": "count", "amount": "sum"}).collect()
    found = {row["region"]: (row["count(id)"], row["sum(amount)"]) for row in rows}
    expected: dict[str, tuple[int, int]] = {}
    for (region, _), (amount, _) in after(night + 1).items():
        orders, total = expected.get(region, (0, 0))
        expected[region] = (orders + 1, total + amount)
    assert found == expected, f"night {night}: found {found}, expected {expected}"


WORK: dict[str, Callable[[Any, str, int], None]] = {
    "merge": merge,
    "update": update,
    "delete": delete,
    "maintain": maintain,
    "count": count,
}


class Watch(threading.Thread):
    """A dashboard beside the jobs: in no snapshot has anything come or gone, and views only grow."""

    def __init__(self, spark: Any, path: str) -> None:
        super().__init__(daemon=True)
        self._spark, self._path = spark, path
        self._over = threading.Event()
        self.looks, self.wrong = 0, ""

    def run(self) -> None:
        views = 0
        try:
            while not self._over.wait(EVERY_S):
                read = self._spark.read.format("crdt_mor").option("columns", "amount,views").load(self._path)
                amount, seen = read.groupBy().sum("amount", "views").first()
                assert amount == 0, f"the amounts of a snapshot are {amount} together"
                assert (seen or 0) >= views, f"{views} views were seen, and then {seen}"
                views, self.looks = seen or 0, self.looks + 1
        except Exception as error:  # noqa: BLE001  the driver tells it
            self.wrong = repr(error)

    def end(self) -> None:
        """Wait for its last look; AssertionError if any was wrong."""
        self._over.set()
        self.join()
        assert not self.wrong, self.wrong


def main() -> None:
    """Do the jobs of some nights that are not noted yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--nights", required=True, type=int)
    parser.add_argument("--note", required=True, type=Path, help="the file that says how many jobs are done")
    asked = parser.parse_args()

    spark = start(asked.master)
    watch = Watch(spark, asked.table)
    watch.start()
    for number in range(done(asked.note), asked.nights * len(JOBS)):
        night, job = divmod(number, len(JOBS))
        WORK[JOBS[job]](spark, asked.table, night)
        draft = asked.note.with_suffix(".draft")
        draft.write_text(str(number + 1))
        draft.rename(asked.note)
    watch.end()
    spark.stop()


def done(note: Path) -> int:
    """How many jobs are done."""
    return int(note.read_text()) if note.exists() else 0


if __name__ == "__main__":
    main()
