"""An update reads while it waits for earlier writes; afterwards it reads only the keys that they have changed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.api import early_read
from crdt_mor.payloads import ORSet, PartialUpdate
from crdt_mor.read import ended
from crdt_mor.read.prune import LOOKUP_KEYS_MAX
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.write.reading import Wait
from tests.inside import store_of

SCHEMA: Final = pa.schema([("id", pa.string()), ("land", pa.string()), ("n", pa.int64())])
PROCESSES: Final = count()
MANY: Final = {f"m{i}": 50 for i in range(LOOKUP_KEYS_MAX + 1)}

Work = Callable[[Any], object]


def rows(land: str = "DE", **values: int) -> pa.Table:
    return pa.table({"id": [*values], "land": [land] * len(values), "n": [*values.values()]}, SCHEMA)


def make(**settings: Any) -> Table:
    table = Table.create(
        "memory", SCHEMA, opening=Opening(store=MemoryStore()), key="id", partition_by=["land"], buckets=2, **settings
    )
    table.upsert(rows(a=1, b=20, c=30))
    table.upsert(rows("FR", d=40))
    return table


class Waking(SimulatedEnvironment):
    """A process in whose first pause something happens."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__(stem=f"p{next(PROCESSES)}")
        self._happens: list[Callable[[], object]] = [happens]

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        while self._happens:
            self._happens.pop()()


def again(table: Table, happens: Callable[[], object] = lambda: None) -> Table:
    return Table("memory", opening=Opening(store=store_of(table), environment=Waking(happens)))


def shown(table: Table) -> dict[str, int]:
    return dict(table.scan(columns=["id", "n"]).to_polars().sort("id").rows())


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[list[str] | None]:
    """The keys that each early read reads again; None: it reads everything anew."""
    keys, ended_keys = list[list[str] | None](), ended.ended_keys

    def noted(*views: Any) -> list[str] | None:
        keys.append(ended_keys(*views))
        return keys[-1]

    monkeypatch.setattr(early_read, "ended_keys", noted)
    return keys


BEFORE: Final = {"a": 1, "b": 20, "c": 30, "d": 40}

EARLIER: Final[dict[str, tuple[Work, list[str] | None, dict[str, int]]]] = {
    "nothing": (lambda tx: None, [], BEFORE),
    "a row comes to match": (lambda tx: tx.upsert(rows(a=15)), ["a"], {**BEFORE, "a": 15}),
    "a row ceases to match": (lambda tx: tx.upsert(rows(b=2)), ["b"], {**BEFORE, "b": 2}),
    "a row changes": (lambda tx: tx.upsert(rows(b=25)), ["b"], {**BEFORE, "b": 25}),
    "a row is new": (lambda tx: tx.upsert(rows("FR", z=11)), ["z"], {**BEFORE, "z": 11}),
    "the first row of a partition": (lambda tx: tx.upsert(rows("IT", z=11)), ["z"], {**BEFORE, "z": 11}),
    "a row is deleted": (
        lambda tx: tx.delete(rows(c=0)), ["c"], {"a": 1, "b": 20, "d": 40}
    ),
    "a row changes and one goes": (
        lambda tx: (tx.upsert(rows(b=25)), tx.delete(rows(c=0))), ["b", "c"], {"a": 1, "b": 25, "d": 40}
    ),
    "many rows": (lambda tx: tx.upsert(rows("DE", **MANY)), None, {**BEFORE, **MANY}),
}  # fmt: skip
"""The statement of a write that ends during the wait, the keys of the second read, and the rows before the update."""


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("name", [*EARLIER])
def test_an_update_reads_again_only_the_keys_of_ended_writes(
    name: str, partial: bool, found: list[list[str] | None]
) -> None:
    do, keys, before = EARLIER[name]
    table = make(**({"merge": PartialUpdate()} if partial else {}))
    earlier = again(table).transaction()
    do(earlier.__enter__())

    def ends() -> None:
        again(table).upsert(rows("FR", later=99))  # requested after the update
        again(table).maintenance.compact()
        earlier.__exit__(None, None, None)

    again(table, ends).update({"n": "n + 1"}, "n > 10")
    assert found == [keys]
    after = {key: n + 1 if n > 10 else n for key, n in before.items()}
    assert shown(table) == {**after, "later": 99}


def test_columns_that_an_ended_write_has_added_are_read_anew(found: list[list[str] | None]) -> None:
    table = make(merge=PartialUpdate())
    earlier = again(table).transaction()
    earlier.__enter__().upsert(rows(b=25).append_column("new", pa.array([1])), schema_mode="merge")
    again(table, lambda: earlier.__exit__(None, None, None)).update({"n": "n + 1"}, "n > 10")
    assert found == [None]
    assert shown(table) == {"a": 1, "b": 26, "c": 31, "d": 41}


def two_updates(table: Table) -> None:
    with table.transaction(isolation="serializable") as tx:
        tx.update({"n": "n + 1"})
        tx.update({"n": "n + 1"})


STATEMENTS: Final[dict[str, tuple[Callable[[Table], object], list[list[str] | None], dict[str, int]]]] = {
    "delete": (lambda t: t.delete(where="n >= 20"), [["b", "c"]], {"a": 1, "c": 3}),
    "merge of all": (
        lambda t: t.merge(rows(a=5)).when_matched_update_all().when_not_matched_by_source_update({"n": 0}).execute(),
        [["b", "c"]], {"a": 5, "b": 0, "c": 0, "d": 0},
    ),
    "merge of keys": (lambda t: t.merge(rows(b=5)).when_matched_update({"n": "target.n + source.n"}).execute(),
        [], {"a": 1, "b": 30, "c": 3, "d": 40},
    ),
    "update of keys": (lambda t: t.update({"n": "n + 1"}, "id IN ('b', 'c')"), [], {"a": 1, "b": 26, "c": 4, "d": 40}),
    "two updates in a block": (two_updates, [["b", "c"]], {"a": 3, "b": 27, "c": 5, "d": 42}),
}  # fmt: skip
"""A statement that waits, the keys of its second read, and the rows after its commit."""


@pytest.mark.parametrize("name", [*STATEMENTS])
def test_a_statement_that_waits_reads_early_unless_it_reads_few_keys(name: str, found: list[list[str] | None]) -> None:
    do, keys, after = STATEMENTS[name]
    table = make()
    earlier = again(table).transaction()
    earlier.__enter__().upsert(rows(b=25, c=3))
    do(again(table, lambda: earlier.__exit__(None, None, None)))
    assert found == keys
    assert shown(table) == after


def test_a_refused_statement_leaves_no_early_read_to_the_next_one() -> None:
    table, where = make(), "n > 10"
    earlier = again(table).transaction()
    earlier.__enter__().upsert(rows(b=25))
    with again(table, lambda: earlier.__exit__(None, None, None)).transaction(isolation="serializable") as tx:
        tx._answer(Wait(SCHEMA.names, where))  # of a statement that is refused after its wait
        tx.upsert(rows(a=12))
        tx.update({"n": "n + 1"}, where)
    assert shown(table) == {"a": 13, "b": 26, "c": 31, "d": 41}


def test_a_filter_that_fails_on_rows_of_the_begin_is_asked_of_the_rows_after_the_wait() -> None:
    table = make()
    earlier = again(table).transaction()
    earlier.__enter__().upsert(rows(a=7).append_column("new", pa.array([5])), schema_mode="merge")
    own = again(table, lambda: earlier.__exit__(None, None, None))
    own.update({"n": "n + 1"}, "new = 5")
    assert shown(table)["a"] == 8


def test_an_overwrite_that_ended_during_the_wait_is_read_whole() -> None:
    table = make()
    first = again(table).transaction()
    first.__enter__().upsert(rows(a=50))

    def happens() -> None:
        again(table).overwrite(rows(b=60), partitions=["DE"])
        first.__exit__(None, None, None)

    again(table, happens).update({"n": "n + 1"})
    assert shown(table) == {"b": 60, "d": 41}


def test_payloads_that_ask_what_was_seen_read_once_after_the_wait(found: list[list[str] | None]) -> None:
    schema = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string()))])
    table = Table.create("memory", schema, opening=Opening(store=MemoryStore()), key="id", merge={"tags": ORSet()})
    table.upsert(pa.table({"id": ["a"], "tags": [["x"]]}, schema=schema))
    earlier = again(table).transaction()
    earlier.__enter__().upsert(pa.table({"id": ["a"], "tags": [["y"]]}, schema=schema))
    own = again(table, lambda: earlier.__exit__(None, None, None))
    own.update({"tags": pl.lit(["z"], dtype=pl.List(pl.String))})
    assert found == []
    assert table.scan().to_polars()["tags"].to_list() == [["z"]]
