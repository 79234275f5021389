"""Random histories of a few keys: overlapping writes, stragglers, compactions done and planned, some of logs alone."""

from __future__ import annotations

import random

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.transaction import Transaction
from tests.interop.shapes import SCHEMA, Maker, keys

KEYS = 6


def write_history(make: Maker, seed: int, ordering: str | None) -> Table:
    """A table whose history is a function of the seed. No two ordering values in it are equal."""
    chance = random.Random(seed)
    table = make.create(buckets=1, ordering=ordering)
    pending: list[Transaction] = []
    count = 0

    def batch() -> pa.Table:
        nonlocal count
        chosen = chance.sample(range(KEYS), chance.randint(1, 4))
        count += 1
        n = [chance.randint(0, 3000) * 1000 + count for _ in chosen]
        return pa.table({"id": keys(*chosen), "n": n, "v": [f"{seed}-{count}"] * len(chosen)}, SCHEMA)

    def write(tx: Transaction) -> None:
        for _ in range(chance.randint(1, 2)):
            data = batch()
            if chance.random() < 0.4:
                tx.delete(data.select(["id", "n"] if ordering else ["id"]))
            else:
                tx.upsert(data)

    write(tx := make.begin(table))
    make.end(tx)
    for _ in range(chance.randint(4, 13)):
        match chance.choices(["commit", "begin", "end", "compact", "plan"], [7, 4, 4, 3, 1])[0]:
            case "commit":
                write(tx := make.begin(table))
                make.end(tx)
            case "begin":
                pending.append(make.begin(table))
                write(pending[-1])
            case "end" if pending:
                make.end(pending.pop(chance.randrange(len(pending))))
            case "compact":
                table.maintenance.compact(logs_only=chance.random() < 0.4)
            case "plan":
                table.maintenance.plan_compaction()
    return table
