"""Tables in Spark, through PySpark's data source API: no jar, no JVM code.

    from readers.spark import CrdtMorSource, compact, upsert
    spark.dataSource.register(CrdtMorSource)
    spark.read.format("crdt_mor").load("/lake/events")
    upsert(df, "/lake/events")
    compact(spark, "/lake/events")
"""

from readers.spark.compacting import compact
from readers.spark.source import CrdtMorSource
from readers.spark.sql import register_path, require_java
from readers.spark.writing import append, by_file_group, delete, upsert

__all__ = [
    "CrdtMorSource",
    "append",
    "by_file_group",
    "compact",
    "delete",
    "register_path",
    "require_java",
    "upsert",
]
