"""A table as a lazy polars frame. Columns, conditions and row limits of a query are pushed down to the files.

    scan_table("events").filter(pl.col("views") > 10).select("id", "views").collect()

The frame seals a snapshot: every collect of it returns the same rows, whatever is written meanwhile. Rows come slice by
slice, so a streaming query (`sink_parquet`, `collect(engine="streaming")`) holds only a few slices in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from crdt_mor import AsOf, Scan, Table


def scan_table(
    table: Table | str | os.PathLike[str],
    *,
    as_of: AsOf | None = None,
    meta: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> pl.LazyFrame:
    """Return a snapshot of a table as a lazy frame.

    Args:
        table: a `Table` or its address.
        as_of: the point in time, as for `Table.scan`.
        meta: include Hudi's five columns, as for `Table.scan`.
        storage_options: options of the object store, as for `Table`.
    """
    opened = table if isinstance(table, Table) else Table(table, storage_options=storage_options)
    scan = opened.scan(as_of=as_of, meta=meta)

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        for frame in _frames(scan, columns, predicate, n_rows):
            yield from frame.iter_slices(batch_size) if batch_size else [frame]

    return register_io_source(
        source,
        schema=scan.polars_schema,
        is_pure=True,
        explain_name="crdt_mor",
        explain_detail=f"{opened.uri} {scan!r}",
    )


def _frames(
    scan: Scan, columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None
) -> Iterator[pl.DataFrame]:
    if n_rows is None or predicate is None:
        return scan.narrowed(columns=columns, filter=predicate, limit=n_rows).frames()
    # polars takes the first rows, and then those of them for which the predicate holds.
    named = None if columns is None else list(dict.fromkeys([*columns, *predicate.meta.root_names()]))
    frames = scan.narrowed(columns=named, limit=n_rows).frames()
    return (_selected(frame.filter(predicate), columns) for frame in frames)


def _selected(frame: pl.DataFrame, columns: list[str] | None) -> pl.DataFrame:
    if columns is None:
        return frame
    return frame.select(columns) if columns else pl.DataFrame(height=frame.height)
