"""Explain which files, row groups and columns a scan reads and which it skips, without reading rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.blocks import distinct
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.expressions import columns_in
from crdt_mor.read.prune import Pruning
from crdt_mor.read.row_groups import may_have_keys, not_ruled_out, ranges_of, within


@dataclass(frozen=True, slots=True)
class Files:
    slices: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.slices:,} file slices, {self.bytes:,} bytes"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The files, row groups and columns that a scan reads or skips. Print it for a summary.

    All figures except `limit` ignore the limit.

    Attributes:
        total: file slices of the snapshot.
        by_partition, by_bucket: slices skipped by their partition, and by the bucket of the filter's keys.
        by_statistics: slices without logs, skipped by row-group statistics.
        merging, passing: slices read with logs, and without.
        row_groups, row_groups_total: read, and in the opened base files.
        column_bytes: compressed, of the columns read.
        columns: columns read, including the keys of merged slices.
        pushed: the part of the filter evaluated in Parquet; for rows touched by logs, after the merge.
        late: the part of the filter evaluated on visible rows.
        limit: number of rows after which the scan ends.
    """

    total: Files
    by_partition: Files
    by_bucket: Files
    by_statistics: Files
    merging: Files
    passing: Files
    row_groups: int
    row_groups_total: int
    column_bytes: int
    columns: tuple[str, ...]
    pushed: str | None
    late: str | None
    limit: int | None

    def __str__(self) -> str:
        pruned = {"partition": self.by_partition, "bucket": self.by_bucket, "statistics": self.by_statistics}
        lines = {
            "in the snapshot": self.total,
            **{f"ruled out by {what}": files for what, files in pruned.items() if files.slices},
            "merged": self.merging,
            "passed through": self.passing,
            "of their base files": f"{self.row_groups:,} of {self.row_groups_total:,} row groups, "
            f"{self.column_bytes:,} bytes of the columns",
            "columns": ", ".join(self.columns),
            "filter in Parquet": self.pushed or "-",
            **({"filter afterwards": self.late} if self.late else {}),
            **({"ends with": f"{self.limit:,} rows"} if self.limit is not None else {}),
        }
        width = max(map(len, lines))
        return "\n".join(f"{what:{width}}  {value}" for what, value in lines.items())


def explain(
    pruning: Pruning,
    merging: Merging,
    columns: Sequence[str],
    pushed: pl.Expr | None,
    late: pl.Expr | None,
    limit: int | None,
    source_of: Callable[[str], ParquetSource | None],
    keys: Sequence[str] | None = None,
) -> Explanation:
    """Explain a scan of `columns`.

    Args:
        pushed: the part of the filter evaluated in Parquet; `late` is the rest.
        keys: the only keys that the filter allows; None for any.
        source_of: opens a base file by path.
    """
    need = merging.rule.below(distinct(columns, [] if pushed is None else columns_in(pushed)))
    if any(slice_.logs for slice_ in pruning.kept):
        need = distinct(need, [merging.columns.merge_key], [merging.rule.ordering] if merging.rule.ordering else [])
    skipped: list[FileSlice] = []
    merged: list[FileSlice] = []
    passed: list[FileSlice] = []
    groups = total = size = 0
    for slice_ in pruning.kept:
        source = None if slice_.base is None else source_of(slice_.base.path)
        footer = _footer(source)
        left = [] if footer is None else not_ruled_out(footer, pushed, merging.columns.schema)
        if keys is not None and source is not None and footer is not None:
            left = within(footer, may_have_keys(footer, left, keys), ranges_of(source, keys))
        (merged if slice_.logs else passed if left or footer is None else skipped).append(slice_)
        groups += len(left)
        if footer is not None:
            total += footer.num_row_groups
            size += sum(_bytes(footer.row_group(group), need) for group in left)
    return Explanation(
        total=_files(pruning.slices),
        by_partition=_files(pruning.by_partition),
        by_bucket=_files(pruning.by_bucket),
        by_statistics=_files(skipped),
        merging=_files(merged),
        passing=_files(passed),
        row_groups=groups,
        row_groups_total=total,
        column_bytes=size,
        columns=tuple(need),
        pushed=None if pushed is None else str(pushed),
        late=None if late is None else str(late),
        limit=limit,
    )


def _footer(source: ParquetSource | None) -> pq.FileMetaData | None:
    """Return a file's footer; None if unreadable, because the scan reports that."""
    if source is None:
        return None
    try:
        return source.metadata()
    except (OSError, pa.ArrowException):
        return None


def _bytes(group: pq.RowGroupMetaData, need: Sequence[str]) -> int:
    needed = {*need}
    chunks = (group.column(i) for i in range(group.num_columns))
    return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in needed)


def _files(slices: Sequence[FileSlice]) -> Files:
    return Files(len(slices), sum(file.size for slice_ in slices for file in slice_.files))
