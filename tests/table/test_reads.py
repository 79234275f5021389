"""For which writes an update need not wait: exhaustively, over all short histories of one row.

Each history is of writes in the order in which they were requested, and an update at its end. Those writes for which it
does not wait may end before it reads, or after: what the update writes must be the same, whichever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, Final

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.columns.schema import TableSchema
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.payloads import PartialUpdate
from crdt_mor.read import reads as waiting
from crdt_mor.read.reads import Reads
from crdt_mor.store import MemoryStore
from tests.inside import session_of, tail_of

Row = dict[str, int | None] | None
"""The columns of the one row beside its key, and its partition; None: there is no row."""

SCHEMA: Final = pa.schema([("id", pa.string()), ("part", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
TABLE: Final = Table.create(
    "memory", SCHEMA, opening=Opening(store=MemoryStore()), key="id", partition_by=["part"], merge=PartialUpdate()
)  # fmt: skip


@dataclass(frozen=True)
class Write:
    """A write of the row, in a partition that is always `p`. updates: it is an update, of a row that is there."""

    name: str
    sets: tuple[tuple[str, int], ...] = ()
    updates: bool = False
    deletes: bool = False
    declared: Declared = ANYTHING

    def on(self, row: Row, exact: Row) -> Row:
        """The row after it. exact: the row as all writes before it have made it, which an update has read."""
        if self.deletes:
            return None
        if self.updates and exact is None:
            return row
        return {"a": None, "b": None, **(row or {}), **dict(self.sets)}


WRITES: Final = (
    Write("blind a", (("a", 1),)),
    Write("blind b", (("b", 1),), declared=Declared(None, ("b",))),
    Write("update b", (("b", 2),), updates=True, declared=Declared(None, ("b",), existing=True)),
    Write("update a", (("a", 2),), updates=True, declared=Declared(None, ("a",), existing=True)),
    Write("delete", deletes=True, declared=Declared(("part=p",))),
    Write("both in p", (("a", 3), ("b", 3)), declared=Declared(("part=p",))),
)

Holds = Callable[[dict[str, Any]], bool]
CONDITIONS: Final[dict[str | None, Holds]] = {
    None: lambda row: True,
    "a > 0": lambda row: row["a"] is not None and row["a"] > 0,
    "a IS NULL": lambda row: row["a"] is None,
    "a IS NULL OR a > 1": lambda row: row["a"] is None or row["a"] > 1,
    "b IS NULL": lambda row: row["b"] is None,
    "a > 0 AND b IS NULL": lambda row: row["a"] is not None and row["a"] > 0 and row["b"] is None,
    "id = 'k'": lambda row: True,
    "id = 'k' AND a = 1": lambda row: row["a"] == 1,
    "part = 'q'": lambda row: False,
    "part <> 'q' AND a > 0": lambda row: row["a"] is not None and row["a"] > 0,
    "coalesce(a, 5) = 5": lambda row: row["a"] in (None, 5),
}


def histories(length: int) -> Iterator[Sequence[Write]]:
    return chain.from_iterable(product(WRITES, repeat=count) for count in range(1, length + 1))


def row_of(history: Sequence[Write], seen: Sequence[bool]) -> Row:
    """The row that those writes make that are seen; each update of them has read all before it."""
    exact: Row = None
    row: Row = None
    for write, is_seen in zip(history, seen, strict=True):
        row = write.on(row, exact) if is_seen else row
        exact = write.on(exact, exact)
    return row


def written(row: Row, condition: str | None, columns: frozenset[str] | None) -> object:
    """What an update depends on: whether there is such a row, and what it reads of it."""
    if row is None or not CONDITIONS[condition](row):
        return None
    return {name: value for name, value in row.items() if columns is None or name in columns}


def check(length: int) -> int:
    """Search all histories of at most so many writes; returns how many writes were not waited for."""
    config, schema, free = session_of(TABLE).config, TableSchema.from_json(tail_of(TABLE).schema), 0
    for condition, columns in product(CONDITIONS, (frozenset(["a"]), frozenset(["b"]), frozenset(["id"]), None)):
        reads = Reads.of(None if columns is None else sorted(columns), condition, schema)
        waits = {write: reads.may_meet(write.declared, config, schema) for write in WRITES}
        for history in histories(length):
            unwaited = [n for n, write in enumerate(history) if not waits[write]]
            everything = written(row_of(history, [True] * len(history)), condition, columns)
            for unseen in chain.from_iterable(combinations(unwaited, n) for n in range(1, len(unwaited) + 1)):
                free += 1
                seen = [n not in unseen for n in range(len(history))]
                found = written(row_of(history, seen), condition, columns)
                told = [write.name for write in history]
                assert found == everything, f"{condition} of {columns} after {told}, without {unseen}"
    return free


def test_what_is_not_waited_for_changes_nothing_that_is_read() -> None:
    assert check(3) > 1000


def new_rows_are_ruled_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting, "_rules_out_new", lambda *_: True)


def columns_of_the_condition_are_not_read(patch: pytest.MonkeyPatch) -> None:
    may_meet = Reads.may_meet

    def careless(reads: Reads, declared: Declared, *rest: Any) -> bool:
        is_of_others = reads.columns is not None and reads.columns.isdisjoint(declared.columns or reads.columns)
        return may_meet(reads, declared, *rest) and not (declared.existing and is_of_others)

    patch.setattr(Reads, "may_meet", careless)


def a_null_meets_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting, "_fails_on_null", lambda *_: True)


def every_write_is_of_rows_that_are_there(patch: pytest.MonkeyPatch) -> None:
    may_meet = Reads.may_meet

    def careless(reads: Reads, declared: Declared, *rest: Any) -> bool:
        existing = declared.columns is not None
        return may_meet(reads, Declared(declared.partitions, declared.columns, existing), *rest)

    patch.setattr(Reads, "may_meet", careless)


@pytest.mark.parametrize(
    "plant",
    [
        new_rows_are_ruled_out,
        columns_of_the_condition_are_not_read,
        a_null_meets_nothing,
        every_write_is_of_rows_that_are_there,
    ],
    ids=lambda plant: plant.__name__,
)
def test_the_search_finds(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="without"):
        check(3)
