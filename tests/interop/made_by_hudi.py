"""Tables that Hudi's writers make, with a bucket index of which their properties say what we have to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.format import properties
from crdt_mor.format.commit import decode_commit, encode_commit
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.model.names import OWN_KEY
from tests.interop.readers import HudiSpark

COUNT = "hoodie.bucket.index.num.buckets"


def said(root: Path, changes: Mapping[str, str | None]) -> None:
    """Change the properties of a table, as its user would. None takes one away."""
    file = root / ".hoodie" / "hoodie.properties"
    found = {**properties.decode_table(file.read_bytes(), str(file)), **changes}
    file.write_bytes(properties.encode_table({k: v for k, v in found.items() if v is not None}, ["changed"]))
    (root / ".hoodie" / ".hoodie.properties.crc").unlink(missing_ok=True)  # Hadoop's, of the file before


def as_hudi_makes_them(objects: Mapping[str, bytes]) -> dict[str, bytes]:
    """The objects of a table of ours as if Hudi had made it: nothing is left of our timeline, nor of our properties."""
    made = {path: data for path, data in objects.items() if "/.crdt_mor" not in path}
    for path, data in made.items():
        if path.startswith(".hoodie/timeline/") and path.endswith("commit"):
            commit = decode_commit(data, path)
            extra = {name: text for name, text in commit.extra.items() if name != OWN_KEY}
            made[path] = encode_commit(replace(commit, extra=extra))
    found = properties.decode_table(made[PROPERTIES], PROPERTIES)
    kept = {name: text for name, text in found.items() if not name.startswith("crdt_mor.")}
    kept.pop("hoodie.table.ordering.fields", None)
    kept["hoodie.record.merge.mode"] = "COMMIT_TIME_ORDERING"
    made[PROPERTIES] = properties.encode_table(kept, ["changed"])
    return made


NON_BLOCKING = {
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    COUNT: "4",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.metadata.enable": "false",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
}
"""Hudi's writers whose file ids are fixed."""


def data_source(name: str, key: str = "id", buckets: int = 2) -> dict[str, str]:
    """Options with which Hudi's data source upserts to a table that has a bucket index."""
    return {
        "hoodie.table.name": name,
        "hoodie.datasource.write.recordkey.field": key,
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.index.type": "BUCKET",
        COUNT: str(buckets),
        "hoodie.metadata.enable": "false",
    }


def hudi_makes(spark: HudiSpark, root: Path, data: pa.Table, key: str, **options: str) -> None:
    """A table with a bucket index, made by Hudi's upsert, that says how many buckets it has."""
    pq.write_table(data, root.with_name("batch.parquet"))
    named = {"hoodie.table.name": root.name, "hoodie.datasource.write.recordkey.field": key}
    more = {name.replace("__", "."): value for name, value in options.items()}
    settings = {**NON_BLOCKING, **named, **more}
    spark.ask(upsert=str(root), rows=str(root.with_name("batch.parquet")), options=settings)
    said(root, {COUNT: settings[COUNT], "hoodie.table.timeline.timezone": "UTC"})


def run_compaction(name: str) -> str:
    """The statement by which Hudi plans a compaction of a table of Spark's catalog, and executes it."""
    options = "hoodie.metadata.enable=false,hoodie.compact.inline.max.delta.commits=1"
    return f"call run_compaction(op => 'scheduleAndExecute', table => '{name}', options => '{options}')"
