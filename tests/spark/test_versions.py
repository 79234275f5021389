"""What each release of Spark 4 can do, and what writing needs beside pyspark. See also `tests.spark.versions`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from crdt_mor import Table
from crdt_mor.errors import UnsupportedVersionError
from crdt_mor.readers.spark import CrdtMorSource, versions
from tests.spark.sessions import ROOT

pytestmark = pytest.mark.spark

SCHEMA = StructType([StructField("id", LongType())])

NEWER = {
    "pyspark.sql.datasource": ["Filter", "EqualTo", "In", "DataSourceStreamArrowWriter"],
    "pyspark.sql.streaming.datasource": ["ReadLimit", "SupportsTriggerAvailableNow"],
    "pyspark.sql.pandas.functions": ["arrow_udf", "ArrowUDFType"],
}
"""What Spark 4.0 has not got."""


def run(script: str, *arguments: str, path: Path | None = None) -> str:
    """A script in a process of its own, in which the modules of the folder `path` come first."""
    paths = [str(path)] if path else []
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)])},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


def test_what_older_releases_lack_is_not_imported_with_the_source() -> None:
    run(
        "import importlib\n"
        f"for module, names in {NEWER!r}.items():\n"
        "    try:\n"
        "        found = importlib.import_module(module)\n"
        "    except ImportError:\n"
        "        continue\n"
        "    for name in names:\n"
        "        found.__dict__.pop(name, None)\n"
        "import crdt_mor.readers.spark\n"
    )


LACKING: dict[str, tuple[tuple[int, int], Callable[[dict[str, str]], object]]] = {
    "reading a table as a stream needs Spark 4.2": ((4, 1), lambda given: CrdtMorSource(given).streamReader(SCHEMA)),
    "writing a stream to a table needs Spark 4.1": (
        (4, 0),
        lambda given: CrdtMorSource(given).streamWriter(SCHEMA, overwrite=False),
    ),
    "the option pushdown needs Spark 4.1": (
        (4, 0),
        lambda given: CrdtMorSource({**given, "pushdown": "true"}).reader(SCHEMA),
    ),
}


@pytest.mark.parametrize("what", LACKING)
def test_what_a_release_lacks_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id")
    release, ask = LACKING[what]
    monkeypatch.setattr(versions, "SPARK", release)
    with pytest.raises(UnsupportedVersionError, match=f"{what} or later.*found={pyspark.__version__}"):
        ask({"path": str(tmp_path / "t")})


WITHOUT_PANDAS = """
import sys
import pyarrow as pa
from crdt_mor import Table
from crdt_mor.readers.spark import append, compact, delete, delete_where, merge, upsert
from tests.spark.sessions import start

spark = start()
try:
    import pandas
except ModuleNotFoundError:
    print("without pandas")
table = Table.create(sys.argv[1], pa.schema([("id", pa.int64()), ("day", pa.string())]), key="id", partition_by="day")
rows = spark.range(20).selectExpr("id", "concat('d', id % 3) day")
print(append(rows, table.uri).rows, upsert(rows.where("id < 5"), table.uri).rows)
print(delete(rows.where("id < 2"), table.uri).deletes, len(compact(spark, table.uri)))
print(delete_where(spark, table.uri, "id > 15").deletes)
print(merge(spark, table.uri, rows.where("id < 3"), on="id").when_matched_delete().execute().deleted)
rows.where("id = 0").write.format("crdt_mor").mode("append").save(table.uri)
print(spark.read.format("crdt_mor").load(table.uri).count())
spark.stop()
"""


@pytest.mark.skipif(versions.SPARK < versions.HANDS_KEYS_ALONE, reason="Spark 4.0 shuffles by mapInArrow")
def test_reads_writes_and_compaction_need_no_pandas(tmp_path: Path) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "pandas.py").write_text("raise ModuleNotFoundError('No module named pandas')\n")
    found = run(WITHOUT_PANDAS, str(tmp_path / "t"), path=tmp_path / "absent")
    assert found.split() == ["without", "pandas", "20", "5", "2", "1", "4", "1", "14"]
