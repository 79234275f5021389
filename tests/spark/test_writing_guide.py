"""docs/spark-writing.md, held to the code: every block runs. Its script, `pipeline.py`, does so in `test_pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.spark.guide import BLOCK, GUIDE, SCRIPT, below
from tests.spark.sessions import ROOT, fixture

pytestmark = pytest.mark.spark
spark = fixture()


def run(block: str, names: dict[str, Any], folder: Path) -> None:
    """A block of a page, in this process."""
    exec(compile(below(folder, block), "a guide", "exec"), names)


def test_every_block_of_the_guide_runs(spark: Any, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark}
    for block in GUIDE:
        if not block.startswith(SCRIPT):
            run(block, names, tmp_path)


def test_the_block_of_the_readme_runs(spark: Any, tmp_path: Path) -> None:
    (block,) = (b for b in BLOCK.findall((ROOT / "README.md").read_text()) if "crdt_mor.readers.spark" in b)
    table = Table.create(tmp_path / "lake" / "events", pa.schema([("id", pa.string())]), key="id", buckets=2)
    rows = spark.createDataFrame([("a",), ("b",)], "id string")
    rows.write.parquet(str(tmp_path / "landing"))
    clicks = spark.readStream.schema("id string").parquet(str(tmp_path / "landing"))
    try:
        run(block, {"spark": spark, "clicks": clicks, "df": rows}, tmp_path)
        for query in spark.streams.active:
            query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
    assert table.scan().to_polars()["id"].sort().to_list() == ["a", "b"]
    assert {file["kind"] for file in table.inspect.files().to_pylist()} >= {"base"}
