"""Who reads our tables: ourselves, hudi-rs, and Hudi's own Spark reader. Each gives rows by key, spelled alike."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.api.scan import Scan
from crdt_mor.columns.names import STORED
from crdt_mor.columns.schema import META_COLUMNS
from tests.interop.hudi_spark_server import ANSWER, plain

HUDI_VERSION = "1.2.0"
BUNDLE = "hudi-spark3.5-bundle_2.12"
PYSPARK = "pyspark==3.5.6"
FILE_NAME = "_hoodie_file_name"

Rows = dict[tuple[str, str], dict[str, object]]
"""Rows by partition path and record key."""


class Refused(Exception):  # noqa: N818  an answer, like the rows are
    """The reader does not read the table."""


def by_key(rows: list[object]) -> Rows:
    """Rows by partition and key; a key that shows twice is a failure of any reader."""
    found: Rows = {}
    for row in rows:
        assert isinstance(row, dict)
        key = (str(row["_hoodie_partition_path"]), str(row["_hoodie_record_key"]))
        assert key not in found, f"a key shows twice: {key}"
        found[key] = {name: value for name, value in row.items() if name != FILE_NAME}
    return found


def ours(table: Table, **options: object) -> Rows:
    """What we read, in the types and under the names that the files have, since that is all that others know of."""
    snapshot = replace(table.scan(**options)._snapshot, called=STORED)  # type: ignore[arg-type]
    schema = snapshot.schema
    data = Scan(snapshot, None, None, meta=True).to_arrow()
    names = schema.declared.names
    stored = schema.normalise(data.select(names)) if data.num_rows else schema.stored.empty_table()
    for index, name in enumerate(META_COLUMNS):
        stored = stored.add_column(index, name, data[name])
    return by_key([plain(row) for row in stored.to_pylist(maps_as_pydicts="strict")])


def hudi_rs(path: str | Path, as_of: str | None = None) -> Rows:
    """What hudi-rs reads."""
    from hudi import HudiReadOptions, HudiTableBuilder

    options = HudiReadOptions() if as_of is None else HudiReadOptions().with_as_of_timestamp(as_of)
    try:
        table = HudiTableBuilder.from_base_uri(str(path)).build()
        batches = [pa.record_batch(batch) for batch in table.read(options)]
    except BaseException as error:  # a panic in Rust is a BaseException
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Refused(str(error)) from error
    return by_key([plain(row) for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")])


class HudiSpark:
    """Hudi's Spark reader in a process of its own. Sets itself up on first use, through pip and Maven.

    zone: that of its Java, which is of no account where a table's timeline is in UTC.
    cores: tasks at once. A write that waits for its gate holds one.
    """

    def __init__(self, work: Path, zone: str = "UTC", cores: int = 2) -> None:
        home = Path(os.environ.get("HUDI_ORACLE", Path.home() / ".cache" / "hudi-oracle"))
        jar = Path.home() / ".m2" / "repository" / "org" / "apache" / "hudi" / BUNDLE / HUDI_VERSION
        python = home / "bin" / "python"
        if not python.exists():
            subprocess.run(["python3", "-m", "venv", str(home)], check=True)
        if subprocess.run([str(python), "-c", "import pyspark"], capture_output=True, check=False).returncode:
            subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", PYSPARK], check=True)
        if not list(jar.glob("*.jar")):
            artifact = f"-Dartifact=org.apache.hudi:{BUNDLE}:{HUDI_VERSION}"
            subprocess.run(["mvn", "--quiet", "dependency:get", artifact, "-Dtransitive=false"], check=True)
        environment = {
            **os.environ, "TZ": zone, "HUDI_JAR": str(jar / f"{BUNDLE}-{HUDI_VERSION}.jar"),
            "SPARK_WAREHOUSE": str(work / "warehouse"), "SPARK_CORES": str(cores),
        }  # fmt: skip
        self._log = (work / "spark.log").open("w")
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("hudi_spark_server.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment, cwd=work,
        )  # fmt: skip

    def ask(self, **question: object) -> list[object]:
        """Put one question; raises `Refused` with what Spark said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer = json.loads(line.removeprefix(ANSWER))
                if "error" in answer:
                    raise Refused(answer["error"])
                rows: list[object] = answer["rows"]
                return rows
        raise AssertionError(f"Spark is gone; its log is {self._log.name}")

    def read(self, path: str | Path, options: Mapping[str, str] | None = None) -> Rows:
        """A snapshot of a table."""
        return by_key(self.ask(read=str(path), options=dict(options or {})))

    def sql(self, statement: str) -> list[object]:
        """Run a statement."""
        return self.ask(sql=statement)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._log.close()
        if self._process.stdout is not None:
            self._process.stdout.close()


def spark_is_possible() -> bool:
    """Whether this machine can run Hudi's Spark reader."""
    return shutil.which("java") is not None and shutil.which("mvn") is not None
