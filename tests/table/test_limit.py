"""A limit ends the merge of a file slice in the middle, whatever the rule, and the rows are rows of the snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import Opening, Table
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.store import MemoryStore
from crdt_mor.write import base_files
from tests.counting import Bucket

URI = "s3://counted/table"
MERGES: dict[str, dict[str, Any]] = {
    "latest": {}, "ordering": {"ordering": "n"}, "partial": {"merge": PartialUpdate()},
    "counter": {"merge": {"n": Counter()}},
}  # fmt: skip
ROWS = 200


def rows(numbers: range, by: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"id": [f"k{i:03}" for i in numbers], "n": [i % 7 + by for i in numbers], "x": [by] * len(numbers)}
    )


@pytest.fixture(scope="module", params=MERGES)
def table(request: pytest.FixtureRequest) -> Table:
    """Two file slices of several row groups under logs that change, add and delete rows."""
    table = Table.create(
        "t",
        rows(range(1), 0).to_arrow().schema,
        key="id",
        buckets=2,
        opening=Opening(store=MemoryStore()),
        **MERGES[request.param],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_files, "ROW_GROUP_ROWS", 20)
        table.upsert(rows(range(ROWS), 0))
        table.maintenance.compact()
    table.upsert(rows(range(0, ROWS, 3), 9))
    table.delete(keys=[f"k{i:03}" for i in range(90)], plain=True)
    table.upsert(rows(range(80, 83), 20))
    table.upsert(rows(range(ROWS, ROWS + 9), 5))
    return table


@pytest.mark.costly
@settings(max_examples=15)
@given(limit=st.integers(0, ROWS + 20))
def test_so_many_rows_of_the_snapshot_come(table: Table, limit: int) -> None:
    every = table.scan().to_polars()
    found = table.scan(limit=limit).to_polars()
    assert found.height == min(limit, every.height)
    assert found.join(every, on=every.columns, how="semi", nulls_equal=True).height == found.height
    assert found["id"].n_unique() == found.height


def test_of_a_bucket_no_row_group_is_fetched_beyond_the_limit() -> None:
    bucket, texts = Bucket(), np.random.default_rng(0).bytes(20_000 * 32).hex()
    wide = pl.DataFrame(
        {"id": [f"{i:05}" for i in range(20_000)], "text": [texts[i : i + 64] for i in range(0, len(texts), 64)]}
    )
    with bucket.counting(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_files, "ROW_GROUP_ROWS", 2_000)
        table = Table.create(URI, wide.to_arrow().schema, key="id", buckets=1, opening=Opening(store=bucket.store()))
        table.upsert(wide)
        table.maintenance.compact()
        table.upsert(wide.head(10))
        path, footer = bucket.base_file()
        first = footer.row_group(0)
        assert table.scan(limit=1).to_polars().height == 1
        count = bucket.count(lambda: table.scan(limit=1).to_polars())
    chunks = {chunk.path_in_schema: chunk for chunk in map(first.column, range(first.num_columns))}
    assert count.fetched(path) == chunks["id"].total_compressed_size + chunks["text"].total_compressed_size
