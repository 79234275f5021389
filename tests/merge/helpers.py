"""Rows of a small table, as the kernel takes them."""

from __future__ import annotations

import io

import polars as pl

from crdt_mor.merge.blocks import COMMIT_TIME, META_COLUMNS, RECORD_KEY, Columns

COLUMNS = Columns({"k": pl.String(), "v": pl.Int64()}, "k")


def stamp(tick: int) -> str:
    return f"{tick:017d}"


def frame(rows: list[tuple[str, str, int | None]]) -> pl.DataFrame:
    """Rows (requested time, key, value) with Hudi's columns."""
    table = pl.DataFrame(rows, schema={COMMIT_TIME: pl.String, "k": pl.String, "v": pl.Int64}, orient="row")
    meta = {c: pl.lit("") for c in META_COLUMNS if c not in (COMMIT_TIME, RECORD_KEY)}
    return table.with_columns(pl.col("k").alias(RECORD_KEY), **meta).select(*META_COLUMNS, "k", "v")


def parquet(rows: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    rows.write_parquet(out)
    return out.getvalue()
