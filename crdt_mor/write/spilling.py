"""Check the rows of a large write as they are read, and sort them into slots of a temporary file.

    batches ─ some MiB ─► checked, keyed ─ by file group and hash of the key ─► 64 slots in a file ─► parts of 64 MiB

A key has one slot, so each part is folded and staged like a small write.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.ground.spill import Extent, SpillFile
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.slices import batches_of
from crdt_mor.write.log_files import BUCKET, Group, by_group
from crdt_mor.write.named import NamedStatements, Prepared
from crdt_mor.write.spilled import PLACE, Part, SpilledWrite
from crdt_mor.write.statements import PLACES_MAX, CheckedRows, RowsStatement, Statements, means_alike, refuse_repeats

PART_BYTES: Final = 64 << 20
"""Most Arrow bytes of a part, and of a write without a temporary file."""

PART_OF_LIMIT: Final = 8
"""A write takes up to so many times the bytes of a part."""

SLOTS: Final = 64

_KEYS: Final = (RECORD_KEY, PARTITION_PATH, BUCKET)


def part_bytes(memory_limit: int) -> int:
    return max(1, min(PART_BYTES, memory_limit // PART_OF_LIMIT))


class Slots:
    """Rows in a file, by slot: a class of file groups, and of keys if `by_key`."""

    def __init__(self, file: SpillFile, part: int, *, by_key: bool, depth: int = 0) -> None:
        self.file = file
        self._part = part
        self._by_key = by_key
        self._depth = depth
        self._per_group = 0
        self._numbers: dict[Group, int] = {}
        self._extents: defaultdict[int, list[Extent]] = defaultdict(list)
        self._bytes: defaultdict[int, int] = defaultdict(int)

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        slots = self._slots(rows)
        order = np.argsort(slots.astype(np.uint16), kind="stable")
        rows = rows.combine_chunks().take(pa.array(order))
        slots, size = slots[order], bytes_of(rows)
        starts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), rows.num_rows]
        for start, end in pairwise(starts):
            slot = int(slots[start])
            self._extents[slot].append(self.file.put_rows(rows.slice(start, end - start)))
            self._bytes[slot] += size * (end - start) // rows.num_rows

    def parts(self) -> Iterator[Part]:
        waiting, size = list[int](), 0
        for _, members in sorted(self._classes().items()):
            more = sum(self._bytes[slot] for slot in members)
            if waiting and size + more > self._part:
                yield self._made(waiting, is_split=False)
                waiting, size = [], 0
            if more > self._part and (parts := self._divided(members)):
                yield from parts
                continue
            waiting, size = [*waiting, *members], size + more
        if waiting:
            yield self._made(waiting, is_split=False)

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset(partition for partition, _ in self._numbers)

    def _classes(self) -> dict[int, list[int]]:
        classes: dict[int, list[int]] = {}
        for slot in sorted(self._extents):
            classes.setdefault(slot // self._per_group, []).append(slot)
        return classes

    def _divided(self, members: list[int]) -> list[Part]:
        """Divide slots of too many bytes into parts; a single slot into slots first.

        [] if its rows have the same key or group.
        """
        if len(members) > 1:
            some = batches_of(((slot, self._bytes[slot]) for slot in members), self._part)
            return [part for slots in some for part in self._made_or_divided(slots)]
        inner = Slots(self.file, self._part, by_key=self._by_key, depth=self._depth + 1)
        for extent in self._extents[members[0]]:
            inner.add(self.file.get_rows([extent]))
        if len(inner._extents) == 1:
            return []
        is_split = self._per_group > 1
        return [replace(part, is_split=part.is_split or is_split) for part in inner.parts()]

    def _made_or_divided(self, slots: list[int]) -> list[Part]:
        is_large = sum(self._bytes[slot] for slot in slots) > self._part and len(slots) == 1
        return (self._divided(slots) if is_large else []) or [self._made(slots, is_split=True)]

    def _made(self, slots: list[int], *, is_split: bool) -> Part:
        return Part(tuple(extent for slot in slots for extent in self._extents[slot]), is_split)

    def _slots(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        keys = pl.DataFrame(pl.from_arrow(rows.select(_KEYS)))
        groups = list(by_group(keys))
        if not self._per_group:
            self._per_group = max(1, SLOTS // len(groups)) if self._by_key else 1
        slots = np.empty(keys.height, dtype=np.int64)
        for group, positions in groups:
            number = self._numbers.setdefault(group, len(self._numbers))
            slots[positions.to_numpy()] = number % (SLOTS // self._per_group) * self._per_group
        if self._per_group > 1:
            slots += (keys[RECORD_KEY].hash(self._depth) % self._per_group).to_numpy().astype(np.int64)
        return slots


@dataclass(frozen=True, slots=True)
class SpilledStatement:
    """A write with its rows in a temporary file. slots: returns new slots in the file, for another check."""

    prepared: Prepared
    slots: Callable[[], Slots]

    @property
    def size(self) -> None:
        """None, for many bytes."""
        return None

    def prepared_by(self, statements: Statements) -> Prepared:
        """Check the rows again if this version accepts others."""
        prepared = self.prepared
        if not means_alike(prepared.value, statements.value):
            checked = _spilled(statements, self._checked_again(statements), self.slots())
            prepared = replace(prepared, checked=checked)
        return replace(prepared, value=statements.value)

    def _checked_again(self, statements: Statements) -> Iterator[tuple[CheckedRows, pa.Array | None]]:
        spilled = self.prepared.checked.statement
        assert isinstance(spilled, SpilledWrite)
        for part in spilled.parts:
            rows = spilled.rows(part)
            places = rows[PLACE].combine_chunks() if PLACE in rows.column_names else None
            yield statements.check(replace(self.prepared.stored, rows=rows.select(spilled.columns))), places


def spill(
    statements: Statements,
    tables: Iterable[pa.Table],
    statement: Callable[[pa.Table], RowsStatement],
    slots: Callable[[], Slots],
) -> SpilledStatement:
    """Check the rows table by table. tables: at least one."""
    prepared: list[Prepared] = []

    def checked() -> Iterator[tuple[CheckedRows, pa.Array | None]]:
        place, named = 0, NamedStatements(statements)
        for table in tables:
            with _rows_counted_from(place):
                one = named.prepared(statement(table))
            if not prepared:
                prepared.append(replace(one, stored=replace(one.stored, rows=one.stored.rows.slice(0, 0))))
                statements.shown.update(one.shown)
            yield one.checked, _places(place, table.num_rows) if statements.config.merge.custom else None
            place += table.num_rows

    whole = _spilled(statements, checked(), slots())
    return SpilledStatement(replace(prepared[0], checked=whole), slots)


def _spilled(
    statements: Statements, checks: Iterable[tuple[CheckedRows, pa.Array | None]], slots: Slots
) -> CheckedRows:
    whole: CheckedRows | None = None
    nulls = dict[str, None]()
    for checked, places in checks:
        assert isinstance(checked.statement, RowsWrite)
        if whole is None:
            whole = checked
            statements.move_to(checked.schema)
        rows = checked.statement.data
        assert isinstance(rows, pa.Table)
        slots.add(rows if places is None else rows.append_column(PLACE, places))
        nulls |= dict.fromkeys(checked.nulls)
    assert whole is not None
    parts = tuple(slots.parts())
    if whole.kind == "INSERT":
        for part in parts:
            refuse_repeats(pl.DataFrame(pl.from_arrow(slots.file.get_rows(part.extents, [RECORD_KEY, PARTITION_PATH]))))
    spilled = SpilledWrite(slots.file, parts, whole.merging, whole.columns, tuple(nulls), slots.partitions)
    return replace(whole, statement=spilled)


@contextmanager
def _rows_counted_from(first: int) -> Iterator[None]:
    """Let errors number a table's rows from the beginning of the write."""
    try:
        yield
    except CrdtMorError as error:
        text = re.sub(r"(?<=\brow=)\d+", lambda found: str(first + int(found[0])), str(error))
        error.args = (text, *error.args[1:])
        raise


def _places(first: int, rows: int) -> pa.Array:
    if first + rows > PLACES_MAX:
        raise InvalidInputError(
            f"a write to a table with payloads has at most {PLACES_MAX} rows: divide it, or write it with jobs.plan"
        )
    return pa.array(np.arange(first, first + rows, dtype=np.int32))
