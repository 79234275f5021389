"""A client of Spark Connect reads and writes as a session of its own JVM does.

python -m tests.spark.cluster -k connect
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.sessions import LOCAL, ROOT
from tests.spark.standalone import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from crdt_mor import Table
from crdt_mor.readers.spark import compact, create, delete_where, history, maintain, merge, overwrite
from crdt_mor.readers.spark import by_file_group, read, register, register_path, update, upsert

builder = SparkSession.builder.master(sys.argv[2]).config("spark.api.mode", "connect")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
assert "connect" in type(spark).__module__
register(spark)
path, source = sys.argv[1], spark.read.format("crdt_mor")
df = spark.createDataFrame([("a", "mon", 1), ("b", "tue", 2), ("c", "tue", 3)], "id string, day string, n long")
table = create(df, path, key=["id", "day"], partition_by="day")
df.write.format("crdt_mor").mode("append").save(path)
upsert(df, path)
by_file_group(df, path).write.format("crdt_mor").mode("append").save(path)
update(spark, path, {"n": "n + 1"})
delete_where(spark, path, "id = 'c'")
merge(spark, path, df, on=["id", "day"]).when_not_matched_insert_all().execute()
compact(spark, path)
maintain(spark, path)
register_path(spark, "pages", path)
spark.sql("CREATE TABLE pages USING pages")
rows = spark.sql("SELECT id, n FROM pages").collect()
assert sorted(map(tuple, rows)) == [("a", 2), ("b", 3), ("c", 3)]
upsert(df.where("id = 'a'"), path)
assert sorted(map(tuple, read(spark, path).select("id", "n").collect())) == [("a", 1), ("b", 3), ("c", 3)]
assert history(spark, path).where("kind = 'write'").count() == 7
Table.create(path + "-copy", table, key=["id", "day"], partition_by="day")
stream = spark.readStream.format("crdt_mor").option("changes", "merged").load(path).drop("_change_type")
writer = stream.writeStream.format("crdt_mor").option("checkpointLocation", path + "-checkpoint")
writer.trigger(availableNow=True).start(path + "-copy").awaitTermination()
assert Table(path + "-copy").count() == 3
overwrite(df.limit(1), path)
assert source.load(path).count() == 1
try:
    source.option("versionAsOf", 1).load(path).collect()
except Exception as error:
    assert "instead of versionAsOf say" in str(error).splitlines()[0], error
spark.stop()
"""


@pytest.mark.skipif(find_spec("grpc") is None, reason="needs pyspark[connect]")
@pytest.mark.parametrize("on_cluster", [False, True], ids=["threads", "cluster"])
def test_a_client_of_connect_does_what_a_session_does(tmp_path: Path, standalone: Cluster, on_cluster: bool) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path / "t"), standalone.master if on_cluster else LOCAL],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=environment | (standalone.environment if on_cluster else {}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
