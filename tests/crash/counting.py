"""A process that counts: every commit adds to counters and sets of the same few keys, under a token.

    python -m tests.crash.counting count <table> <log> <name> <expiry_ms> <commits>
    python -m tests.crash.counting compact <table> <log> <name> <expiry_ms>            compacts until it is killed

It notes a number before it tries to commit it. One that is started again tries the last number that it noted once more,
under the same token, and does not ask what became of it.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from crdt_mor import Opening, Payload, Table
from crdt_mor.errors import WriterExpiredError
from crdt_mor.payloads import Counter, EventList, GrowOnlySet, ORSet
from tests.crash.worker import Log, acknowledge, compact, read_log

SET = pa.list_(pa.string())
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("views", pa.int64()),
        ("money", pa.decimal128(12, 2)),
        ("tags", SET),
        ("labels", SET),
        ("commits", SET),
    ]
)
WRITTEN = SCHEMA.set(SCHEMA.get_field_index("labels"), pa.field("labels", pa.struct([("add", SET), ("remove", SET)])))
MERGE: dict[str | tuple[str, ...], Payload | str] = {
    "views": Counter(), "money": Counter(), "tags": GrowOnlySet(), "labels": ORSet(), "commits": EventList(),
}  # fmt: skip
BUCKETS = 4
KEYS = [f"k{i}" for i in range(BUCKETS)]  # neighbours: one in each bucket
ASKING = "labels"
"""The column whose payload asks what a commit has seen. In a table without it commits are posted in a crowd."""

Row = dict[str, Any]


def rows(name: str, number: int) -> list[Row]:
    """What commit `number` of process `name` says: of some keys, of one of them twice; the same whenever asked."""
    random = Random(f"{name}.{number}")
    chosen = random.sample(KEYS, 2)
    return [_row(key, name, number, part, random) for part, key in enumerate([*chosen, chosen[0]])]


def _row(key: str, name: str, number: int, part: int, random: Random) -> Row:
    label = f"{name}.{number}.{part}"
    # What an earlier commit of its own added, it has seen: taking that away takes it away whatever the others do.
    earlier = [f"{name}.{number - 3}.{part}" for part in range(3)]
    return {
        "key": key,
        "views": random.randint(-3, 9),
        "money": Decimal(random.randint(-999, 9_999)) / 100,
        "tags": [f"{name}.{number}", random.choice("abc")],
        "labels": {"add": [label, "all"], "remove": earlier},
        "commits": [label],
    }


def expected(done: Iterable[tuple[str, int]]) -> dict[str, Row]:
    """What a table shows in which exactly these commits of each process are done, by key; `commits` sorted."""
    found: dict[str, Row] = {}
    for name, number in sorted(done):
        for row in rows(name, number):
            start: Row = {"key": row["key"], "views": 0, "money": Decimal(0)} | {c: set() for c in SCHEMA.names[3:]}
            into = found.setdefault(row["key"], start)
            into["views"] += row["views"]
            into["money"] += row["money"]
            into["tags"] |= {*row["tags"]}
            into["labels"] = into["labels"] - {*row["labels"]["remove"]} | {*row["labels"]["add"]}
            into["commits"] |= {*row["commits"]}
    return {key: {c: sorted(v) if isinstance(v, set) else v for c, v in row.items()} for key, row in found.items()}


def written(table: Table, name: str, number: int) -> pa.Table:
    """What commit `number` of process `name` writes, of the columns that a table has."""
    return pa.Table.from_pylist(rows(name, number), WRITTEN).select(table.schema.names)


def count(table: Table, log: Log, name: str, before: list[list[str]], commits: int) -> None:
    for n in range(int(before[-1][1]) if before else 1, commits + 1):
        log.say("try", n)
        while True:
            try:
                done = table.upsert(written(table, name, n), token=(name, n))
                break
            except WriterExpiredError:  # a busy machine: nothing of it is visible
                log.say("expired", n)
        acknowledge(log, n, done)


def main(role: str, path: str, log_path: str, name: str, expiry_ms: str, commits: str = "0") -> None:
    faulthandler.register(signal.SIGUSR1)  # where are you? to the error stream
    before = read_log(Path(log_path))
    log = Log(Path(log_path))
    table = Table(path, opening=Opening(writer_expiry=timedelta(milliseconds=int(expiry_ms))))
    match role:
        case "count":
            count(table, log, name, before, int(commits))
        case "compact":
            compact(table, log)


if __name__ == "__main__":
    main(*sys.argv[1:])
