"""Writes that stay open, and all answers of a table, for tests of what no compaction may change."""

from __future__ import annotations

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
