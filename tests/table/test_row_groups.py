"""A commit of more rows than a block or a row group holds: encoded piece by piece, read back whole."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.format.log import read_log
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.contributions import row_groups

ROWS = 300_000


@pytest.mark.slow
def test_large_commits_and_base_files_are_sorted_by_key_and_numbered(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
    table = mor.Table.create(tmp_path / "t", schema, key="id", buckets=1)
    numbers = pl.Series(np.random.default_rng(1).permutation(ROWS))
    rows = pl.DataFrame({"id": numbers.cast(pl.String), "city": (numbers % 7).cast(pl.String), "n": numbers})
    table.upsert(rows)

    (log,) = (tmp_path / "t").glob(".*.log.*")
    blocks = [pl.read_parquet(io.BytesIO(block.content)) for block in read_log(log.read_bytes(), str(log))]
    assert [block.height for block in blocks] == [60_000] * 5
    stored = pl.concat(blocks)
    assert stored["id"].equals(rows["id"].sort())
    assert stored["_hoodie_commit_seqno"].str.split("_").list.last().cast(pl.Int64).to_list() == list(range(ROWS))
    assert table.scan().to_polars().sort("id").equals(rows.sort("id"))

    table.upsert(rows.head(10).with_columns(n=-pl.col("n")))
    table.maintenance.compact()
    (base,) = (tmp_path / "t").glob("*.parquet")
    assert [group.rows for group in row_groups(ParquetSource.file(str(base)), "id") or []] == [150_000] * 2
    expected = pl.concat([rows.head(10).with_columns(n=-pl.col("n")), rows.slice(10)]).sort("id")
    assert pl.read_parquet(base, columns=rows.columns).equals(expected)
