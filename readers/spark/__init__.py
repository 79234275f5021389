"""Tables in Spark, through PySpark's data source API: no jar, no JVM code.

    from readers.spark import CrdtMorSource
    spark.dataSource.register(CrdtMorSource)
    spark.read.format("crdt_mor").load("/lake/events")
"""

from readers.spark.source import CrdtMorSource

__all__ = ["CrdtMorSource"]
