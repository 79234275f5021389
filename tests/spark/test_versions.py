"""What each release of Spark 4 can do, and what writing needs beside pyspark. See also `tests.spark.versions`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from crdt_mor import Table
from crdt_mor.errors import UnsupportedVersionError
from crdt_mor.readers import spark as front
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
        "from crdt_mor.readers.spark import *\n"
    )


def test_each_name_is_imported_on_use_from_the_module_that_type_checkers_see() -> None:
    text = (ROOT / "readers" / "spark" / "__init__.py").read_text()
    seen = re.findall(r"^    from crdt_mor\.readers\.spark\.(\w+) import (.+)$", text, re.MULTILINE)
    homes = {name: module for module, names in seen for name in names.split(", ")}
    assert homes == front._HOMES
    assert sorted(homes) == front.__all__


def test_a_process_that_looks_for_formats_imports_no_engine() -> None:
    """Spark starts such a process for each session. Processes for reads and writes import their own modules."""
    found = run("import sys, pyspark_crdt_mor, crdt_mor.readers.spark.source\nprint(*sys.modules)").split()
    assert "crdt_mor.readers.spark.source" in found
    assert not {"polars", "crdt_mor.api.table", "crdt_mor.readers.spark.options"} & set(found)
    for used, unused in (("reading", "writing"), ("writing", "reading")):
        found = run(f"import sys, crdt_mor.readers.spark.{used}\nprint(*sys.modules)").split()
        rest = {unused, "merging", "updating", "compacting", "catalog"}
        assert not {"pyarrow.compute", *(f"crdt_mor.readers.spark.{name}" for name in rest)} & set(found)


def test_a_worker_that_is_used_again_does_not_list_the_archives_of_spark_again(tmp_path: Path) -> None:
    """Spark 4.0 refreshes the finders of all paths before each call."""
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("of_spark.py", "")
        written.writestr("later_of_spark.py", "found = True")
    script = (
        "import importlib, zipimport, of_spark\n"
        "from crdt_mor.readers.spark import failing\n"
        "failing._is_sparks_process = lambda: True\n"
        "failing.message_first(lambda: None)()\n"
        "list(failing.rows_message_first(lambda: iter([1]))())\n"
        "listed, zipimport._read_directory = [], lambda path: listed.append(path) or {}\n"
        "importlib.invalidate_caches()\n"
        "import later_of_spark\n"
        "print(listed, later_of_spark.found)"
    )
    assert run(script, path=archive) == "[] True\n"


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
