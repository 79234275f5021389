"""Tables of one kind each for benches on Spark: ours, Delta's, and plain Parquet files, which nobody can merge.

Delta is there in Spark 4.0, for which delta-spark is built, where Maven is at hand to fetch it; else `delta_jars` says
why it is not. The releases of Spark that `make check-spark-versions` makes environments of are below `.venvs`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import crdt_mor as mor

DELTA: Final = {"4.0": ("delta-spark_2.13", "4.0.1"), "4.2": ("delta-spark_4.2_2.13", "4.4.0")}
"""Delta's artifact and version for a release of Spark."""
ROOT: Final = Path(__file__).parents[1]
DRIVER_MEMORY: Final = "4g"
"""Where the driver runs the tasks as well. The first session of a process decides."""


def delta_version() -> str:
    """The version of Delta for this Spark, or an empty text."""
    import pyspark

    return DELTA.get(pyspark.__version__.rpartition(".")[0], ("", ""))[1]


def delta_jars() -> list[str]:
    """The jars of Delta, fetched once; none where this Spark cannot have them, which is said."""
    import pyspark

    release = pyspark.__version__.rpartition(".")[0]
    if release not in DELTA:
        print(
            f"without Delta: it is for Spark {' and '.join(DELTA)}, and this is {pyspark.__version__}; "
            "run .venvs/spark-4.2/bin/python with this script, which python -m tests.spark.versions 4.2 installs\n"
        )
        return []
    artifact, version = DELTA[release]
    home = Path.home() / ".m2" / "repository" / "io" / "delta"
    found = [home / name / version / f"{name}-{version}.jar" for name in (artifact, "delta-storage")]
    if not all(jar.exists() for jar in found):
        if shutil.which("mvn") is None:
            print("without Delta: install Maven, which fetches its jars\n")
            return []
        asked = ["mvn", "-B", "-q", "dependency:get", f"-Dartifact=io.delta:{artifact}:{version}"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode or not all(jar.exists() for jar in found):
            print(f"without Delta: Maven could not fetch io.delta:{artifact}:{version}\n{done.stdout[-500:]}\n")
            return []
    return [str(jar) for jar in found]


def session(master: str, jars: Sequence[str], settings: Mapping[str, str]) -> Any:
    """A session that knows our format, and Delta where its jars are given."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    from pyspark.sql import SparkSession

    from crdt_mor.readers.spark import register

    known = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **settings}
    known |= {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    if jars:
        known |= {
            "spark.jars": ",".join(jars),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    builder = SparkSession.builder.master(master)
    for name, value in known.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    register(found)
    return found


class Ours:
    """A table of ours. partitions: the column of the partitions, or none."""

    name = "crdt_mor"
    merges = True

    def __init__(self, folder: Path, partition: str | None = None, buckets: int = 4) -> None:
        self.path, self._partition, self._buckets = str(folder / "ours"), partition, buckets

    def create(self, frame: Any) -> None:
        """A table of the frame's columns, without rows."""
        from crdt_mor.readers.spark import create

        keys = ["id"] if self._partition is None else [self._partition, "id"]
        create(frame, self.path, key=keys, partition_by=self._partition or (), buckets=self._buckets)

    def load(self, frame: Any) -> None:
        """The first rows, of which no two have one key."""
        self.create(frame)
        frame.write.format("crdt_mor").mode("append").save(self.path)

    def upsert(self, frame: Any) -> None:
        """Insert or update the rows by their keys, as one commit."""
        from crdt_mor.readers.spark import upsert

        upsert(frame, self.path)

    def read(self, spark: Any, *columns: str, where: str = "") -> Any:
        """Some columns. where: a condition, which is handed to the reader."""
        reader = spark.read.format("crdt_mor").option("columns", ",".join(columns))
        return (reader.option("filter", where) if where else reader).load(self.path)

    def rows(self, spark: Any) -> int:  # noqa: ARG002  the other engines need it
        """How many there are."""
        return mor.Table(self.path).scan(columns=["id"]).count()


class Delta:
    """A table of Delta's."""

    merges = True

    def __init__(self, folder: Path, partition: str | None = None) -> None:
        self.name = f"Delta {delta_version()}"
        self.path, self._keys = str(folder / "delta"), ["id", *filter(None, [partition])]
        self._partition = partition

    def load(self, frame: Any) -> None:
        """The first rows."""
        writer = frame.write.format("delta")
        (writer.partitionBy(self._partition) if self._partition else writer).save(self.path)

    def upsert(self, frame: Any) -> None:
        """MERGE INTO by the keys. Delta raises an error if another writer changed the same files."""
        name = f"source_{id(frame)}"
        frame.createOrReplaceTempView(name)
        on = " AND ".join(f"t.{key} = s.{key}" for key in self._keys)
        frame.sparkSession.sql(
            f"MERGE INTO delta.`{self.path}` t USING {name} s ON {on} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def read(self, spark: Any, *columns: str, where: str = "") -> Any:
        """Some columns of the rows that meet the condition."""
        frame = spark.read.format("delta").load(self.path)
        return (frame.where(where) if where else frame).select(*columns)

    def rows(self, spark: Any) -> int:
        """How many there are."""
        return int(self.read(spark, "id").count())


class Parquet:
    """Plain files that Spark writes: the floor of a load and of a read. Its upsert only adds files."""

    name = "plain Parquet"
    merges = False

    def __init__(self, folder: Path, partition: str | None = None) -> None:
        self.path, self._partition = str(folder / "parquet"), partition

    def load(self, frame: Any) -> None:
        """The first rows."""
        self.upsert(frame)

    def upsert(self, frame: Any) -> None:
        """More files, with no regard to keys."""
        writer = frame.write.mode("append")
        (writer.partitionBy(self._partition) if self._partition else writer).parquet(self.path)

    def read(self, spark: Any, *columns: str, where: str = "") -> Any:
        """Some columns of the rows that meet the condition."""
        frame = spark.read.parquet(self.path)
        return (frame.where(where) if where else frame).select(*columns)

    def rows(self, spark: Any) -> int:
        """How many there are, those of a key that was written twice counted twice."""
        return int(self.read(spark, "id").count())


Engine = Ours | Delta | Parquet
