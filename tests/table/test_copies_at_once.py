"""A first copy, and a process that fills its address meanwhile: one of them has it whole, the other an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import TableExistsError
from crdt_mor.log.paths import VERSIONS
from crdt_mor.store import MemoryStore, Store
from tests.inside import store_of
from tests.stores import ScriptedStore, first
from tests.tiers import only

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def made(store: Store, name: str, commits: int) -> Table:
    table = Table.create(name, SCHEMA, key="id", buckets=2, opening=Opening(store=store))
    for number in range(commits):
        table.upsert(pa.table({"id": [f"{name}{number}"], "n": [number]}, SCHEMA))
    return table


def copied(commits: int) -> Callable[[MemoryStore], Table]:
    """Another process copies another table, of as many commits."""

    def copy(target: MemoryStore) -> Table:
        other = made(MemoryStore(), "other", commits)
        other.copy("target", store=target)
        return other

    return copy


def created(target: MemoryStore) -> Table:
    return made(target, "target", 2)


def paths(store: Store) -> set[str]:
    found = {stat.path for folder in ("", ".hoodie") for stat in store.walk(folder)}
    return {path for path in found if "/.crdt_mor/" not in path}


def filled(table: Table, target: MemoryStore, step: int, meanwhile: Callable[[MemoryStore], Table]) -> tuple[Any, Any]:
    """The results of a copy, and of another process before an operation of it: an error, or the table that is there."""
    ends: dict[str, Any] = {}
    count = 0

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        nonlocal count
        count += 1
        if count == step:
            attempt("other", lambda: meanwhile(target))
        return call()

    def attempt(name: str, act: Callable[[], Table]) -> None:
        try:
            ends[name] = act()
        except TableExistsError as error:
            ends[name] = error

    def copy() -> Table:
        table.copy("target", store=ScriptedStore(target, script))
        return table

    attempt("copy", copy)
    assert count >= step, "the step is behind the end of the copy"
    return ends["copy"], ends["other"]


@pytest.mark.parametrize("step", only((2, 4, 9), range(1, 60)))
@pytest.mark.parametrize("meanwhile", [copied(1), copied(2), created], ids=["fewer commits", "as many", "created"])
def test_a_first_copy_another_table_comes_to_the_address_has_it_whole_or_is_refused(
    step: int, meanwhile: Callable[[MemoryStore], Table]
) -> None:
    target = MemoryStore()
    ends = filled(made(MemoryStore(), "source", 2), target, step, meanwhile)
    (winner,) = [end for end in ends if isinstance(end, Table)]
    there = Table("target", opening=Opening(store=target))
    assert there.to_arrow().to_pylist() == winner.to_arrow().to_pylist()
    assert there.verify(deep=True).is_sound
    assert paths(target) == paths(store_of(winner))
    if store_of(winner) is not target:  # the loser's note remains
        winner.upsert(pa.table({"id": ["more"], "n": [9]}, SCHEMA))
        winner.copy("target", update=True, store=target)
        assert there.scan().count() == winner.scan().count()


def test_a_first_copy_of_a_later_moment_overtakes_another_the_copy_is_sound() -> None:
    table, target = made(MemoryStore(), "source", 2), MemoryStore()

    def overtake() -> None:
        table.upsert(pa.table({"id": ["later"], "n": [9]}, SCHEMA))
        table.maintenance.compact()
        table.copy("target", store=target)

    table.copy("target", store=ScriptedStore(target, first("put", lambda path: path.startswith(VERSIONS), overtake)))
    there = Table("target", opening=Opening(store=target))
    assert there.verify(deep=True).is_sound
    assert there.to_arrow().to_pylist() == table.to_arrow().to_pylist()
