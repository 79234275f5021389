"""`Table.create`, `create_from` and `open` beside another process that makes the table at any moment of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.store.memory import MemoryStore
from tests.stores import ScriptedStore

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
URI = "memory://t"

Call = Callable[[mor.store.Store], mor.Table]


def rows(n: int) -> pa.Table:
    return pa.table({"id": ["a"], "n": [n]}, schema=SCHEMA)


def made(store: mor.store.Store, *, exist_ok: bool = False) -> mor.Table:
    return mor.Table.create(URI, SCHEMA, key="id", buckets=1, opening=mor.Opening(store=store), exist_ok=exist_ok)


def outcomes(call: Call) -> Iterator[mor.Table | mor.CrdtMorError]:
    """The outcome of a call, beside a process that makes the table at its first moment, at its second, and so on.

    It commits a row as well, unless the call's own process is the first.
    """
    for moment in range(1, 200):
        store, left = MemoryStore(), moment

        def beside(operation: str, path: str, call: Callable[[], Any], store: MemoryStore = store) -> Any:
            nonlocal left
            left -= store.stat(PROPERTIES) is None
            if left == 0:
                with suppress(mor.errors.TableExistsError):  # a load under way keeps the other process out
                    made(store).upsert(rows(7))
                left = -1
            return call()

        try:
            yield call(ScriptedStore(store, beside))
        except mor.CrdtMorError as error:
            yield error
        if left >= 0:
            return
    pytest.fail("the call makes too many requests for this test")


def test_create_with_exist_ok_beside_another_creator_opens_the_table() -> None:
    found = list(outcomes(lambda store: made(store, exist_ok=True)))
    assert len(found) > 5, "a case that covers nothing"
    for table in found[:-1]:
        assert isinstance(table, mor.Table), table
        assert table.to_arrow()["n"].to_pylist() == [7]


def test_create_beside_another_creator_makes_the_table_or_says_that_there_is_one() -> None:
    for outcome in outcomes(made):
        if isinstance(outcome, mor.CrdtMorError):
            assert isinstance(outcome, mor.errors.TableExistsError)
            assert "there is a table already; open it" in str(outcome)


@pytest.mark.slow
def test_create_from_beside_another_creator_loads_the_table_or_says_that_there_is_one() -> None:
    def load(store: mor.store.Store) -> mor.Table:
        return mor.Table.create_from(URI, rows(1), key="id", buckets=1, opening=mor.Opening(store=store))

    for outcome in outcomes(load):
        if isinstance(outcome, mor.CrdtMorError):
            assert isinstance(outcome, mor.errors.TableExistsError)
            assert "properties" not in str(outcome)


def test_open_beside_a_creator_opens_the_table_or_says_that_there_is_none() -> None:
    for outcome in outcomes(lambda store: mor.Table(URI, opening=mor.Opening(store=store))):
        if isinstance(outcome, mor.CrdtMorError):
            assert isinstance(outcome, mor.errors.TableNotFoundError)
            assert "create it with Table.create" in str(outcome)
