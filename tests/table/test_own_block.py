"""Statements that wait for earlier writes, called where such a write is a block of the same thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from crdt_mor import InvalidInputError, Opening, Rules, Table
from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.events.own_blocks import _OPEN
from crdt_mor.services.erasure import open_erasures
from crdt_mor.store.memory import MemoryStore
from tests.inside import session_of, tail_of

NEVER = timedelta(0)


def rows(n: int) -> pl.DataFrame:
    return pl.DataFrame({"id": ["a"], "n": [n]})


@pytest.fixture
def table() -> Table:
    made = Table.create(
        "t", {"id": pl.String, "n": pl.Int64}, key="id", buckets=1, opening=Opening(store=MemoryStore())
    )
    made.upsert(rows(1))
    return made


def in_block(table: Table) -> None:
    with table.transaction(isolation="serializable") as tx:
        tx.update({"n": "n + 1"})


def merged(table: Table, **how: Any) -> None:
    table.merge(rows(5), on="id", **how).when_matched_update({"n": "source.n"}).execute()


VERBS: dict[str, Callable[[Table], Any]] = {
    "add_rules": lambda table: table.add_rules(Rules(not_null="n")),
    "block": in_block,
    "delete": lambda table: table.delete(where="n > 4"),
    "erase": lambda table: table.maintenance.erase(keys=["a"]),
    "erase columns": lambda table: table.maintenance.erase(keys=["a"], columns=["n"]),
    "merge": merged,
    "update": lambda table: table.update({"n": "n + 1"}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_statement_that_waits_for_its_own_thread_is_refused_at_once_and_the_block_commits(
    table: Table, verb: str
) -> None:
    with table.transaction() as tx:
        tx.upsert(rows(9))
        with pytest.raises(InvalidInputError, match=r"tx\.update"):
            VERBS[verb](table)
        with pytest.raises(InvalidInputError, match=r"tx\.update"):
            VERBS[verb](Table("t", opening=Opening(store=session_of(table).store)))
    assert table.to_polars()["n"].to_list() == [9]
    assert not tail_of(table).pending
    assert not tail_of(table).rules
    assert not open_erasures(session_of(table))
    assert not [key for key in _OPEN if key[0] == session_of(table).config.table_id]


def test_update_beside_a_block_of_another_thread_waits_for_it(table: Table) -> None:
    with table.transaction() as tx:
        thread = threading.Thread(target=lambda: tx.upsert(rows(9)))
        thread.start()
        thread.join()
        with pytest.raises(EarlierWritePendingError):
            table.update({"n": "n + 1"}, wait=NEVER)


def test_update_of_another_partition_than_the_own_block_declares_is_done() -> None:
    schema = {"p": pl.String, "id": pl.String, "n": pl.Int64}
    table = Table.create(
        "t", schema, key=["p", "id"], partition_by="p", buckets=1, opening=Opening(store=MemoryStore())
    )
    table.upsert(pl.DataFrame({"p": ["x", "y"], "id": ["a", "a"], "n": [1, 1]}))
    with table.transaction(partitions=["x"]):
        assert table.update({"n": "n + 1"}, where="p = 'y'").rows == 1


def test_update_after_the_own_block_is_done(table: Table) -> None:
    with suppress(ZeroDivisionError), table.transaction() as tx:
        tx.upsert(rows(9))
        raise ZeroDivisionError
    assert table.update({"n": "n + 1"}, wait=NEVER).rows == 1
