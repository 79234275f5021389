"""The page for those who come from Hudi: what it says of Hudi is so. What it says to call here, fast tests do."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.hudi_page import PAGE, codes, rows
from tests.interop.readers import BUNDLE, HUDI_VERSION, HudiSpark, hudi_rs, ours
from tests.interop.turn_tables import SESSION

pytestmark = pytest.mark.spark

ROWS = """select 'a' uuid, 1L ts, 10d fare, 'rome' city union all select 'b', 1L, 20d, 'oslo'
union all select 'c', 1L, 0d, 'rome'"""


@pytest.fixture(scope="module")
def root(spark: HudiSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The table `trips`, made by the page's statement and what it says to do after it."""
    root = tmp_path_factory.mktemp("lake") / "trips"
    (made,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    (said,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for setting in SESSION:
        spark.sql(f"set {setting}")
    spark.sql(made.replace("/lake/trips", str(root)))
    spark.sql(f"insert into trips {ROWS}")
    subprocess.run(["sh", "-ec", said.replace("/lake/trips", str(root))], check=True)
    spark.sql(f"create or replace temporary view new as {ROWS}")
    yield root
    spark.sql("drop table trips")


def agree(root: Path, spark: HudiSpark) -> None:
    assert ours(Table(root)) == spark.read(root) == hudi_rs(root)


def test_hudi_and_we_write_a_table_that_the_page_has_made(root: Path, spark: HudiSpark) -> None:
    agree(root, spark)
    Table(root).upsert(pa.table({"uuid": ["a", "d"], "ts": [2, 1], "fare": [11.0, 4.0], "city": ["rome", "rome"]}))
    agree(root, spark)
    for statement, *_ in rows("Statements"):
        (typed,) = codes(statement)
        spark.sql(typed)
    agree(root, spark)
    assert Table(root).schema.names[-1] == "tip"


def test_procedures_of_the_page_are_those_of_hudi(root: Path, spark: HudiSpark) -> None:
    for procedure, *_ in rows("Procedures"):
        (typed,) = codes(procedure)
        commits = spark.sql("call show_commits(table => 'trips', limit => 1)")
        assert isinstance(commits[0], dict)
        spark.sql(typed.replace("…", str(commits[0]["commit_time"])))
    agree(root, spark)


def test_settings_of_the_page_are_those_of_hudi(spark: HudiSpark) -> None:
    assert spark.sql("select 1"), "the bundle is there"
    jar = Path.home() / ".m2/repository/org/apache/hudi" / BUNDLE / HUDI_VERSION / f"{BUNDLE}-{HUDI_VERSION}.jar"
    named = {name.encode() for name in re.findall(r"`(hoodie\.[a-z0-9_.]+)", PAGE)}
    assert len(named) > 40
    with zipfile.ZipFile(jar) as archive:
        for file in archive.namelist():
            if file.startswith("org/apache/") and named:
                text = archive.read(file)
                named = {name for name in named if name not in text}
    assert not named
