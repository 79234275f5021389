"""A statement that the newest version refuses publishes nothing, by any verb, and is checked once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, InvalidInputError, Opening, Rules, Table
from crdt_mor.errors import ConstraintViolationError, SchemaMismatchError
from crdt_mor.payloads import Counter
from crdt_mor.planners.way import CHANGED, CLOSED
from crdt_mor.store import MemoryStore
from crdt_mor.write import statements
from crdt_mor.write.one_event import TriedWrite
from tests.inside import session_of, tail_of
from tests.posting import in_a_crowd

SCHEMA = pa.schema([("id", pa.int64()), ("land", pa.string()), ("n", pa.int64())])
ROW = pl.DataFrame({"id": [1], "land": ["DE"], "n": [1]})
WRONG = ROW.with_columns(n=pl.lit(-1))
"""It breaks a check."""

VERBS: dict[str, tuple[type[CrdtMorError], Callable[[Table], object]]] = {
    "upsert": (ConstraintViolationError, lambda t: t.upsert(WRONG)),
    "upsert, another type": (SchemaMismatchError, lambda t: t.upsert(ROW.with_columns(n=pl.lit("x")))),
    "upsert, an unknown column": (SchemaMismatchError, lambda t: t.upsert(ROW.with_columns(m=pl.lit(1)))),
    "upsert, a new column": (
        ConstraintViolationError,
        lambda t: t.upsert(WRONG.with_columns(m=pl.lit(1)), schema_mode="merge"),
    ),
    "append": (InvalidInputError, lambda t: t.append(pl.concat([ROW, ROW]))),
    "delete rows": (InvalidInputError, lambda t: t.delete(ROW.select("id"))),
    "delete keys": (InvalidInputError, lambda t: t.delete(keys=[1])),
    "delete where": (CrdtMorError, lambda t: t.delete(where="m = 1")),
    "update": (ConstraintViolationError, lambda t: t.update({"n": -1})),
    "update, an unknown column": (CrdtMorError, lambda t: t.update({"m": 1})),
    "update, a wrong value": (InvalidInputError, lambda t: t.update({"n": "n / 'x'"})),
    "merge": (
        ConstraintViolationError,
        lambda t: t.merge(WRONG, on="id").when_matched_update_all().execute(),
    ),
    "overwrite": (ConstraintViolationError, lambda t: t.overwrite(WRONG)),
    "overwrite, another partition": (InvalidInputError, lambda t: t.overwrite(ROW, partitions=["FR"])),
    "overwrite, a wrong partition": (InvalidInputError, lambda t: t.overwrite(ROW, partitions=[("FR", 1)])),
    "delete partitions": (InvalidInputError, lambda t: t.delete_partitions([("FR", 1)])),
    "move": (InvalidInputError, lambda t: t.move([1], partition={"n": "FR"})),
}


class Calls:
    """Count the calls of an object's function from now on."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.count, call = 0, getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            self.count += 1
            return call(*given, **named)

        patch.setattr(owner, name, counted)


def make(store: MemoryStore | None = None, **settings: Any) -> Table:
    store = MemoryStore() if store is None else store
    settings = {"partition_by": "land", "rules": Rules(check={"positive": "n >= 0"}), **settings}
    table = Table.create("t", SCHEMA, key="id", opening=Opening(store=store), **settings)
    table.upsert(ROW)
    table.upsert(ROW)
    return table


def refused(table: Table, verb: str) -> None:
    kind, write = VERBS[verb]
    before = tail_of(table).version
    with pytest.raises(kind):
        write(table)
    after = tail_of(table)
    assert (after.version, after.pending) == (before, ())


@pytest.mark.parametrize("verb", VERBS)
def test_a_refused_statement_publishes_nothing(verb: str) -> None:
    refused(make(), verb)


@pytest.mark.parametrize("verb", ["upsert", "append", "delete rows", "delete keys"])
def test_a_refused_statement_in_a_crowd_publishes_nothing(verb: str) -> None:
    refused(in_a_crowd(make()), verb)


@pytest.mark.parametrize("verb", ["upsert", "upsert, a new column", "append", "delete rows", "delete keys"])
def test_a_refused_statement_that_must_begin_publishes_nothing(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TriedWrite, "begin", lambda *_: CLOSED)
    refused(make(), verb)


def test_a_refused_first_write_of_a_process_publishes_nothing() -> None:
    store = MemoryStore()
    make(store)
    refused(Table("t", opening=Opening(store=store)), "upsert")


def with_old_value(store: MemoryStore) -> Table:
    """A table in a process that writes without a look at the newest version, as in a bucket."""
    table = make(store)
    session_of(table).is_far = True
    return table


@pytest.mark.parametrize("verb", ["upsert", "update", "merge"])
def test_a_statement_that_another_process_has_made_right_is_committed(verb: str) -> None:
    store = MemoryStore()
    table = with_old_value(store)
    Table("t", opening=Opening(store=store)).drop_rules("check positive")
    VERBS[verb][1](table)
    assert table.to_polars()["n"].to_list() == [-1]


def test_a_statement_that_another_process_has_made_wrong_publishes_nothing() -> None:
    store = MemoryStore()
    table = with_old_value(store)
    Table("t", opening=Opening(store=store)).add_rules(Rules(check={"small": "n < 5"}))
    before = tail_of(Table("t", opening=Opening(store=store))).version
    with pytest.raises(ConstraintViolationError):
        table.upsert(ROW.with_columns(n=pl.lit(9)))
    assert tail_of(table).version == before


class Ways:
    """Make the next write of a table go one way."""

    @staticmethod
    def alone(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        pass

    @staticmethod
    def posted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        in_a_crowd(table)

    @staticmethod
    def begun(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TriedWrite, "begin", lambda *_: CLOSED)

    @staticmethod
    def lost(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TriedWrite, "_alone", lambda *_: (None, CHANGED))


WAYS = {name: getattr(Ways, name) for name in ("alone", "posted", "begun", "lost")}


@pytest.mark.parametrize("way", WAYS)
def test_a_statement_of_rows_is_checked_once_by_any_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    WAYS[way](table, monkeypatch)
    checked = Calls(monkeypatch, statements.Statements, "check")
    assert table.upsert(ROW.with_columns(n=pl.lit(7))).rows == 1
    assert (checked.count, table.to_polars()["n"].to_list()) == (1, [7])


def test_rows_are_read_once_if_a_race_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    Ways.lost(table, monkeypatch)
    stream = pa.RecordBatchReader.from_batches(ROW.to_arrow().schema, iter(ROW.to_arrow().to_batches()))
    assert table.upsert(stream).rows == 1


def test_an_update_of_no_rows_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    tried = Calls(monkeypatch, TriedWrite, "compute")
    assert table.update({"n": 5}, "n = 99", wait=timedelta(0)).rows == 0
    assert tried.count == 1


def test_a_payload_lifts_once_if_nobody_interferes(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(merge={"n": Counter()}, rules=None)
    lifted = Calls(monkeypatch, statements, "lift")
    table.upsert(ROW)
    assert lifted.count == 1
    Ways.begun(table, monkeypatch)
    table.upsert(ROW)
    assert (lifted.count, table.to_polars()["n"].to_list()) == (2, [4])


def test_a_begun_statement_is_checked_again_if_rules_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    table = make(store)
    Ways.begun(table, monkeypatch)
    session = session_of(table)
    begin = session.begin

    def later(*given: Any) -> Any:
        Table("t", opening=Opening(store=store)).add_rules(Rules(check={"small": "n < 5"}))
        return begin(*given)

    monkeypatch.setattr(session, "begin", later)
    with pytest.raises(ConstraintViolationError, match="small"):
        table.upsert(ROW.with_columns(n=pl.lit(9)))
    assert table.to_polars()["n"].to_list() == [1]
