"""Writes that stay open, random histories, and all answers of a table, for tests of what no compaction may change."""

from __future__ import annotations

import random

from crdt_mor import Commit, Table, Transaction
from tests.table.helpers import Row, frame, rows


def remove(table: Table, key: str) -> Commit:
    return table.delete(keys=[key], plain=True)


def every_answer(table: Table, commits: list[Commit]) -> list[list[Row]]:
    """The rows of the latest snapshot, and as of each commit."""
    return [rows(table), *(rows(table, as_of=commit) for commit in commits)]


def open_write(table: Table, *writes: Row) -> Transaction:
    tx = table.transaction()
    tx.__enter__()
    tx.upsert(frame(*writes))
    return tx


def close(tx: Transaction) -> Commit:
    tx.__exit__(None, None, None)
    assert tx.commit is not None
    return tx.commit


def written(table: Table, chance: random.Random) -> list[Commit]:
    """A random history: upserts, deletes of both kinds, compactions, and writes that stay open across them.

    In the end every file group has a base file and a log.
    """
    commits: list[Commit] = []
    standing: list[Transaction] = []

    def some() -> list[tuple[object, ...]]:
        keys = chance.sample(range(40), chance.randint(1, 12))
        return [(f"k{key:02d}", "abc"[key % 3], chance.randrange(20), chance.choice([None, 1.5])) for key in keys]

    for _ in range(14):
        what = chance.choice("uuuudpocsl")
        if what == "u":
            commits.append(table.upsert(frame(*some())))
        elif what in "dp":
            commits.append(table.delete(frame(*some()), plain=what == "p"))
        elif what == "o":
            standing.append(open_write(table, *some()))
        elif what == "c" and standing:
            commits.append(close(standing.pop(chance.randrange(len(standing)))))
        elif what == "s":
            table.maintenance.compact(table.maintenance.plans.schedule())
        else:
            table.maintenance.compact(logs_only=True)
    commits += [close(tx) for tx in standing]
    table.maintenance.compact()
    last = table.upsert(frame(*((f"k{key:02d}", "abc"[key % 3], chance.randrange(20)) for key in range(40))))
    return [*commits, last]
