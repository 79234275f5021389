"""Decode blocks into contributions: one line per row and delete of a slice's logs, in fold order.

    rows       the rows of all blocks, decoded in one scan, with the needed columns
    deletes    all the deletes
    lines      _crdt_key | kind | at (position in rows or deletes) | time | ordering     in START_COMMIT_TIME order

Decisions use the narrow lines. The wide rows are collected once, by position, after the winners are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import FormatError
from crdt_mor.ground.parquet import ParquetSource, together
from crdt_mor.merge.blocks import COMMIT_TIME, META_COLUMNS, RECORD_KEY, Columns, DataBlock, DeleteBlock, distinct
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.rule import MergeRule

LINE_KEY, KIND, AT, TIME, ORDER = "_crdt_key", "kind", "at", "time", "ordering"
PLAIN, TOMBSTONE, ROW = 0, 1, 2
"""Kinds of lines. At equal requested times the delete comes first."""

_PLACE = "_crdt_place"

_WIDEN = pl.ScanCastOptions(
    integer_cast=["upcast", "allow-float"],
    float_cast="upcast",
    datetime_cast="millisecond-upcast",
    missing_struct_fields="insert",
    extra_struct_fields="ignore",
)


@dataclass(frozen=True, slots=True)
class Contributions:
    """The rows, deletes and lines of blocks, see the module.

    given: for each column, a mask of the rows whose block sets it; for the rule `columns` only.
    nulls: for some columns, a mask of the rows in which a null sets null; only if other nulls leave the value.
    """

    rows: pl.DataFrame
    deletes: pl.DataFrame
    lines: pl.DataFrame
    given: dict[str, np.ndarray]
    sizes: tuple[int, ...] = ()
    nulls: dict[str, np.ndarray] = field(default_factory=dict)


def scan(source: ParquetSource, columns: Columns, place: str | None = None) -> pl.LazyFrame:
    """Scan Parquet files as the table's current columns: newer columns are null, narrower types are widened exactly."""
    runs = _alike(source.at_hand(), columns) if columns.unscanned else []
    if not any(held for held, _ in runs):
        return source.scan(columns.schema, _WIDEN, place)
    rows = pl.concat([_scan_as(held, files, columns) for held, files in runs])
    return rows if place is None else rows.with_row_index(place)


def _alike(source: ParquetSource, columns: Columns) -> list[tuple[dict[str, pl.DataType], ParquetSource]]:
    runs = groupby(source.one_by_one(), lambda file: _unscanned(file, columns))
    return [(held, together([*files])) for held, files in runs]


def _unscanned(file: ParquetSource, columns: Columns) -> dict[str, pl.DataType]:
    held = file.types()
    here = columns.unscanned.intersection(held if file.columns is None else file.columns)
    kinds = {name: _held_as(held[name], columns.schema[name], name in columns.numbered) for name in sorted(here)}
    return {name: kind for name, kind in kinds.items() if kind != columns.schema[name]}


def _held_as(held: Any, wide: Any, is_numbered: bool) -> Any:
    """Return `wide` with the file's own types of decimals and numbered columns."""
    match held, wide:
        case pl.Struct(), pl.Struct():
            own = {field.name: field.dtype for field in held.fields}
            inner = {f.name: _held_as(own.get(f.name, f.dtype), f.dtype, is_numbered) for f in wide.fields}
            return pl.Struct(inner)
        case pl.List(), pl.List():
            return pl.List(_held_as(held.inner, wide.inner, is_numbered))
        case pl.Map(), pl.Map():
            return pl.Map(wide.key, _held_as(held.value, wide.value, is_numbered))
    is_other = wide.is_decimal() and (held.is_decimal() or held.is_integer())
    return held if is_other or (is_numbered and held.is_integer()) else wide


def _scan_as(held: Mapping[str, pl.DataType], files: ParquetSource, columns: Columns) -> pl.LazyFrame:
    widened = [pl.col(name).cast(columns.schema[name]) for name in held]
    return files.scan({**columns.schema, **held}, _WIDEN).with_columns(widened)


def scan_ranges(source: ParquetSource, columns: Columns, ranges: Sequence[tuple[int, int]]) -> pl.LazyFrame:
    rows = scan(source, columns)
    return pl.concat([rows.slice(*some) for some in ranges]) if ranges else rows.head(0)


def scan_contents(contents: Sequence[bytes], columns: Columns) -> pl.LazyFrame:
    return scan(ParquetSource.in_memory(*contents), columns)


class RowGroup(NamedTuple):
    rows: int
    least: Any
    greatest: Any


def row_groups(source: ParquetSource, column: str) -> list[RowGroup] | None:
    """Return the statistics of a column by row group; None if a file lacks them, as log blocks do."""
    if not source.is_one_file:
        return None
    try:
        return _row_groups(source.metadata(), column)
    except (OSError, ValueError, pa.ArrowException):
        return None  # the scan raises the error


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
    """Return decoded rows with the columns `need` in the table's types; null where the file lacks a column."""
    schema = columns.schema
    if list(frame.schema.items()) == [(c, schema[c]) for c in need]:
        return frame
    have = set(frame.columns)
    return frame.select((pl.col(c).cast(schema[c]) if c in have else pl.lit(None, schema[c])).alias(c) for c in need)


def raw(data: bytes | memoryview) -> bytes:
    return data if isinstance(data, bytes) else data.tobytes()


def gather(
    blocks: Sequence[DataBlock | DeleteBlock],
    rule: MergeRule,
    columns: Columns,
    key: str,
    need: Sequence[str],
    *,
    timed: bool = False,
    sized: bool = False,
    only_keys: KeyCondition | None = None,
) -> Contributions:
    """Decode blocks, given in fold order. `timed`: add the requested time to every line. `sized`: fill `sizes`.

    only_keys: skip lines of other keys, and do not decode their rows, if this saves time. Under a rule with payloads
        they are always skipped, because a payload sees no values of other keys.
    """
    data = [b for b in blocks if isinstance(b, DataBlock)]
    deletes = [b for b in blocks if isinstance(b, DeleteBlock)]
    own = have_own_times(blocks)
    wanted = needed(need, rule, key, own)
    narrow = only_keys if only_keys is not None and only_keys.pays_among(blocks) else None
    # Rows alone, without times, under a rule that ignores blocks: no line depends on the block of its row, so no footer
    # is opened to count rows. For many small blocks of Hudi, footers cost a tenth of the merge.
    one_run = not (deletes or own or timed or sized) and rule.kind != "columns"
    if one_run:
        rows = decode(data, columns, wanted, narrow)
        heights = [rows.height]
    else:
        rows, heights = _with_heights(data, columns, wanted, narrow)
    if sum(heights) != rows.height:
        raise FormatError(
            "log blocks and their commits or footers differ in the number of rows. Run crdt-mor verify to find the "
            f"file, then put it back with crdt-mor repair. rows={rows.height} expected={sum(heights)}"
        )
    lines = _row_lines(rows, rule, key, _row_times(data, rows, heights) if own or timed else None)
    sizes = tuple(heights)
    if deletes:
        deleted, counts = _delete_lines(deletes, rule, columns, key, own or timed, narrow)
        sizes = tuple(_in_turn(blocks, heights, counts))
        lines = _in_order(blocks, sizes, lines, deleted)
    if own:
        # A block's instant is not the requested time of carried contributions.
        lines = lines.sort(TIME, KIND, maintain_order=True)
    if only_keys is not None and narrow is None and rule.kind == "columns":
        lines = lines.filter(only_keys.meets(lines[LINE_KEY]))
    given = _given(data, heights, wanted, rule) if rule.kind == "columns" else {}
    nulls = _nulls(data, heights, given) if rule.nulls == "keep" else {}
    return Contributions(rows, _deletes(blocks), lines, given, sizes if sized else (), nulls)


def _in_turn(
    blocks: Sequence[DataBlock | DeleteBlock], of_data: Sequence[int], of_deletes: Sequence[int]
) -> Iterator[int]:
    data, deletes = iter(of_data), iter(of_deletes)
    return (next(deletes if isinstance(block, DeleteBlock) else data) for block in blocks)


def needed(need: Sequence[str], rule: MergeRule, key: str, own: bool) -> list[str]:
    return distinct(need, [key], [rule.ordering] if rule.ordering else [], [COMMIT_TIME] if own else [])


def have_own_times(blocks: Sequence[DataBlock | DeleteBlock]) -> bool:
    return any(_has_own_times(block) for block in blocks)


def _has_own_times(block: DataBlock | DeleteBlock) -> bool:
    if isinstance(block, DataBlock):
        return block.own_times
    return TIME in block.keys.columns and bool((block.keys[TIME] != block.instant).any())


def decode(
    blocks: Sequence[DataBlock], columns: Columns, need: Sequence[str], only_keys: KeyCondition | None = None
) -> pl.DataFrame:
    return _stacked([_decoded(run, columns, need, only_keys) for run in _runs(blocks)], columns, need)


def keys_where(predicate: pl.Expr, blocks: Sequence[DataBlock], columns: Columns, key: str) -> pl.Series:
    need, found = distinct(predicate.meta.root_names(), [key]), [pl.Series(key, [], columns.schema[key])]
    for run in _runs(blocks):
        contents = [raw(block.rows) for block in run if not isinstance(block.rows, pl.DataFrame)]
        if contents:
            found.append(scan_contents(contents, columns).filter(predicate).select(key).collect()[key])
        else:
            frames = [conform(block.rows, columns, need) for block in run if isinstance(block.rows, pl.DataFrame)]
            found += [frame.filter(predicate)[key] for frame in frames]
    return pl.concat(found)


def _with_heights(
    blocks: Sequence[DataBlock], columns: Columns, need: Sequence[str], only_keys: KeyCondition | None
) -> tuple[pl.DataFrame, list[int]]:
    if only_keys is None:
        return decode(blocks, columns, need), [height(block) for block in blocks]
    parts, heights = list[pl.DataFrame](), list[int]()
    for run in _runs(blocks):
        part = _decoded(run, columns, need, only_keys, placed=True)
        if _PLACE in part.columns:
            ends = part[_PLACE].to_numpy().searchsorted(np.cumsum([height(block) for block in run]))
            heights += np.diff(ends, prepend=0).tolist()
        else:
            heights.append(part.height)
        parts.append(part.select(need))
    return _stacked(parts, columns, need), heights


def _runs(blocks: Sequence[DataBlock]) -> Iterator[list[DataBlock]]:
    run: list[DataBlock] = []
    for block in blocks:
        in_memory = isinstance(block.rows, pl.DataFrame)
        if run and (in_memory or isinstance(run[-1].rows, pl.DataFrame)):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def _decoded(
    run: Sequence[DataBlock],
    columns: Columns,
    need: Sequence[str],
    only_keys: KeyCondition | None,
    *,
    placed: bool = False,
) -> pl.DataFrame:
    """Decode the rows of a run, or the requested ones. placed: with each row's position among all rows."""
    contents: list[bytes] = []
    for block in run:
        if isinstance(block.rows, pl.DataFrame):
            rows = block.rows
            if only_keys is not None:
                rows = rows.filter(only_keys.meets(conform(rows, columns, [only_keys.key]).to_series()))
            return conform(rows, columns, need)
        contents.append(raw(block.rows))
    scanned, wanted = scan_contents(contents, columns), list(need)
    if placed:
        scanned, wanted = scanned.with_row_index(_PLACE), [*need, _PLACE]
    if only_keys is None:
        return scanned.select(wanted).collect()
    if only_keys.pays_in_scan(contents):
        return scanned.filter(only_keys.condition).select(wanted).collect()
    return scanned.select(wanted).collect().filter(only_keys.condition)


def _stacked(parts: Sequence[pl.DataFrame], columns: Columns, need: Sequence[str]) -> pl.DataFrame:
    return pl.concat(parts, rechunk=False) if parts else pl.DataFrame(schema={c: columns.schema[c] for c in need})


def height(block: DataBlock) -> int:
    if isinstance(block.rows, pl.DataFrame):
        return block.rows.height
    if block.height is not None:
        return block.height
    return int(pq.read_metadata(pa.BufferReader(block.rows)).num_rows)


def _in_order(
    blocks: Sequence[DataBlock | DeleteBlock], sizes: Sequence[int], written: pl.DataFrame, deleted: pl.DataFrame
) -> pl.DataFrame:
    parts: list[pl.DataFrame] = []
    row = delete = 0
    for block, size in zip(blocks, sizes, strict=True):
        if isinstance(block, DeleteBlock):
            parts.append(deleted.slice(delete, size))
            delete += size
        else:
            parts.append(written.slice(row, size))
            row += size
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
    times, row = [pl.Series(dtype=pl.String)], 0
    for block, count in zip(blocks, heights, strict=True):
        own = block.own_times
        times.append(rows[COMMIT_TIME].slice(row, count) if own else pl.repeat(block.instant, count, eager=True))
        row += count
    return pl.concat(times)


def _delete_lines(
    blocks: Sequence[DeleteBlock],
    rule: MergeRule,
    columns: Columns,
    key: str,
    timed: bool,
    only_keys: KeyCondition | None,
) -> tuple[pl.DataFrame, list[int]]:
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
    every, heights = frame.select(LINE_KEY, kind.alias(KIND), at, *frame.columns[1:]), [b.keys.height for b in blocks]
    if only_keys is None:
        return every, heights
    stays = only_keys.meets(every[LINE_KEY]).fill_null(value=False)
    before = np.cumsum(np.append(0, stays.to_numpy()))
    return every.filter(stays), np.diff(before[np.cumsum([0, *heights])]).tolist()


def _given_or(keys: pl.DataFrame, name: str, instead: str | None, kind: pl.DataType) -> pl.Series:
    column = keys[name] if name in keys.columns else pl.repeat(instead, keys.height, dtype=kind, eager=True)
    return column.cast(kind).alias(name)


def _delete_keys(keys: pl.DataFrame, key: str, columns: Columns) -> pl.Series:
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


def _nulls(blocks: Sequence[DataBlock], heights: Sequence[int], need: Iterable[str]) -> dict[str, np.ndarray]:
    some = {name for block in blocks for name in block.nulls}
    return {c: np.repeat(np.array([c in b.nulls for b in blocks], dtype=bool), heights) for c in need if c in some}


def given_names(block: DataBlock) -> frozenset[str]:
    if block.given is not None:
        return frozenset(block.given)
    if isinstance(block.rows, pl.DataFrame):
        return frozenset(block.rows.columns)
    return frozenset(pq.read_schema(pa.BufferReader(block.rows)).names)
