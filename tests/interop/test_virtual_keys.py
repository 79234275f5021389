"""Keys that are made where files of Hudi have none; `test_reads_modes_of_hudi` reads tables that its Spark wrote."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.format.base_file import write_parquet
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import DataBlock
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import KeySpec
from crdt_mor.read.hudi_rows import base_with_keys, block_with_keys
from tests.interop.hudi_archive import make_hudis
from tests.interop.shapes import Maker, keys, rows

CONFIG = TableConfig("t", KeySpec(("id", "n"), ("p",)), buckets=1)
ROWS = pa.table({
    **dict.fromkeys(META_COLUMNS, pa.array(["", None])), "id": ["a", "b"], "n": [1, 2], "p": ["x", "x"],
})  # fmt: skip
MADE = [("", "", "id:a,n:1", "p=x", ""), ("", "", "id:b,n:2", "p=x", "")]


def meta(rows: pl.DataFrame) -> list[tuple[object, ...]]:
    assert rows.select("id", "n", "p").rows() == [("a", 1, "x"), ("b", 2, "x")]
    return rows.select(META_COLUMNS).rows()


def test_rows_of_base_files_and_of_blocks_get_their_keys() -> None:
    data = bytes(write_parquet(ROWS))
    base = base_with_keys(ParquetSource.in_memory(data, name="f"), "p=x", CONFIG)
    assert base.name == "f"
    assert meta(base.scan().collect()) == MADE
    frame = pl.DataFrame(ROWS)
    for content in (data, memoryview(data), frame, frame.drop(META_COLUMNS)):
        made = block_with_keys(DataBlock("1", content), "p=x", CONFIG).rows
        assert isinstance(made, pl.DataFrame)
        assert meta(made) == MADE


def test_rows_that_lack_a_column_of_the_key_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"missing=\['n'\] partition='p=x'"):
        block_with_keys(DataBlock("1", pl.DataFrame(ROWS).drop("n"), ("id",)), "p=x", CONFIG)


def test_a_file_that_is_not_in_memory_is_read_whole(fast_path: Path) -> None:
    path = fast_path / "base.parquet"
    path.write_bytes(bytes(write_parquet(ROWS)))
    assert meta(base_with_keys(ParquetSource.file(str(path)), "p=x", CONFIG).scan().collect()) == MADE


def test_lower_values_in_a_log_lose_to_rows_of_a_base_that_do_not_say_when_they_were_written(make: Maker) -> None:
    table = make.create(ordering="n")
    table.append(rows(range(4), 5))
    table.maintenance.compact()
    table.upsert(rows([0], 3))
    table.upsert(rows([1, 9], 7))
    table.delete(keys=keys(2), plain=True)
    expected = sorted(table.scan().to_arrow().to_pylist(), key=str)
    make_hudis(make.root, {"hoodie.populate.meta.fields": "false"})
    found = Table(make.root)
    assert sorted(found.scan().to_arrow().to_pylist(), key=str) == expected
    assert found.scan().count() == len(expected)
    with pytest.raises(UnsupportedFeatureError, match="no meta columns"):
        found.changes().to_arrow()
    with pytest.raises(InvalidInputError, match="read, not written"):
        found.upsert(rows([0], 9))
