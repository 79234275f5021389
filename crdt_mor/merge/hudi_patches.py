"""Partial updates in tables that Hudi writes: its MERGE INTO appends log blocks with some of the columns.

Hudi first folds a key's log contributions, then folds the result onto the base row. Of two contributions, the later one
or the one with the greater ordering value sets its columns:

    base  k 10 a b     log  k 20 A -     log  k 15 - B      ->  k 20 A B     ordered by the number, as Hudi's reader

In a table with a partial update mode, each row has all columns. A null, or a marker text of the table, leaves its
column unchanged. There the losing contribution sets the columns that the winner leaves, in logs and in the base:

    base  k 20 a -     log  k 10 - B                           ->  k 20 a B     with nulls that leave a column

Keys with such blocks are folded here, row by row, so the merge sees whole rows only. Partial updates in crdt_mor's own
tables use the rule `columns` and never come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, Columns, DataBlock, DeleteBlock, Slice, is_partial
from crdt_mor.merge.contributions import ORDER, conform, raw, scan, scan_contents
from crdt_mor.merge.rule import MergeRule

Row = Mapping[str, Any]


def with_whole_rows(files: Slice, rule: MergeRule, columns: Columns) -> Slice:
    """Replace Hudi's partial rows with whole ones; a slice without partial rows is returned unchanged."""
    if rule.kind == "columns" or not any(is_partial(block) for block in files.blocks):
        return files
    unset = _unset(files)
    decoded = [_decoded(block, rule, columns) for block in files.blocks]
    patched = [rows[RECORD_KEY] for rows, block in zip(decoded, files.blocks, strict=True) if is_partial(block)]
    keys = pl.concat(patched).unique(maintain_order=True)
    of_key = {key: _Key(rule.ordering, unset) for key in keys}
    rest: list[DataBlock | DeleteBlock] = []
    for block, rows in zip(files.blocks, decoded, strict=True):
        is_patched = rows[RECORD_KEY].is_in(keys.implode())
        for row in rows.filter(is_patched).iter_rows(named=True):
            if isinstance(block, DeleteBlock):
                of_key[row[RECORD_KEY]].delete(row.get(ORDER))
            else:
                of_key[row[RECORD_KEY]].write(row, whole=block.given is None)
        if not is_patched.any():
            rest.append(block)
        elif not is_patched.all():
            others = rows.filter(~is_patched)
            rest.append(replace(block, keys=others) if isinstance(block, DeleteBlock) else replace(block, rows=others))
    below = _base_rows(files.base, columns, keys)
    merged = {key: of_key[key].on(below.get(key), key) for key in keys}
    whole = [row for row in merged.values() if row is not None]
    # A winning tombstone still blocks later versions with lesser ordering values.
    won = {key: of_key[key].tombstone for key, row in merged.items() if row is None}
    at = max([*(b.instant for b in files.blocks), *(str(row[COMMIT_TIME]) for row in below.values())])
    after: tuple[DataBlock | DeleteBlock, ...] = (
        DeleteBlock(at, keys.alias(RECORD_KEY).to_frame()),
        *_tombstones(at, {key: order for key, order in won.items() if order is not None}, rule, columns),
        DataBlock(at, pl.DataFrame(whole, schema=columns.schema, orient="row")),
    )
    return Slice(files.base, files.base_latest, (*rest, *after))


def _unset(files: Slice) -> tuple[str | None, ...]:
    rows = [block for block in files.blocks if isinstance(block, DataBlock)]
    for block in rows:
        if block.unset and block.given is not None:
            raise UnsupportedFeatureError(
                "Hudi's MERGE INTO wrote a partial update to a table with a partial update mode. Hudi's readers apply "
                f"only one of the two. Run a compaction with Hudi. instant={block.instant}"
            )
    return next((block.unset for block in rows), ())


def _tombstones(at: str, order_of: Mapping[str, Any], rule: MergeRule, columns: Columns) -> list[DeleteBlock]:
    if rule.ordering is None or not order_of:
        return []
    kinds = {RECORD_KEY: pl.String(), ORDER: columns.stored[rule.ordering]}
    return [DeleteBlock(at, pl.DataFrame([list(order_of), list(order_of.values())], schema=kinds))]


def _decoded(block: DataBlock | DeleteBlock, rule: MergeRule, columns: Columns) -> pl.DataFrame:
    if isinstance(block, DeleteBlock):
        ordered = ORDER in block.keys.columns and rule.ordering is not None
        kind = columns.stored[rule.ordering] if rule.ordering else None
        return block.keys.with_columns(pl.col(ORDER).cast(kind)) if ordered and kind is not None else block.keys
    every = columns.select_all()
    need = every if block.given is None else [c for c in every if c in block.given or c not in columns.stored]
    if rule.ordering is not None and rule.ordering not in need:
        raise UnsupportedFeatureError(
            "Hudi wrote a partial update without the table's ordering column, so its order is unknown. Run a "
            f"compaction with Hudi. column={rule.ordering} instant={block.instant}"
        )
    if isinstance(block.rows, pl.DataFrame):
        return conform(block.rows, columns, need)
    return scan_contents([raw(block.rows)], columns).select(need).collect()


def _base_rows(base: ParquetSource | None, columns: Columns, keys: pl.Series) -> dict[str, Row]:
    if base is None:
        return {}
    hit = scan(base, columns).filter(pl.col(RECORD_KEY).is_in(keys.implode())).select(columns.select_all()).collect()
    return {row[RECORD_KEY]: row for row in hit.iter_rows(named=True)}


@dataclass
class _Key:
    """The fold of a key's log contributions so far. `tombstone`: the greatest tombstone's ordering value."""

    ordering: str | None
    unset: tuple[str | None, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    cleared: bool = False
    tombstone: Any = None

    def write(self, row: Row, *, whole: bool) -> None:
        if not self.values and self.tombstone is not None and not _is_at_least(self._order(row), self.tombstone):
            return
        given, left = self._split(row)
        whole = whole and not left
        if not self.values or self._wins(row, self.values):
            self.values = given if whole else {**self.values, **given}
        elif not self.whole:
            self.values = {**given, **self.values}
        self.whole = self.whole or whole
        self.left = {name: value for name, value in (self.left | left).items() if name not in self.values}

    def delete(self, order: Any) -> None:
        if order is None:
            self.values, self.left, self.whole, self.cleared, self.tombstone = {}, {}, False, True, None
        elif not self.values or _is_at_least(order, self._order(self.values)):
            tombstone = order if self.tombstone is None else max(order, self.tombstone)
            self.values, self.left, self.whole, self.tombstone = {}, {}, False, tombstone

    def on(self, base: Row | None, key: str) -> Row | None:
        buried = self.tombstone is not None and base is not None and _is_at_least(self.tombstone, self._order(base))
        below = None if self.cleared or buried else base
        if not self.values:
            return below
        if below is not None and not self._wins(self.values, below):
            given, left = self._split(below)
            return {**left, **{name: value for name, value in self.values.items() if name in left}, **given}
        if self.whole:
            return self.values
        if self.unset and below is None and (base is None or not self.left.keys() & self._split(base)[0].keys()):
            return {**self.left, **self.values}
        if below is None:
            raise UnsupportedFeatureError(
                "Hudi wrote a partial update of a row that was deleted or never there, so that its other columns are "
                f"lost: delete the row, or write it whole, with Hudi. key={key}"
            )
        return {**below, **self.values}

    def _split(self, row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.unset:
            return dict(row), {}
        left = {name: value for name, value in row.items() if _leaves(value, self.unset) and name != self.ordering}
        return {name: value for name, value in row.items() if name not in left}, left

    def _wins(self, row: Row, other: Row) -> bool:
        return self.ordering is None or _is_at_least(self._order(row), self._order(other))

    def _order(self, row: Row) -> Any:
        return row[self.ordering] if self.ordering else None


def _leaves(value: Any, unset: tuple[str | None, ...]) -> bool:
    """Return True if a value leaves its column unchanged. Hudi's readers find no marker in bytes."""
    return (value is None or isinstance(value, str)) and value in unset


def _is_at_least(order: Any, other: Any) -> bool:
    return other is None or (order is not None and bool(order >= other))
