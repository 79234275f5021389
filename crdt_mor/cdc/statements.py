"""Make the statements of a transaction from folded changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from crdt_mor import Table, Transaction
from crdt_mor.cdc.folding import Address, Folded, Last
from crdt_mor.cdc.values import column
from crdt_mor.errors import InvalidInputError, SchemaMismatchError


@dataclass(frozen=True, slots=True)
class Target:
    schema: pa.Schema
    address: Sequence[str]
    outside: Sequence[str]
    ordering: str | None
    partial: bool

    @classmethod
    def of(cls, table: Table) -> Target:
        config = table.config
        address = tuple(dict.fromkeys((*config.key, *config.partition_sources)))
        outside = [name for name in config.partition_sources if name not in config.key]
        return cls(table.schema, address, outside, config.ordering, config.merge.startswith("partial_update"))

    @property
    def layered(self) -> bool:
        return self.partial and self.ordering is not None

    def type_of(self, name: str) -> pa.DataType | None:
        place = self.schema.get_field_index(name)
        return None if place < 0 else self.schema.field(place).type


def write(tx: Transaction, target: Target, folded: Folded) -> None:
    _complete_moved(tx, target, folded)
    frames = [*_frames(target, folded)]
    if folded.truncations:
        if frames:
            tx.overwrite(_joined(frames), schema_mode="merge")
        else:
            tx.truncate()
        return
    deletes = {address: last for address, last in folded.keys.items() if _needs_delete(last, target)}
    if deletes:
        tx.delete(_keys(target, deletes))
    for frame in frames:
        tx.upsert(frame, schema_mode="merge")


def _needs_delete(last: Last, target: Target) -> bool:
    """A partial row after a delete starts afresh."""
    return last.row is None or (target.partial and last.deleted_at is not None)


def _keys(target: Target, deletes: Mapping[Address, Last]) -> pa.Table:
    columns = _addresses(target, deletes)
    if target.ordering is not None and target.ordering not in columns:
        orders = [last.deleted_at for last in deletes.values()]
        columns[target.ordering] = column(target.ordering, orders, target.type_of(target.ordering), None)
    return pa.table(columns)


def _addresses(target: Target, addresses: Collection[Address]) -> dict[str, pa.Array]:
    """Return the values of events in the table's types."""
    return {
        name: column(name, [address[place] for address in addresses], target.type_of(name), None)
        for place, name in enumerate(target.address)
    }


def _complete_moved(tx: Transaction, target: Target, folded: Folded) -> None:
    """Take unchanged columns from the row under the old key."""
    moved = {last.moved_from: address for address, last in folded.keys.items() if last.moved_from is not None}
    if not moved or not target.partial:
        return
    keys = pa.table(_addresses(target, moved))
    by_key = dict(zip((tuple(row.values()) for row in keys.to_pylist()), moved.values(), strict=True))
    series = pl.DataFrame(pl.from_arrow(keys)).to_dict()
    condition = pl.all_horizontal(
        pl.col(name).is_in(values.implode(), nulls_equal=True) for name, values in series.items()
    )
    for row in tx.scan(filter=condition).to_arrow().to_pylist():
        if (address := by_key.get(tuple(row.pop(name) for name in target.address))) is not None:
            row.pop(target.ordering, None)
            folded.complete(address, row)


def _frames(target: Target, folded: Folded) -> Iterator[pa.Table]:
    """Yield a frame for each set of given columns; a key once."""
    groups: dict[tuple[int, frozenset[str]], list[dict[str, Any]]] = {}
    kinds: dict[str, pa.DataType] = {}
    for address, last in folded.keys.items():
        for place, (order, row) in enumerate(folded.parts(address)):
            if target.ordering is not None:
                _require_own(target.ordering, row)
                row[target.ordering] = order
            if not target.partial and not last.whole:
                _require_whole(target, row)
            groups.setdefault((place, frozenset(row)), []).append(row)
        kinds.update(last.types or {})
    if not target.partial and groups:
        every = {*target.schema.names}.union(*(names for _, names in groups))
        groups = {(0, frozenset(every)): [row for rows in groups.values() for row in rows]}
    for (_, names), rows in groups.items():
        ordered = [*(n for n in target.schema.names if n in names), *sorted(names - {*target.schema.names})]
        made = {n: column(n, [row.get(n) for row in rows], target.type_of(n), kinds.get(n)) for n in ordered}
        yield pa.table({n: values for n, values in made.items() if not pa.types.is_null(values.type)})


def _joined(frames: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(frames, promote_options="permissive")


def _require_own(ordering: str, row: Mapping[str, Any]) -> None:
    if ordering in row:
        raise InvalidInputError(
            "the ordering column is a column of the source, but change feeds are ordered by positions: create the "
            f"table with a further column as its ordering. column={ordering!r}"
        )


def _require_whole(target: Target, row: Mapping[str, Any]) -> None:
    absent = [name for name in target.schema.names if name not in row and name != target.ordering]
    if absent:
        raise SchemaMismatchError(
            "an update leaves out unchanged columns, and this table takes whole rows: create it with "
            "merge=PartialUpdate(), or set REPLICA IDENTITY FULL. If the source dropped the columns, drop them here "
            f"too. missing={absent}"
        )
