"""A table that Hudi's Spark writes, beside the rows that Hudi's own reader saw after each step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor import Table
from crdt_mor.errors import SnapshotExpiredError
from crdt_mor.format import properties
from tests.interop.hudi_archive import completed
from tests.interop.hudi_spark_server import plain
from tests.interop.readers import HudiSpark, Rows, by_key

ROWS = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("p", pa.string())])
QUICK = {
    "embed.timeline.server": "false",
    "write.markers.type": "DIRECT",
    **{f"{step}.shuffle.parallelism": "1" for step in ("insert", "upsert", "delete", "bulkinsert")},
    **{f"{index}.index.parallelism": "1" for index in ("bloom", "simple")},
}
"""Nothing that changes what is written."""


ARCHIVING = {
    "keep__min__commits": "2",
    "keep__max__commits": "3",
    "clean__commits__retained": "1",
    "commits__archival__batch": "1",
    "timeline__compaction__batch__size": "3",
}


class Written:
    """A table that Spark writes, and the rows that Hudi's reader saw after each step."""

    def __init__(self, spark: HudiSpark, root: Path, **options: str) -> None:
        self.spark, self.root, self.seen = spark, root, dict[str, Rows]()
        self.options = {
            "hoodie.table.name": root.name,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.metadata.enable": "false",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            **{f"hoodie.{name}": value for name, value in QUICK.items()},
            **{f"hoodie.{name.replace('__', '.')}": value for name, value in options.items()},
        }

    def write(self, data: pa.Table, operation: str = "upsert", **options: str) -> None:
        file = self.root.with_name("batch.parquet")
        pq.write_table(data, file)
        more = {f"hoodie.{name.replace('__', '.')}": value for name, value in options.items()}
        settings = {**self.options, "hoodie.datasource.write.operation": operation, **more}
        self.spark.ask(upsert=str(self.root), rows=str(file), options=settings)
        self.look()

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(table=self.root.name, path=self.root))
        self.look()

    def name_buckets(self, count: int) -> None:
        """Tell the table's properties how many buckets it has, which Hudi's writers leave to each write."""
        file = self.root / ".hoodie/hoodie.properties"
        found = properties.decode_table(file.read_bytes(), str(file))
        file.write_bytes(properties.encode_table({**found, "hoodie.bucket.index.num.buckets": str(count)}))
        file.with_name(".hoodie.properties.crc").unlink(missing_ok=True)  # Hadoop's, of the file before

    def compact(self) -> None:
        """A compaction by Hudi's procedure."""
        options = "hoodie.datasource.write.recordkey.field=id,hoodie.compact.inline.max.delta.commits=1"
        self.spark.sql(f"call run_compaction(op => 'run', path => '{self.root}', options => '{options}')")
        self.look()

    def look(self) -> None:
        """See the rows that Hudi's reader shows now."""
        moment = max((str(name.completed) for name, _ in completed(self.root)), default="")
        if moment:
            self.seen[moment] = self.spark.read(self.root)

    def check(self, *, as_of: bool = True) -> tuple[int, int]:
        """How many moments are read, and how many have expired; each one that is read has Hudi's rows."""
        table = Table(self.root)
        assert exactly(table) == self.seen[max(self.seen)]
        assert table.scan().count() == len(self.seen[max(self.seen)])
        read = expired = 0
        for moment, found in self.seen.items() if as_of else ():
            try:
                assert exactly(table, moment) == found
                read += 1
            except SnapshotExpiredError:
                expired += 1
        return read, expired


def exactly(table: Table, as_of: str | None = None) -> Rows:
    """Our rows as the files hold them; `ours` takes no columns of Hudi's own."""
    found = table.scan(meta=True, as_of=as_of).to_arrow()
    return by_key([plain(row) for row in found.to_pylist(maps_as_pydicts="strict")])


def rows(ids: list[int], ts: int, v: str) -> pa.Table:
    return pa.table(
        {"id": [f"k{i}" for i in ids], "ts": [ts] * len(ids), "v": [f"{v}{i}" for i in ids],
         "p": [f"p{i % 2}" for i in ids]}, ROWS,
    )  # fmt: skip
