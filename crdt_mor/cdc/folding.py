"""Fold the changes of a commit: one row or one delete for each key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crdt_mor.cdc.changes import Change
from crdt_mor.errors import InvalidInputError

Address = tuple[Any, ...]
Layer = tuple[int, dict[str, Any]]


@dataclass(slots=True)
class Last:
    """The last state of a key.

    row: None: deleted. deleted_at: order of a delete. moved_from: key of the row with the other columns.
    """

    row: dict[str, Any] | None
    whole: bool
    order: int
    deleted_at: int | None = None
    moved_from: Address | None = None
    types: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Folded:
    """The last states of keys, after the last truncation.

    address: columns of the table's key and partition. outside: its partition columns that are not in the key.
    layered: the newest event decides each column, so rows of different orders stay apart.
    """

    address: Sequence[str]
    outside: Collection[str]
    ordered: bool
    layered: bool = False
    keys: dict[Address, Last] = field(default_factory=dict)
    layers: dict[Address, list[Layer]] = field(default_factory=dict)
    truncations: int = 0

    def add(self, change: Change) -> None:
        match change.operation:
            case "t":
                self.keys.clear()
                self.layers.clear()
                self.truncations += 1
            case "d":
                self._delete(self._before(change), change)
            case "c" | "r":
                self._write(self._after(change), change, {**(change.row or {})}, whole=True)
            case "u":
                self._update(change)

    def _update(self, change: Change) -> None:
        old, new = self._old(change), self._after(change)
        row = {**(change.row or {})}
        if old is None or old == new:
            self._write(new, change, row, whole=change.whole)
            return
        held = self.keys.get(old)
        base, is_whole, moved_from = change.before or {}, change.whole, old
        if held is not None and held.row is not None:
            base, is_whole, moved_from = {**base, **held.row}, is_whole or held.whole, held.moved_from or old
        self._delete(old, change)
        kept = {} if change.whole else {name: base[name] for name in base if name not in self.address}
        self._write(new, change, {**kept, **row}, whole=is_whole)
        if not is_whole:
            self.keys[new].moved_from = moved_from

    def _write(self, address: Address, change: Change, row: dict[str, Any], *, whole: bool) -> None:
        row.update(zip(self.address, address, strict=True))
        order, held = _order(change), self.keys.get(address)
        if not whole and change.before:
            row = {**_beside(change.before, row), **row}
        if self.layered and (held is None or held.deleted_at is None or held.deleted_at <= order):
            self.layers.setdefault(address, []).append((order, row))
        if held is None:
            self.keys[address] = Last(row, whole, order, types=change.types)
        elif self.ordered and held.order > order:
            if held.row is not None and not held.whole and held.deleted_at is None:
                held.row = {**row, **held.row}
        elif held.row is None or whole:
            self.keys[address] = Last(row, whole, order, held.deleted_at, types=change.types)
        else:
            types = {**(held.types or {}), **(change.types or {})}
            self.keys[address] = Last({**held.row, **row}, held.whole, order, held.deleted_at, held.moved_from, types)

    def _delete(self, address: Address, change: Change) -> None:
        order, held = _order(change), self.keys.get(address)
        if self.layered:
            self.layers[address] = [layer for layer in self.layers.get(address, ()) if layer[0] > order]
        if held is None or not self.ordered or held.order <= order:
            self.keys[address] = Last(None, False, order, order)
        elif held.deleted_at is None or held.deleted_at < order:
            held.deleted_at = order

    def parts(self, address: Address) -> list[Layer]:
        """Return rows and their orders; each column once."""
        last = self.keys[address]
        if not self.layered or self.truncations:
            return [] if last.row is None else [(last.order, last.row)]
        found: list[Layer] = []
        seen = {*self.address}
        for order, row in sorted(self.layers.get(address, ()), key=lambda layer: layer[0])[::-1]:
            own = {name: value for name, value in row.items() if name not in seen}
            if own or not found:
                found.append((order, {**dict(zip(self.address, address, strict=True)), **own}))
            seen.update(own)
        return found

    def complete(self, address: Address, row: Mapping[str, Any]) -> None:
        last = self.keys[address]
        if last.row is None:
            return
        more = _beside(row, last.row)
        last.row = {**last.row, **more}
        if self.layered:
            self.layers[address].append((last.order, more))

    # --- keys -----------------------------------------------------------------------------------------------------

    def _after(self, change: Change) -> Address:
        return self._address(change, change.row or {}, change.key or {}, change.before or {})

    def _before(self, change: Change) -> Address:
        return self._address(change, change.before or {}, change.key or {}, change.row or {})

    def _old(self, change: Change) -> Address | None:
        told = {**(change.key or {}), **(change.before or {})}
        absent = [name for name in self.outside if name not in told]
        if absent:
            raise InvalidInputError(
                "an update lacks the old values of partition columns, so the old row could stay in another partition: "
                "set REPLICA IDENTITY FULL, or, if they never change, add the columns to the table's key. "
                f"missing={absent} event={str(change.event)[:200]}"
            )
        if not any(name in told for name in self.address):
            return None
        return self._address(change, told, change.row or {})

    def _address(self, change: Change, *places: Mapping[str, Any]) -> Address:
        there = {name: place[name] for place in reversed(places) for name in self.address if name in place}
        absent = [name for name in self.address if name not in there]
        if absent:
            raise InvalidInputError(
                "an event lacks key or partition columns of the table: set REPLICA IDENTITY, or take columns of the "
                f"source's key as the table's key. missing={absent} event={str(change.event)[:200]}"
            )
        return tuple(there[name] for name in self.address)


def _beside(before: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in before.items() if name not in row}


def _order(change: Change) -> int:
    return change.position if change.order is None else change.order


def fold(
    changes: Iterable[Change],
    address: Sequence[str],
    outside: Collection[str] = (),
    *,
    ordered: bool = False,
    layered: bool = False,
) -> Folded:
    folded = Folded(address, outside, ordered, layered)
    for change in changes:
        folded.add(change)
    return folded
