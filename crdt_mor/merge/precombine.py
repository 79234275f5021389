"""Fold a transaction's statements: each key is deleted at most once, then written at most once.

statements   upsert(a: 1)  delete(a)  upsert(a: 2, b: 1)  upsert(b: 2)
latest       one row a: 2, one row b: 2                        an overwritten delete is dropped
ordering     delete a, then the greatest row or tombstone; of equal ones the later
columns      delete a, then per column the last value given, or the payload's merge of all
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa

from crdt_mor.merge.blocks import META_COLUMNS, PARTITION_PATH, RECORD_KEY, Columns, DataBlock, DeleteBlock, distinct
from crdt_mor.merge.contributions import ORDER, gather
from crdt_mor.merge.fold import Collapsed, GivenRows, collapse
from crdt_mor.merge.rule import MergeRule

_KEY = "_crdt_merge_key"
_NO_DELETES = pl.DataFrame(schema={RECORD_KEY: pl.String})
_NO_TOMBSTONES = pl.DataFrame(schema={RECORD_KEY: pl.String, ORDER: pl.Null})


@dataclass(frozen=True)
class RowsWrite:
    """An upsert: `_hoodie_record_key`, any of Hudi's columns, the user's, and columns that are only passed on.

    data: the rows; converted to a frame when needed.
    given: the user columns that it sets; None for all user columns of `rows`.
    """

    data: pl.DataFrame | pa.Table
    given: tuple[str, ...] | None = None

    @property
    def height(self) -> int:
        return len(self.data)

    @cached_property
    def rows(self) -> pl.DataFrame:
        return pl.DataFrame(self.data if isinstance(self.data, pl.DataFrame) else pl.from_arrow(self.data)).rechunk()


@dataclass(frozen=True, slots=True)
class DeleteWrite:
    """A delete: `_hoodie_record_key`; with a column `ordering`, ordered tombstones (null makes a plain delete)."""

    keys: pl.DataFrame

    @property
    def height(self) -> int:
        return self.keys.height


def precombine(writes: Sequence[RowsWrite | DeleteWrite], rule: MergeRule) -> Collapsed:
    """Return deletes, then tombstones (with `ordering`), then rows grouped by the columns they set, in any order.

    A key is unique within its partition: frames of several partitions must all contain `_hoodie_partition_path`.
    """
    only = writes[0] if len(writes) == 1 else None
    if isinstance(only, RowsWrite) and all_differ(only.rows):
        given = only.given if rule.kind == "columns" else None
        if rule.kind == "columns" and given is None:
            given = tuple(c for c in only.rows.columns if c not in META_COLUMNS)
        return Collapsed(_NO_DELETES, _NO_TOMBSTONES, [GivenRows(given, only.rows)])
    frames = [w.rows if isinstance(w, RowsWrite) else w.keys for w in writes]
    parts = {p for f in frames if PARTITION_PATH in f.columns for p in f[PARTITION_PATH].unique()}
    key = RECORD_KEY if len(parts) < 2 else _KEY
    passed_on = {c for w in writes if isinstance(w, RowsWrite) and w.given is not None for c in _passed_on(w, w.given)}
    blocks = [_block(w, f if key == RECORD_KEY else _keyed(f)) for w, f in zip(writes, frames, strict=True)]
    columns = _columns(blocks, rule)
    need = [c for c in columns.schema if any(isinstance(b, DataBlock) and c in _names(b) for b in blocks)]
    contributions = gather(blocks, rule, columns, key, distinct(need, [RECORD_KEY]))
    folded = collapse(contributions, contributions.lines, rule, key)
    rows = [
        GivenRows(r.given and tuple(c for c in r.given if c not in passed_on and c != _KEY), _tidy(r.rows))
        for r in folded.rows
        if r.rows.height
    ]
    return Collapsed(_tidy(folded.deletes), _tidy(folded.tombstones), rows)


def all_differ(rows: pl.DataFrame) -> bool:
    if rows.height < 2:
        return True
    many = PARTITION_PATH in rows.columns and rows[PARTITION_PATH].n_unique() > 1
    keys = rows.select(pl.struct(PARTITION_PATH, RECORD_KEY)).to_series() if many else rows[RECORD_KEY]
    return keys.hash().n_unique() == rows.height


def _passed_on(write: RowsWrite, given: tuple[str, ...]) -> list[str]:
    return [c for c in write.rows.columns if c not in given and c not in META_COLUMNS]


def _block(write: RowsWrite | DeleteWrite, frame: pl.DataFrame) -> DataBlock | DeleteBlock:
    """Convert a statement to a block."""
    if isinstance(write, DeleteWrite):
        return DeleteBlock("", frame)
    given = None if write.given is None else (*write.given, *_passed_on(write, write.given))
    return DataBlock("", frame, given)


def _keyed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.concat_str(PARTITION_PATH, RECORD_KEY, separator="\0").alias(_KEY))


def _columns(blocks: Sequence[DataBlock | DeleteBlock], rule: MergeRule) -> Columns:
    rows = [b.rows.schema for b in blocks if isinstance(b, DataBlock) and isinstance(b.rows, pl.DataFrame)]
    stored: dict[str, pl.DataType] = {c: t for schema in reversed(rows) for c, t in schema.items()}
    if rule.ordering and rule.ordering not in stored:
        typed = [b.keys.schema[ORDER] for b in blocks if isinstance(b, DeleteBlock) and ORDER in b.keys.columns]
        stored[rule.ordering] = typed[0] if typed else pl.Null()
    return Columns({_KEY: pl.String(), **{c: t for c, t in stored.items() if c not in META_COLUMNS}})


def _names(block: DataBlock) -> list[str]:
    assert isinstance(block.rows, pl.DataFrame)
    return block.rows.columns


def _tidy(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop(_KEY, strict=False)
