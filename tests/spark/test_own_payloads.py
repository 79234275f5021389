"""Payloads of one's own on executors: what a table says runs nothing, what the user allows is everywhere."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crdt_mor as mor
from crdt_mor.laws.allowed import VARIABLE
from tests.spark.helpers import listed
from tests.spark.own import mark
from tests.spark.sessions import CLUSTER, ROOT, fixture

pytestmark = pytest.mark.spark
spark = fixture(CLUSTER)


class Own:
    """A table with a payload of the module `tests.spark.own.<name>`, which the driver has not imported."""

    def __init__(self, name: str, folder: Path) -> None:
        self.module = f"tests.spark.own.{name}"
        self.options = {"payloads": self.module}
        self.mark = mark(name)
        self.uri = str(folder / "t")
        done = subprocess.run(
            [sys.executable, "-c", MAKE, self.uri, self.module], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        self.mark.unlink()


MAKE = """
import sys
import crdt_mor as mor, pyarrow as pa
schema = pa.schema([("id", pa.string()), ("v", pa.string())])
for name in ("t", "copy"):
    uri = sys.argv[1].removesuffix("t") + name
    table = mor.Table.create(uri, schema, key="id", buckets=2, merge={"v": f"{sys.argv[2]}:Longest"})
    for value in ("long", "b") if name == "t" else ():
        table.upsert(pa.table({"id": ["1", "2"], "v": [value, value]}))
"""


@pytest.fixture
def own(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    monkeypatch.setenv(VARIABLE, "")
    return Own(request.param, tmp_path)


@pytest.mark.parametrize("own", ["refused"], indirect=True)
def test_what_a_table_says_runs_in_no_process_of_sparks(spark: Any, own: Own) -> None:
    frame = spark.createDataFrame([("1", "longer")], "id string, v string")
    read = spark.read.format("crdt_mor")
    attempts: list[Callable[[], object]] = [
        lambda: read.load(own.uri).collect(),
        lambda: spark.read.format("crdt_mor").option("changes", "merged").load(own.uri).collect(),
        lambda: frame.write.format("crdt_mor").mode("append").save(own.uri),
    ]
    for attempt in attempts:
        with pytest.raises(Exception, match=rf'option\("payloads", "{own.module}"\)'):
            attempt()
    assert not own.mark.exists()


@pytest.mark.parametrize("own", ["named"], indirect=True)
def test_what_the_option_names_reaches_the_executors(spark: Any, own: Own, tmp_path: Path) -> None:
    read = spark.read.format("crdt_mor").options(**own.options)
    assert listed(read.load(own.uri)) == [("1", "long"), ("2", "long")]
    frame = spark.createDataFrame([("1", "longer"), ("2", "c")], "id string, v string")
    frame.write.format("crdt_mor").options(**own.options).mode("append").save(own.uri)
    assert listed(read.load(own.uri)) == [("1", "longer"), ("2", "long")]

    stream = spark.readStream.format("crdt_mor").options(**own.options).load(own.uri)
    writer = stream.writeStream.format("crdt_mor").options(**own.options).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "copy")).awaitTermination()
    assert listed(read.load(str(tmp_path / "copy"))) == [("1", "longer"), ("2", "long")]


@pytest.mark.parametrize("own", ["imported"], indirect=True)
def test_what_the_driver_has_imported_reaches_the_executors(spark: Any, own: Own) -> None:
    from crdt_mor.readers.spark import compact, upsert

    importlib.import_module(own.module)
    frame = spark.createDataFrame([("1", "longer"), ("2", "c")], "id string, v string")
    upsert(frame, own.uri)
    (done,) = compact(spark, own.uri)
    assert done.rows == 2
    assert listed(mor.Table(own.uri).scan()) == [("1", "longer"), ("2", "long")]
