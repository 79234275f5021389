"""Some columns and row groups as a smaller file: polars reads it as it would have read the whole one."""

from __future__ import annotations

import io

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.format.base_file import write_parquet
from crdt_mor.format.row_groups import TAIL_BYTES, choose, join_row_groups
from tests.format.helpers import ROWS, STORED

GROUP = 10
TABLE = pa.Table.from_pylist([ROWS[i % 2] for i in range(3 * GROUP + 4)], STORED)


def written(table: pa.Table, lookup: str | None = None) -> bytes:
    """A base file of four row groups, with statistics, indexes of pages, and filters."""
    parts = [write_parquet(table.slice(at, GROUP), repeating=["s"], lookup=lookup)
             for at in range(0, table.num_rows, GROUP)]  # fmt: skip
    return b"".join(join_row_groups(parts, lambda: {"key": "value"}))


FILE = written(TABLE)


def small(file: bytes, columns: list[str] | None, groups: list[int]) -> bytes | None:
    """The smaller file."""
    end = len(file) - TAIL_BYTES
    length = int.from_bytes(file[end : end + 4], "little")
    chosen = choose(file[end - length : end], columns, groups)
    return None if chosen is None else chosen.file([file[start : start + size] for start, size in chosen.places])


@pytest.mark.slow
@given(st.sets(st.sampled_from(STORED.names), min_size=1), st.sets(st.integers(0, 3)))
def test_of_any_columns_and_row_groups_the_rows_are_those_of_the_file(columns: set[str], groups: set[int]) -> None:
    names = [name for name in STORED.names if name in columns]
    content = small(FILE, [*names, "no such column"], sorted(groups))
    assert content is not None
    whole = pl.read_parquet(FILE, columns=names)
    want = pl.concat([whole.clear(), *(whole[GROUP * group : GROUP * (group + 1)] for group in sorted(groups))])
    assert pl.read_parquet(content).equals(want)
    assert pq.read_table(io.BytesIO(content)).num_rows == want.height
    assert len(content) < len(FILE)


def test_row_groups_keep_their_statistics() -> None:
    content = small(FILE, ["i"], [1, 2])
    assert content is not None
    (kept, whole) = (pq.ParquetFile(io.BytesIO(data)).metadata for data in (content, FILE))
    number = STORED.names.index("i")
    assert kept.num_columns == 1
    assert kept.row_group(0).column(0).statistics.max == whole.row_group(1).column(number).statistics.max


def test_of_columns_that_the_file_lacks_it_keeps_the_number_of_rows() -> None:
    content = small(FILE, ["added later"], [0, 3])
    assert content is not None
    added = {"added later": pl.Int64()}
    rows = pl.scan_parquet(content, schema=added, missing_columns="insert", extra_columns="ignore")
    assert rows.collect().height == GROUP + 4


def test_bloom_filters_are_left_out() -> None:
    content = small(written(TABLE, lookup="s"), ["s"], [0])
    assert content is not None
    assert pl.read_parquet(content)["s"].to_list() == TABLE["s"].slice(0, GROUP).to_pylist()


@pytest.mark.parametrize("columns", [None, ["a"]])
def test_what_arrow_says_of_its_types_beside_parquet_needs_all_columns(columns: list[str] | None) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(["x", "y"], pa.large_string()), "b": [1, 2]}), sink, row_group_size=1)
    content = small(sink.getvalue(), columns, [1])
    assert (content is None) == (columns is not None)
    if content is not None:
        assert pq.read_table(io.BytesIO(content)).to_pydict() == {"a": ["y"], "b": [2]}
