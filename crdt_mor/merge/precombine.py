"""Fold a transaction's statements: each key is deleted at most once, then written at most once.

statements   upsert(a: 1)  delete(a)  upsert(a: 2, b: 1)  upsert(b: 2)
latest       one row a: 2, one row b: 2                        an overwritten delete is dropped
ordering     delete a, then the greatest row or tombstone; of equal ones the later
columns      delete a, then per column the last value given, or the payload's merge of all
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.merge.blocks import META_COLUMNS, PARTITION_PATH, RECORD_KEY, Columns, DataBlock, DeleteBlock, distinct
from crdt_mor.merge.contributions import ORDER, Contributions, gather
from crdt_mor.merge.fold import Collapsed, StoredRows, collapse
from crdt_mor.merge.rule import MergeRule

LEFT: Final = "_crdt_left"
"""A column of upserted rows that names the columns that a row does not set, each with `LEFT_END` behind it."""
LEFT_END: Final = "\0"

_KEY = "_crdt_merge_key"
_NO_DELETES = pl.DataFrame(schema={RECORD_KEY: pl.String})
_NO_TOMBSTONES = pl.DataFrame(schema={RECORD_KEY: pl.String, ORDER: pl.Null})


@dataclass(frozen=True)
class RowsWrite:
    """An upsert: `_hoodie_record_key`, any of Hudi's columns, the user's, and columns that are only passed on.

    data: the rows; converted to a frame when needed.
    given: the user columns that it sets; None for all user columns of `rows`.
    nulls: as in `DataBlock`.
    """

    data: pl.DataFrame | pa.Table
    given: tuple[str, ...] | None = None
    nulls: tuple[str, ...] = ()

    @property
    def height(self) -> int:
        return len(self.data)

    @cached_property
    def rows(self) -> pl.DataFrame:
        return pl.DataFrame(self.data if isinstance(self.data, pl.DataFrame) else pl.from_arrow(self.data)).rechunk()

    @property
    def passed_on(self) -> list[str]:
        """The columns that the upsert does not set."""
        if self.given is None:
            return []
        return [name for name in self.rows.columns if name not in self.given and name not in META_COLUMNS]

    def as_stored(self, rule: MergeRule) -> list[StoredRows]:
        if rule.kind != "columns":
            return [StoredRows(None, self.rows)]
        set_ = tuple(name for name in self.rows.columns if name not in META_COLUMNS)
        rows = StoredRows(set_ if self.given is None else self.given, self.rows, self.nulls)
        return _by_left(rows) if LEFT in self.rows.columns else [rows]


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
    if (rows := _only_rows(writes)) is not None:
        return Collapsed(_NO_DELETES, _NO_TOMBSTONES, rows.as_stored(rule))
    key, blocks = _blocks(writes)
    columns = _columns(blocks, rule)
    written = {name for block in blocks if isinstance(block, DataBlock) for name in _names(block)}
    need = distinct([name for name in columns.schema if name in written], [RECORD_KEY])
    contributions = _leaving(gather(blocks, rule, columns, key, need))
    folded = collapse(contributions, contributions.lines, rule, key)
    unset = {_KEY, *(name for write in writes if isinstance(write, RowsWrite) for name in write.passed_on)}
    rows_by_given = [_without(unset, rows) for rows in folded.rows if rows.rows.height]
    return Collapsed(_tidy(folded.deletes), _tidy(folded.tombstones), rows_by_given)


def _only_rows(writes: Sequence[RowsWrite | DeleteWrite]) -> RowsWrite | None:
    """Return the rows of a single upsert of different keys, which stay as they are."""
    only = writes[0] if len(writes) == 1 else None
    return only if isinstance(only, RowsWrite) and all_differ(only.rows) else None


def _blocks(writes: Sequence[RowsWrite | DeleteWrite]) -> tuple[str, list[DataBlock | DeleteBlock]]:
    """Convert statements to blocks, and return the column of their keys: the record key within one partition."""
    frames = [write.rows if isinstance(write, RowsWrite) else write.keys for write in writes]
    partitions = {p for frame in frames if PARTITION_PATH in frame.columns for p in frame[PARTITION_PATH].unique()}
    if len(partitions) < 2:
        return RECORD_KEY, [*map(_block, writes, frames)]
    return _KEY, [*map(_block, writes, map(_keyed, frames))]


def _by_left(whole: StoredRows) -> list[StoredRows]:
    assert whole.given is not None
    result: list[StoredRows] = []
    for (names,), part in whole.rows.partition_by(LEFT, as_dict=True, maintain_order=True).items():
        left = {LEFT, *names.split(LEFT_END)}
        given, nulls = (tuple(name for name in some if name not in left) for some in (whole.given, whole.nulls))
        result.append(StoredRows(given, part.drop(*left, strict=False), nulls))
    return result


def _leaving(contributions: Contributions) -> Contributions:
    """Take the cells named in `LEFT` from the given ones."""
    rows = contributions.rows
    if LEFT not in rows.columns:
        return contributions
    given = {name: mask for name, mask in contributions.given.items() if name != LEFT}
    for names in rows[LEFT].drop_nulls().unique():
        others = (rows[LEFT] != names).fill_null(True).to_numpy()
        given |= {name: given[name] & others for name in names.split(LEFT_END)[:-1]}
    return replace(contributions, rows=rows.drop(LEFT), given=given)


def _without(unset: Collection[str], rows: StoredRows) -> StoredRows:
    given = rows.given and tuple(name for name in rows.given if name not in unset)
    return rows._replace(given=given, rows=_tidy(rows.rows))


def all_differ(rows: pl.DataFrame) -> bool:
    if rows.height < 2:
        return True
    many = PARTITION_PATH in rows.columns and rows[PARTITION_PATH].n_unique() > 1
    keys = rows.select(pl.struct(PARTITION_PATH, RECORD_KEY)).to_series() if many else rows[RECORD_KEY]
    return keys.hash().n_unique() == rows.height


def _block(write: RowsWrite | DeleteWrite, frame: pl.DataFrame) -> DataBlock | DeleteBlock:
    if isinstance(write, DeleteWrite):
        return DeleteBlock("", frame)
    given = None if write.given is None else (*write.given, *write.passed_on)
    return DataBlock("", frame, given, nulls=write.nulls)


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
