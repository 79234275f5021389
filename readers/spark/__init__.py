"""Tables in Spark, through PySpark's data source API: no jar, no JVM code.

from crdt_mor.readers.spark import create, history, maintain, merge, register, stream, update, upsert
register(spark)                               # Spark 4.0, and threads of your own that call df.write
create(df, "/lake/events", key="id")
spark.read.format("crdt_mor").load("/lake/events")
upsert(df, "/lake/events")
update(spark, "/lake/events", {"seen": "seen + 1"}, "day = '2026-01-31'")
merge(spark, "/lake/events", df, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
stream(clicks, "/lake/events", "/checkpoints/clicks")
maintain(spark, "/lake/events")
history(spark, "/lake/events").show()
"""

from crdt_mor.readers.spark.compacting import compact, maintain
from crdt_mor.readers.spark.merging import merge, move
from crdt_mor.readers.spark.source import CrdtMorSource, register
from crdt_mor.readers.spark.sql import register_path, require_java
from crdt_mor.readers.spark.starting import stream
from crdt_mor.readers.spark.tables import create, history
from crdt_mor.readers.spark.updating import delete_where, update
from crdt_mor.readers.spark.writing import append, by_file_group, delete, overwrite, upsert

__all__ = [
    "CrdtMorSource",
    "append",
    "by_file_group",
    "compact",
    "create",
    "delete",
    "delete_where",
    "history",
    "maintain",
    "merge",
    "move",
    "overwrite",
    "register",
    "register_path",
    "require_java",
    "stream",
    "update",
    "upsert",
]
