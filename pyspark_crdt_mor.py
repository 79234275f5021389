"""Tells Spark of the format `crdt_mor`: no program imports this module but Spark itself.

Spark looks through all top-level modules whose names begin with `pyspark_` for a class `DefaultSource`, once in each
JVM, and every session knows what it finds. Spark 4.0 does so as well, but refuses to register what it has found so.
"""

from crdt_mor.readers.spark.versions import FINDS_SOURCES, SPARK

if SPARK >= FINDS_SOURCES:
    from crdt_mor.readers.spark.source import CrdtMorSource as DefaultSource

    __all__ = ["DefaultSource"]
