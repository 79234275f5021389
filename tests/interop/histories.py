"""Random histories of a few keys: overlapping writes, stragglers, compactions done and planned, some of logs alone.

Cleans give up history, writes are given up by hand, and sweeps tell Hudi of them. Where they are asked to, they archive
at any moment, columns are added, and keys lie in partitions of which some are idle for long.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.api.transaction import Transaction
from tests.interop.shapes import SCHEMA, Maker, keys, swept

KEYS = 6


def write_history(
    make: Maker, seed: int, ordering: str | None, archive: Callable[[Table], object] | None = None
) -> Table:
    """A table whose history is a function of the seed. No two ordering values in it are equal.

    archive: archives the table; such histories are longer.
    """
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
    steps = {"commit": 7, "begin": 4, "end": 4, "compact": 3, "plan": 1, "clean": 2, "give up": 1, "sweep": 1}
    if archive is not None:
        steps |= {"archive": 4, "compact": 6}
    for _ in range(chance.randint(5, 16) * (1 if archive is None else 3)):
        match chance.choices([*steps], [*steps.values()])[0]:
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
                table.maintenance.plans.schedule()
            case "clean":
                table.maintenance.clean(commits=chance.randint(1, 3), readers=timedelta(0))
            case "give up" if pending:
                place = chance.randrange(len(pending))  # they are pending in the order in which they began
                table.maintenance.roll_back(table.inspect.pending()["requested_at"][place].as_py())
                pending.pop(place)
            case "sweep":
                swept(table)
            case "archive" if archive is not None:
                archive(table)
    return table
