"""Tables in Spark, through PySpark's data source API: no jar, no JVM code.

    from readers.spark import CrdtMorSource
    spark.dataSource.register(CrdtMorSource)
    spark.read.format("crdt_mor").load("/lake/events")
"""

from readers.spark.source import CrdtMorSource
from readers.spark.sql import register_path, require_java

__all__ = ["CrdtMorSource", "register_path", "require_java"]
