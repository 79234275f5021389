"""Seeds of fuzzing that are texts, and files of rows as users have them; `corpus` has the objects of tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from crdt_mor.columns.schema import TableSchema
from crdt_mor.format import properties
from crdt_mor.model.field_ids import numbered
from tests.format.helpers import ROWS, STORED
from tests.fuzz.corpus import SCHEMA, named, rows

# --- texts ------------------------------------------------------------------------------------------------------------


@cache
def properties_of_tables() -> list[bytes]:
    """`hoodie.properties` of ours and of Hudi's, and the file in a partition."""
    hudi = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "9",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "part:SIMPLE",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.keygenerator.type": "CUSTOM",
        "hoodie.table.precombine.field": "n",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    }
    return [
        *named(".hoodie/hoodie.properties"),
        *named(".hoodie_partition_metadata"),
        properties.encode_table(hudi, ["a", "b"]),
    ]


@cache
def schemas() -> list[bytes]:
    """Schemas as a version has them, and as Hudi has them, in Avro."""
    nested = pa.schema(
        {
            "m": pa.map_(pa.string(), pa.int8()),
            "s": pa.struct({"x": pa.decimal128(9, 2)}),
            "d": pa.dictionary(pa.int32(), pa.string()),
            "l": pa.list_(pa.field("item", pa.timestamp("us", "UTC")), 3),
            "b": pa.binary(4),
        }
    )
    found = [TableSchema.of(schema) for schema in (SCHEMA, nested)]
    texts = [*(schema.to_json() for schema in found), numbered(found[0].to_json(), found[0].join(found[1]).to_json())]
    texts += [schema.avro_with_meta("t") for schema in found]
    return [text.encode() for text in (*texts, TableSchema.of(STORED).avro("t"))]


NAMES: Final = (
    "00000000-0000-0000-0000-000000000000-0_0-0-0_20260101000000000.parquet",
    ".00000000-0000-0000-0000-000000000000-0_20260101000000000.log.1_0-0-0",
    ".f-0_20260101000000000.log.1_1-2-3.cdc",
    "20260101000000000_20260101000000002.deltacommit",
    "20260101000000000.compaction.inflight",
    "20260101000000.inflight",
    "manifest_12",
    "7-abcdefabcdef.json",
    "part=x/f-0_0-1000000001-0_20260101000000000.parquet",
    "20260101000000000_20260102000000000_0.parquet",
    "part=a%2Fb/day=2026-01-31",
    "00000000000000000012.json",
)

PATHS: Final = (
    "part=x/a.parquet",
    ".hoodie/.crdt_mor/timeline/0.json",
    "../out",
    "a/../../out",
    "/etc/passwd",
    "a%2f..%2f..%2fout",
    "a\0b",
    "a/./b",
    "~/x",
    "",
)

POINTS: Final = (
    "completed:20260131120000000:0b3d1c6f2a4e4f0f9d8c7b6a59483726",
    "requested:20260131120000000",
    "now",
    "17",
    "20260131120000000",
    "2026-01-31T12:00:00+01:00",
    "2026-01-31",
    "before-backfill",
    "loader:17",
    "2026-W05-6",
    "20260131T120000Z",
)

FILTERS: Final = (
    "n > 10 AND part = 'x'",
    "day >= '2026-01-31'",
    "at > TIMESTAMP '2026-01-31 12:00:00+05:00' OR n IS NULL",
    "n IN (1, 2, 3) AND NOT (part LIKE 'x%')",
    "n BETWEEN 1 AND 7",
    "price IS NOT DISTINCT FROM 0.5",
    "CASE WHEN n = 1 THEN TRUE ELSE part IS NULL END",
    "TRY_CAST(part AS DATE) < DATE '2026-01-31'",
    '"n" * 2 <> -3 -- note',
    "part ~ '^x' /* c */",
    "coalesce(n, 0) = 0",
    "tags IS NULL AND length(part) = 1",
    "at::DATE = '2026-01-31'",
)


# --- files of the user ------------------------------------------------------------------------------------------------


@cache
def source_files() -> Mapping[str, list[bytes]]:
    """Files of rows as users have them, by their ending."""
    flat = rows(1).drop_columns(["tags"])
    found: dict[str, list[bytes]] = {ending: [] for ending in ("parquet", "arrow", "csv", "json")}
    for data in (rows(1), pa.Table.from_pylist(ROWS, STORED)):
        sink, stream, file = (pa.BufferOutputStream() for _ in range(3))
        pq.write_table(data, sink)
        with pa.ipc.new_stream(stream, data.schema) as written:
            written.write_table(data)
        with pa.ipc.new_file(file, data.schema) as written:
            written.write_table(data)
        found["parquet"].append(sink.getvalue().to_pybytes())
        found["arrow"] += [stream.getvalue().to_pybytes(), file.getvalue().to_pybytes()]
    csv = pa.BufferOutputStream()
    pyarrow.csv.write_csv(flat, csv)
    found["csv"] = [csv.getvalue().to_pybytes(), b'a,b\n1,"x\ny"\n,""\n', "a;b\n1;é\n".encode("latin-1")]
    objects = [{"id": "a", "n": 1, "tags": ["x", None], "s": {"y": 1.5}, "day": "2026-01-31"}, {"id": "b", "n": None}]
    lines = "\n".join(json.dumps(item) for item in objects)
    found["json"] = [
        lines.encode(),
        json.dumps(objects).encode(),
        json.dumps(objects, indent=1).encode(),
        b"\xef\xbb\xbf" + lines.encode(),
    ]
    return found
