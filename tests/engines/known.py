"""Reads that an engine refuses, or gets wrong, with the engine's own words: docs/engines.md says the same.

Every other read must give the rows of `scan()`. A listed read that gives them fails, too: then its line goes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """An engine's failure at a mirror.

    Attributes:
        words: a part of its message.
        shapes: None means all.
        filtered: None means both reads.
        sometimes: True if the engine also gives the right rows, by the layout of the files.
    """

    engine: str
    mirror: str
    words: str
    shapes: frozenset[str] | None = None
    but: frozenset[str] = frozenset()
    filtered: bool | None = None
    sometimes: bool = False

    def about(self, engine: str, mirror: str, shape: str, *, filtered: bool) -> bool:
        """Return True if this read is one of the listed ones."""
        named = (self.shapes is None or shape in self.shapes) and shape not in self.but
        return (engine, mirror) == (self.engine, self.mirror) and named and self.filtered in (None, filtered)


COLUMNS = frozenset({"columns"})
EMPTY = frozenset({"empty"})
WRITES = frozenset({"delete", "insert", "update"})
DROP = frozenset({"drop"})
VECTORS = frozenset({"follows_to_vectors"})

KNOWN: tuple[Known, ...] = (
    Known("polars-delta", "delta", "requires reader features ['columnMapping']", COLUMNS),
    Known("polars-delta", "delta-rewrite", "requires reader features ['columnMapping']", COLUMNS),
    Known("delta-rs-pyarrow", "delta", "not yet supported by the deltalake reader"),
    Known("delta-rs-pyarrow", "delta-rewrite", "not yet supported by the deltalake reader", COLUMNS),
    Known("datafusion-delta", "delta", "DeltaScanExec rejects node CooperativeExec", but=EMPTY, filtered=False),
    Known("daft-iceberg", "iceberg", "DaftError::CorruptFile", but=EMPTY, sometimes=True),
    Known("daft-iceberg", "iceberg-v3", "Invalid Parquet file. Corrupt footer", but=EMPTY),
    Known("clickhouse-iceberg", "iceberg-v3", "Position deletes are supported only for parquet format", but=EMPTY),
    Known("daft-delta", "delta", "Delta Lake deletion vectors are not yet supported"),
    Known("delta-rs-keeps", "delta", 'Unsupported table features required: [Unknown("crdt_mor")]'),
    Known("pyiceberg-hive-keeps", "iceberg", "Not yet implemented", frozenset({"purge"})),
    Known("hive-registers", "checks", "pyiceberg moves entries only in REST catalogs", VECTORS),
    Known("nessie-registers", "checks", "Implement format version update, current version is 2", VECTORS),
    Known("pyiceberg-nessie-keeps", "iceberg", "does not allow external snapshot management", frozenset({"expire"})),
    Known("trino-rest", "iceberg-v3", "Unexpected PUFFIN file format", but=EMPTY, sometimes=True),
    Known("trino-hive", "iceberg-v3", "Unexpected PUFFIN file format", but=EMPTY, sometimes=True),
    Known("trino-rest-keeps", "iceberg", "Cannot expire snapshots: GC is disabled", frozenset({"expire snapshots"})),
    Known("trino-hive-keeps", "iceberg", "Cannot expire snapshots: GC is disabled", frozenset({"expire snapshots"})),
    Known("trino-delta-keeps", "delta", "with [crdt_mor] writer features", frozenset({"vacuum"})),
    Known("trino-delta-keeps", "delta", "Unsupported writer features: [crdt_mor]", frozenset({"optimize"})),
    Known("trino-delta-keeps", "delta", "Writes are not enabled on the file filesystem", WRITES),
    Known("spark-iceberg-keeps", "iceberg", "Cannot purge table: GC is disabled", frozenset({"purge"})),
    Known("spark-iceberg-keeps", "iceberg", "Cannot expire snapshots: GC is disabled", frozenset({"expire snapshots"})),
    Known("spark-iceberg-keeps", "iceberg", "delete orphan files: GC is disabled", frozenset({"remove orphan files"})),
    Known("spark-delta-keeps", "delta", "writer table feature(s) that are unsupported by Delta Lake", but=DROP),
)


def expected(engine: str, mirror: str, shape: str, *, filtered: bool) -> Known | None:
    """The listed failure of a read."""
    return next((known for known in KNOWN if known.about(engine, mirror, shape, filtered=filtered)), None)
