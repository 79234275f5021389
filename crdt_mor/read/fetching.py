"""Plan and fetch the parts of base files that a merge needs from a bucket.

    footers, all side by side ─► columns and row groups to read ─► their bytes, side by side ─► merge

A merge reads its base file several times, each a round trip. The needed parts are therefore fetched first, as a smaller
Parquet file in memory. Reading another column raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import FormatError
from crdt_mor.format.row_groups import TAIL_BYTES, ChosenParts, choose
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.laws.merging import Merging
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import COMMIT_TIME, Slice, distinct, is_partial
from crdt_mor.read.expressions import columns_in
from crdt_mor.read.row_groups import may_have_keys, not_ruled_out, within


@dataclass(frozen=True, slots=True)
class Fetch:
    """A slice and the parts of its base file to fetch; `parts` is None for a whole or local file."""

    files: Slice
    columns: tuple[str, ...]
    parts: ChosenParts | None

    @property
    def size(self) -> int:
        ranges = None if self.files.base is None else self.files.base.ranges
        return 0 if ranges is None else ranges.size() if self.parts is None else self.parts.size

    def fetched(self) -> Slice:
        """Return the slice with its base file's parts in memory, or raise `FileNotFoundError`."""
        base = self.files.base
        if base is None or base.ranges is None:
            return self.files
        if self.parts is None:
            return replace(self.files, base=base.at_hand())
        return replace(self.files, base=_small(base, self.parts, self.columns), base_rows=None, base_ranges=None)


def plan(
    files: Slice,
    merging: Merging,
    select: Sequence[str],
    predicate: pl.Expr | None,
    keys: Sequence[str] | None = None,
    limit: int | None = None,
) -> Fetch:
    """Plan the fetch for a merge; see `Snapshot.frames`."""
    if files.base is None or files.base.ranges is None:
        return Fetch(files, (), None)
    columns = _columns(files, merging, select, predicate)
    condition = predicate if _is_decided_in_base(files, merging) else None
    enough = limit if predicate is None and not files.blocks else None
    return Fetch(files, tuple(columns), _chosen(files, merging, columns, condition, keys, enough))


def rows_of(source: ParquetSource, first: int, count: int) -> pl.LazyFrame:
    """Scan whole row groups, fetching no others."""
    rows = [(first, count)]
    chosen = _choose(source, lambda footer: within(footer, range(footer.num_row_groups), rows), None)
    return source.scan().slice(first, count) if chosen is None else _small(source, chosen).scan()


def columns_of(source: ParquetSource, names: Sequence[str]) -> pl.LazyFrame:
    chosen = _choose(source, lambda footer: range(footer.num_row_groups), names)
    return (source if chosen is None else _small(source, chosen)).scan().select(names)


def _small(source: ParquetSource, chosen: ChosenParts, columns: Sequence[str] | None = None) -> ParquetSource:
    assert source.ranges is not None
    content = chosen.file(source.ranges.read_all(chosen.places))
    return ParquetSource(source.name, contents=(content,), columns=None if columns is None else frozenset(columns))


def _columns(files: Slice, merging: Merging, select: Sequence[str], predicate: pl.Expr | None) -> list[str]:
    rule, columns = merging.rule, merging.columns
    if any(is_partial(block) for block in files.blocks) and rule.kind != "columns":
        return columns.select_all()  # Hudi's partial updates are merged with whole rows
    need = distinct(select, [] if predicate is None else columns_in(predicate))
    if not files.blocks or files.resolution is not None:
        return need
    late = [COMMIT_TIME] if rule.kind != "columns" and kernel.is_late(files) else []
    return distinct(need, rule.below(need), [columns.merge_key], [rule.ordering] if rule.ordering else [], late)


def _is_decided_in_base(files: Slice, merging: Merging) -> bool:
    """Return True if the merge can skip base rows excluded by the predicate."""
    if not files.blocks:
        return True
    plain = merging.rule.kind == "latest" and not any(is_partial(block) for block in files.blocks)
    return plain and not kernel.is_late(files)


def _chosen(
    files: Slice,
    merging: Merging,
    columns: Sequence[str],
    condition: pl.Expr | None,
    keys: Sequence[str] | None,
    enough: int | None,
) -> ChosenParts | None:
    def groups(footer: pq.FileMetaData) -> Sequence[int]:
        left = not_ruled_out(footer, condition, merging.columns.schema)
        if keys is not None:  # rows of other keys are dropped after the merge
            left = may_have_keys(footer, left, keys)
        left = within(footer, left, files.base_ranges)
        left = within(footer, left, None if files.base_rows is None else [files.base_rows])
        return left if enough is None else _first(footer, left, enough)

    assert files.base is not None
    return _choose(files.base, groups, columns)


def _choose(
    source: ParquetSource, groups: Callable[[pq.FileMetaData], Sequence[int]], columns: Sequence[str] | None
) -> ChosenParts | None:
    """Choose columns (None for all) and row groups of a file.

    Returns None for a local file, and for a damaged file, because its full read reports the damage.
    """
    if source.ranges is None:
        return None
    try:
        footer = source.metadata()
        end = source.size() - TAIL_BYTES
        length = int.from_bytes(source.read(end, 4), "little")
        chosen = choose(source.read(end - length, length), columns, groups(footer))
        return chosen if chosen is not None and chosen.is_before(end - length) else None
    except FileNotFoundError:
        raise
    except (FormatError, OSError, pa.ArrowException):
        return None


def _first(footer: pq.FileMetaData, groups: Sequence[int], enough: int) -> list[int]:
    found, rows = list[int](), 0
    for group in groups:
        if rows >= enough:
            break
        found.append(group)
        rows += footer.row_group(group).num_rows
    return found
