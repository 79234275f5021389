"""From blocks to contributions: every row and every delete of a slice's logs, one line each, in fold order.

    rows       all the data rows of all blocks, decoded once, in one scan, only the columns that somebody needs
    deletes    all the deletes
    lines      _crdt_key | kind | at (position in rows or deletes) | time | ordering     in START_COMMIT_TIME order

Decisions are made on the narrow lines; the wide rows are gathered once, by position, when the winners are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import (
    COMMIT_TIME,
    META_COLUMNS,
    RECORD_KEY,
    Columns,
    DataBlock,
    DeleteBlock,
    distinct,
)
from crdt_mor.merge.rule import MergeRule

LINE_KEY, KIND, AT, TIME, ORDER = "_crdt_key", "kind", "at", "time", "ordering"
PLAIN, TOMBSTONE, ROW = 0, 1, 2
"""Kinds of lines; of two with one requested time the delete comes first."""

_WIDEN = pl.ScanCastOptions(
    integer_cast=["upcast", "allow-float"],
    float_cast="upcast",
    datetime_cast="millisecond-upcast",
    missing_struct_fields="insert",
    extra_struct_fields="ignore",
)


@dataclass(frozen=True, slots=True)
class Contributions:
    """The rows, deletes and lines of some blocks, see the module.

    given: for each column, whether the block of each row gives it; for the rule `columns` alone.
    """

    rows: pl.DataFrame
    deletes: pl.DataFrame
    lines: pl.DataFrame
    given: dict[str, np.ndarray]


def scan(source: ParquetSource, columns: Columns, place: str | None = None) -> pl.LazyFrame:
    """Parquet files as the table's columns are now: newer columns are null, narrower types widened exactly.

    place: as `ParquetSource.scan` has it, of one file.
    """
    if not columns.numbered or place is not None:
        return source.scan(columns.schema, _WIDEN, place)
    return pl.concat([_with_texts(file, columns) for file in source.at_hand().one_by_one()])


def _with_texts(file: ParquetSource, columns: Columns) -> pl.LazyFrame:
    """One file as `scan` gives it, with the texts of the integers that it holds in columns of texts."""
    held = file.scan().collect_schema()
    here = columns.numbered.intersection(held if file.columns is None else file.columns)
    numbers = {name: held[name] for name in sorted(here) if held[name].is_integer()}
    texts = [pl.col(name).cast(pl.String) for name in numbers]
    return file.scan({**columns.schema, **numbers}, _WIDEN).with_columns(texts)


def scan_ranges(source: ParquetSource, columns: Columns, ranges: Sequence[tuple[int, int]]) -> pl.LazyFrame:
    """Some ranges of the rows of a file, each by its first row and its number of rows, as `scan` gives them."""
    rows = scan(source, columns)
    return pl.concat([rows.slice(*some) for some in ranges]) if ranges else rows.head(0)


def scan_contents(contents: Sequence[bytes], columns: Columns) -> pl.LazyFrame:
    """The rows of Parquet files in memory, such as those in log blocks, as the table's columns are now."""
    return scan(ParquetSource.in_memory(*contents), columns)


class RowGroup(NamedTuple):
    """A row group of a Parquet file, by its footer: its rows, and the least and the greatest value of a column."""

    rows: int
    least: Any
    greatest: Any


def row_groups(source: ParquetSource, column: str) -> list[RowGroup] | None:
    """The statistics of a column by row group; None if a file lacks them, as blocks of a log do."""
    if not source.is_one_file:
        return None
    try:
        return _row_groups(source.metadata(), column)
    except (OSError, ValueError, pa.ArrowException):
        return None  # the scan will say what is wrong with it


def _row_groups(footer: pq.FileMetaData, column: str) -> list[RowGroup] | None:
    number = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == column), None)
    if number is None:
        return None
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    statistics = [group.column(number).statistics for group in groups]
    if any(s is None or not s.has_min_max for s in statistics):
        return None
    return [RowGroup(group.num_rows, s.min, s.max) for group, s in zip(groups, statistics, strict=True)]


def conform(frame: pl.DataFrame, columns: Columns, need: Sequence[str]) -> pl.DataFrame:
    """Decoded rows with the columns `need` in the table's types; null where the file lacks a column."""
    schema = columns.schema
    have = set(frame.columns)
    return frame.select((pl.col(c).cast(schema[c]) if c in have else pl.lit(None, schema[c])).alias(c) for c in need)


def raw(data: bytes | memoryview) -> bytes:
    """Bytes for polars; they are copied if `data` is a view of something larger."""
    return data if isinstance(data, bytes) else data.tobytes()


def gather(
    blocks: Sequence[DataBlock | DeleteBlock],
    rule: MergeRule,
    columns: Columns,
    key: str,
    need: Sequence[str],
    *,
    timed: bool = False,
) -> Contributions:
    """Decode blocks, which are in fold order. `timed`: every line gets its requested time."""
    data = [b for b in blocks if isinstance(b, DataBlock)]
    own = have_own_times(blocks)
    wanted = needed(need, rule, key, own)
    rows = decode(data, columns, wanted)
    # Rows alone, without times, under a rule that does not look at blocks: no line depends on the block of its row, so
    # that no footer is opened for a number of rows. Of many small blocks of Hudi's, footers cost a tenth of the merge.
    one_run = len(data) == len(blocks) and not own and not timed and rule.kind != "columns"
    heights = [rows.height] if one_run else [height(b) for b in data]
    lines = _lines(blocks, rows, heights, rule, columns, key, own or timed)
    if own:
        # Carried contributions stand in a block whose instant is not their requested time.
        lines = lines.sort(TIME, KIND, maintain_order=True)
    given = _given(data, heights, wanted, rule) if rule.kind == "columns" else {}
    return Contributions(rows, _deletes(blocks), lines, given)


def needed(need: Sequence[str], rule: MergeRule, key: str, own: bool) -> list[str]:
    """The columns of blocks that a merge reads to give the columns `need`. `own`: see `have_own_times`."""
    return distinct(need, [key], [rule.ordering] if rule.ordering else [], [COMMIT_TIME] if own else [])


def have_own_times(blocks: Sequence[DataBlock | DeleteBlock]) -> bool:
    """Whether some rows or deletes were requested at another time than their block's instant."""
    return any(_has_own_times(block) for block in blocks)


def _has_own_times(block: DataBlock | DeleteBlock) -> bool:
    if isinstance(block, DataBlock):
        return block.own_times
    return TIME in block.keys.columns and bool((block.keys[TIME] != block.instant).any())


def decode(blocks: Sequence[DataBlock], columns: Columns, need: Sequence[str]) -> pl.DataFrame:
    """All rows in order; neighbouring Parquet blocks in one scan."""
    parts: list[pl.DataFrame] = []
    run: list[bytes] = []
    for block in [*blocks, None]:
        if block is not None and not isinstance(block.rows, pl.DataFrame):
            run.append(raw(block.rows))
            continue
        if run:
            parts.append(scan_contents(run, columns).select(need).collect())
            run = []
        if block is not None:
            assert isinstance(block.rows, pl.DataFrame)
            parts.append(conform(block.rows, columns, need))
    return pl.concat(parts, rechunk=False) if parts else pl.DataFrame(schema={c: columns.schema[c] for c in need})


def height(block: DataBlock) -> int:
    """How many rows a block has."""
    if isinstance(block.rows, pl.DataFrame):
        return block.rows.height
    if block.height is not None:
        return block.height
    return int(pq.read_metadata(pa.BufferReader(block.rows)).num_rows)


def _lines(
    blocks: Sequence[DataBlock | DeleteBlock],
    rows: pl.DataFrame,
    heights: Sequence[int],
    rule: MergeRule,
    columns: Columns,
    key: str,
    timed: bool,
) -> pl.DataFrame:
    """The lines of all rows and of all deletes, each made at once, and then put in the order of the blocks."""
    data = [block for block in blocks if isinstance(block, DataBlock)]
    deletes = [block for block in blocks if isinstance(block, DeleteBlock)]
    assert sum(heights) == rows.height, "a block has another number of rows than its footer says"
    written = _row_lines(rows, rule, key, _row_times(data, rows, heights) if timed else None)
    if not deletes:
        return written
    deleted = _delete_lines(deletes, rule, columns, key, timed)
    parts: list[pl.DataFrame] = []
    left, row, delete = iter(heights), 0, 0
    for block in blocks:
        if isinstance(block, DeleteBlock):
            parts.append(deleted.slice(delete, block.keys.height))
            delete += block.keys.height
        else:
            count = next(left)
            parts.append(written.slice(row, count))
            row += count
    return pl.concat(parts, rechunk=False)


def _row_lines(rows: pl.DataFrame, rule: MergeRule, key: str, times: pl.Series | None) -> pl.DataFrame:
    return rows.select(
        pl.col(key).alias(LINE_KEY),
        pl.lit(ROW, pl.Int8).alias(KIND),
        pl.int_range(pl.len(), dtype=pl.Int64).alias(AT),
        *([times.alias(TIME)] if times is not None else []),
        *([pl.col(rule.ordering).alias(ORDER)] if rule.ordering else []),
    )


def _row_times(blocks: Sequence[DataBlock], rows: pl.DataFrame, heights: Sequence[int]) -> pl.Series:
    """When each row was requested."""
    times, row = [pl.Series(dtype=pl.String)], 0
    for block, count in zip(blocks, heights, strict=True):
        own = block.own_times
        times.append(rows[COMMIT_TIME].slice(row, count) if own else pl.repeat(block.instant, count, eager=True))
        row += count
    return pl.concat(times)


def _delete_lines(
    blocks: Sequence[DeleteBlock], rule: MergeRule, columns: Columns, key: str, timed: bool
) -> pl.DataFrame:
    lines = [pl.concat([_delete_keys(block.keys, key, columns) for block in blocks])]
    kind = pl.lit(PLAIN, pl.Int8)
    if timed:
        lines.append(pl.concat([_given_or(block.keys, TIME, block.instant, pl.String()) for block in blocks]))
    if rule.ordering:
        of = columns.stored[rule.ordering]
        lines.append(pl.concat([_given_or(block.keys, ORDER, None, of) for block in blocks]))
        kind = pl.when(pl.col(ORDER).is_null()).then(kind).otherwise(pl.lit(TOMBSTONE, pl.Int8))
    frame = pl.DataFrame(lines)
    at = pl.int_range(pl.len(), dtype=pl.Int64).alias(AT)
    return frame.select(LINE_KEY, kind.alias(KIND), at, *frame.columns[1:])


def _given_or(keys: pl.DataFrame, name: str, instead: str | None, kind: pl.DataType) -> pl.Series:
    """A column of deletes; deletes without it have `instead` in each row."""
    column = keys[name] if name in keys.columns else pl.repeat(instead, keys.height, dtype=kind, eager=True)
    return column.cast(kind).alias(name)


def _delete_keys(keys: pl.DataFrame, key: str, columns: Columns) -> pl.Series:
    """The merge keys of deletes, which name their keys as text."""
    merge_keys = keys[key] if key in keys.columns else keys[RECORD_KEY].cast(columns.stored[key])
    return merge_keys.alias(LINE_KEY)


def _deletes(blocks: Sequence[DataBlock | DeleteBlock]) -> pl.DataFrame:
    frames = [b.keys for b in blocks if isinstance(b, DeleteBlock)]
    return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame(schema={RECORD_KEY: pl.String})


def _given(
    blocks: Sequence[DataBlock], heights: Sequence[int], need: Sequence[str], rule: MergeRule
) -> dict[str, np.ndarray]:
    columns = [c for c in need if c not in META_COLUMNS]
    if rule.whole:
        return dict.fromkeys(columns, np.ones(sum(heights), dtype=bool))
    sets = [given_names(b) for b in blocks]
    return {c: np.repeat(np.array([c in s for s in sets], dtype=bool), heights) for c in columns}


def given_names(block: DataBlock) -> frozenset[str]:
    """The columns that a block of rows sets."""
    if block.given is not None:
        return frozenset(block.given)
    if isinstance(block.rows, pl.DataFrame):
        return frozenset(block.rows.columns)
    return frozenset(pq.read_schema(pa.BufferReader(block.rows)).names)
