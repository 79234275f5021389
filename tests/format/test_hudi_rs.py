"""hudi-rs reads tables that are put together from our bytes alone: base file, log blocks, deletes, timeline.

Everything else that makes a table (names, keys, when to write what) is spelled out here, so that a failure is the
format's.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor.format.base_file import base_metadata, write_parquet
from crdt_mor.format.commit import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlanRecord,
    WriteStat,
    encode_commit,
    encode_compaction_plan,
)
from crdt_mor.format.log import Buffers, delete_block, parquet_block
from crdt_mor.format.row_groups import join_row_groups
from crdt_mor.model.instant import InstantTime

hudi = pytest.importorskip("hudi")

FILE_ID = "00000000-0000-0000-0000-000000000000-0"
META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
USER = pa.schema(
    {
        "id": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(15, 2),
        "tags": pa.list_(pa.string()),
        "place": pa.struct({"city": pa.string()}),
        "counts": pa.map_(pa.string(), pa.int64()),
    }
)
FIXED = {
    "type": "fixed",
    "name": "fixed",
    "namespace": "hoodie.t.t_record.price",
    "size": 7,
    "logicalType": "decimal",
    "precision": 15,
    "scale": 2,
}
AVRO_TYPES: dict[str, object] = {
    "id": "string",
    "n": "long",
    "x": "double",
    "flag": "boolean",
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "price": FIXED,
    "tags": {"type": "array", "items": ["null", "string"]},
    "place": {
        "type": "record",
        "name": "place",
        "namespace": "hoodie.t.t_record",
        "fields": [{"name": "city", "type": ["null", "string"], "default": None}],
    },
    "counts": {"type": "map", "values": ["null", "long"]},
}


def avro(types: dict[str, object]) -> str:
    fields = [{"name": name, "type": ["null", type_], "default": None} for name, type_ in types.items()]
    return json.dumps({"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": fields})


USER_AVRO = avro(AVRO_TYPES)
META_AVRO = avro({**dict.fromkeys(META, "string"), **AVRO_TYPES})


def row(key: str, n: int) -> dict[str, object]:
    return {
        "id": key,
        "n": n,
        "x": n / 2,
        "flag": n % 2 == 0,
        "day": date(2026, 1, 1 + n),
        "at": datetime(2026, 1, 1, 0, 0, n, 5, UTC),
        "price": Decimal(n) / 4,
        "tags": [key, None],
        "place": {"city": key},
        "counts": [(key, n)],
    }


def parquet(
    rows: list[dict[str, object]], instant: str, file_name: str, metadata: dict[str, str] | None = None
) -> bytes:
    meta = [
        {META[0]: instant, META[1]: f"{instant}_0_{index}", META[2]: r["id"], META[3]: "", META[4]: file_name}
        for index, r in enumerate(rows)
    ]
    schema = pa.schema([*((name, pa.string()) for name in META), *USER])
    table = pa.Table.from_pylist([m | r for m, r in zip(meta, rows, strict=True)], schema)
    return b"".join(join_row_groups([write_parquet(table)], lambda: metadata or {}))


class HandMade:
    """A table that a test writes file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.timeline = root / ".hoodie" / "timeline"
        self.timeline.mkdir(parents=True)
        properties = {
            "hoodie.table.name": "t",
            "hoodie.table.type": "MERGE_ON_READ",
            "hoodie.table.version": "9",
            "hoodie.timeline.layout.version": "2",
            "hoodie.table.recordkey.fields": "id",
            "hoodie.table.ordering.fields": "_hoodie_commit_time",
            "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
            "hoodie.table.keygenerator.type": "NON_PARTITION",
            "hoodie.table.timeline.timezone": "UTC",
        }
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (root / ".hoodie" / "hoodie.properties").write_text(text)

    def log(self, requested: str, completed: str, data: Buffers) -> None:
        name = f".{FILE_ID}_{requested}.log.1_0-0-0"
        (self.root / name).write_bytes(b"".join(data))
        stat = WriteStat(
            file_id=FILE_ID,
            path=name,
            prev_commit=requested,
            partition_path="",
            log_version=1,
            log_offset=0,
            base_file="",
            log_files=(name,),
            num_writes=1,
            total_write_bytes=len(data),
            file_size_in_bytes=len(data),
        )
        self.commit(
            requested, completed, stat, "deltacommit", CommitMetadata({"": (stat,)}, "UPSERT", {"schema": USER_AVRO})
        )

    def base(self, requested: str, completed: str, rows: list[dict[str, object]]) -> None:
        name = f"{FILE_ID}_0-0-0_{requested}.parquet"
        keys = sorted(str(r["id"]) for r in rows)
        metadata = base_metadata(
            min_record_key=keys[0],
            max_record_key=keys[-1],
            avro_schema=META_AVRO,
            latest_requested=InstantTime(requested),
        )
        data = parquet(rows, requested, name, metadata)
        (self.root / name).write_bytes(data)
        operation = CompactionOperation(requested, (), None, FILE_ID, "")
        plan = encode_compaction_plan(CompactionPlanRecord((operation,)))
        (self.timeline / f"{requested}.compaction.requested").write_bytes(plan)
        (self.timeline / f"{requested}.compaction.inflight").write_bytes(b"")
        stat = WriteStat(file_id=FILE_ID, path=name, prev_commit="null", partition_path="", num_writes=len(rows))
        commit = CommitMetadata({"": (stat,)}, "COMPACT", {"schema": USER_AVRO}, compacted=True)
        self.commit(requested, completed, stat, "commit", commit)

    def commit(self, requested: str, completed: str, stat: WriteStat, action: str, metadata: CommitMetadata) -> None:
        if action == "deltacommit":
            (self.timeline / f"{requested}.{action}.requested").write_bytes(b"")
            (self.timeline / f"{requested}.{action}.inflight").write_bytes(encode_commit(CommitMetadata({"": (stat,)})))
        (self.timeline / f"{requested}_{completed}.{action}").write_bytes(encode_commit(metadata))

    def rows(self) -> dict[str, dict[str, object]]:
        table = hudi.HudiTableBuilder.from_base_uri(str(self.root)).build()
        batches = table.read(hudi.HudiReadOptions())
        found = pa.Table.from_batches([pa.record_batch(batch) for batch in batches]) if batches else USER.empty_table()
        return {r["id"]: r for r in found.select(USER.names).to_pylist()}


def test_base_upserts_and_ordered_deletes_of_every_type_are_read_right(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    t1, t2, t3 = (InstantTime(f"2026010100000{second}000") for second in (1, 3, 5))
    table.base(t1, "20260101000002000", [row("a", 1), row("b", 2), row("c", 3)])
    tombstone = delete_block(t2, META_AVRO, ["b", "gone"], "", pa.array([t2, t2]))
    table.log(
        t2,
        "20260101000004000",
        tombstone + parquet_block(t2, META_AVRO, parquet([row("a", 4), row("d", 5)], t2, FILE_ID)),
    )
    both = delete_block(t3, META_AVRO, ["d"], "", pa.array([t3]))
    table.log(t3, "20260101000006000", both + parquet_block(t3, META_AVRO, parquet([row("d", 6)], t3, FILE_ID)))
    assert table.rows() == {"a": row("a", 4), "c": row("c", 3), "d": row("d", 6)}


def test_plain_deletes_are_read_right(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    t1, t2 = InstantTime("20260101000001000"), InstantTime("20260101000003000")
    table.log(t1, "20260101000002000", parquet_block(t1, META_AVRO, parquet([row("a", 1), row("b", 2)], t1, FILE_ID)))
    table.log(t2, "20260101000004000", delete_block(t2, META_AVRO, ["b"], "", None))
    assert table.rows() == {"a": row("a", 1)}
