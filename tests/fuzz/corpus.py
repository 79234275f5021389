"""Real objects of every kind, as the engine writes them, and as Hudi does where we write none: the seeds of fuzzing."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, Final

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc

import crdt_mor as mor
from crdt_mor.format import archive, clean, commit, log, rollback, savepoint
from crdt_mor.log.intents import BeginIntent, CompleteIntent, encode_intent
from crdt_mor.log.posts import Post, encode_post
from crdt_mor.model.authors import Author
from crdt_mor.model.names import TimelineFileName
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.payloads import Counter, Distinct, ORSet, PartialUpdate
from tests.format.helpers import T1, T2, raw_block
from tests.simulated import Simulated

SCHEMA: Final = pa.schema(
    {
        "id": pa.string(),
        "part": pa.string(),
        "n": pa.int64(),
        "price": pa.float64(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
    }
)
TABLE_ID: Final = "n1"
AUTHOR: Final = Author("fuzz", "host", 7, (("message", "why"),))


def rows(number: int) -> pa.Table:
    """Two rows of `SCHEMA`."""
    moment = datetime(2026, 1, 31, 12, 0, number % 60, tzinfo=UTC)
    row = {"part": "x", "n": number, "price": 0.5, "day": date(2026, 1, 31), "at": moment, "tags": ["a", None]}
    return pa.Table.from_pylist([{"id": "a", **row}, {"id": "b", **row, "part": "y"}], SCHEMA)


@dataclass(frozen=True)
class Made:
    """A table in memory with something of everything, and the objects that it had in the course of its life."""

    place: Simulated
    objects: Mapping[str, bytes]


@cache
def table() -> Made:
    """A table of the latest values: commits, deletes, compactions, a clean, rules, a savepoint, what is pending."""
    place = Simulated()
    table = place.create(
        SCHEMA,
        key=["id", "part"],
        partition_by="part",
        buckets=1,
        rules=mor.Rules(not_null=["n"], check={"positive": "n > 0"}, default={"price": 1.0}),
    )
    objects: dict[str, bytes] = {}

    def look() -> None:
        objects.update(objects_of(place.store))

    for number in range(1, 4):
        table.upsert(rows(number), token=("loader", number), commit_info={"message": "m"})
        look()
    table.delete(keys=[("b", "y")])
    table.maintenance.savepoint("before", comment="why")
    table.maintenance.compact(log_files_min=1)
    look()
    table.upsert(rows(4))
    table.set_properties({"crdt_mor.compaction.log_files": "3", "owner": "me"})
    place.environment.sleep(86_400 * 30)
    table.maintenance.compact(log_files_min=1)
    table.maintenance.clean(keep=timedelta(days=1))
    look()
    table.maintenance.archive(keep_commits=1)
    table.upsert(rows(5))
    table.maintenance.plans.schedule(log_files_min=1)
    pending = table.transaction(token=("app", 1)).__enter__()
    pending.upsert(rows(6))
    table.alter(rename={"price": "cost"}, comment={"n": "pieces"})
    look()
    return Made(place, objects)


@cache
def other_tables() -> Sequence[Made]:
    """Tables of the other merges: by an ordering column, partial updates, payloads with states."""
    settings: list[tuple[pa.Schema, dict[str, Any]]] = [
        (SCHEMA, {"ordering": "n"}),
        (SCHEMA, {"merge": PartialUpdate()}),
        (SCHEMA, {"merge": {"n": Counter(), "tags": ORSet()}}),
    ]
    found = []
    for schema, more in settings:
        place = Simulated()
        made = place.create(schema, key="id", buckets=2, **more)
        made.upsert(rows(1))
        made.upsert(rows(2))
        made.delete(pl.DataFrame({"id": ["a"], "n": [7]}) if "ordering" in more else pl.DataFrame({"id": ["a"]}))
        found.append(Made(place, objects_of(place.store)))
    return found


def objects_of(store: mor.store.Store) -> dict[str, bytes]:
    """All objects of a store."""
    paths = sorted({stat.path for folder in ("", ".hoodie") for stat in store.walk(folder)})
    return {path: store.read(path) or b"" for path in paths}


def named(*parts: str) -> list[bytes]:
    """The objects of all tables in whose paths each of some texts stands, those that are alike once."""
    every = [made.objects for made in (table(), *other_tables())]
    found = [data for objects in every for path, data in objects.items() if all(part in path for part in parts)]
    return list(dict.fromkeys(data for data in found if data))


# --- logs -------------------------------------------------------------------------------------------------------------

AVRO_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "_hoodie_record_key", "type": ["null", "string"], "default": None},
    {"name": "n", "type": ["null", "long"], "default": None},
    {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}], "default": None},
]


def avro_rows(more: Sequence[dict[str, Any]] = (), values: Mapping[str, Any] | None = None) -> tuple[str, bytes]:
    """A schema, and the content of an Avro block with two rows of it, as Hudi writes them."""
    schema = {"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": [*AVRO_FIELDS, *more]}
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    content = struct.pack(">ii", 3, 2)
    for key in ("a", "b"):
        buffer = io.BytesIO()
        row = {"_hoodie_record_key": key, "n": 7, "tags": ["x", None], **(values or {})}
        fastavro.schemaless_writer(buffer, parsed, row)
        content += struct.pack(">i", len(buffer.getvalue())) + buffer.getvalue()
    return json.dumps(schema), content


@cache
def avro_blocks() -> Sequence[tuple[str, bytes]]:
    """Contents of Avro blocks with their schemas: one that is read by columns, and one with a map, row by row."""
    mapped = {"name": "m", "type": ["null", {"type": "map", "values": "long"}], "default": None}
    either = {"name": "e", "type": ["null", "long", "string"], "default": None}
    return [avro_rows(), avro_rows([mapped, either], {"m": {"k": 1}, "e": "text"})]


@cache
def logs() -> list[bytes]:
    """Log files of ours; and blocks of Avro rows, commands and log compactions as Hudi writes them."""
    hudi = [raw_block(3, {0: T1, 2: schema}, content) for schema, content in avro_blocks()]
    rolled_back = raw_block(1, {0: T1, 2: "{}"}, b"\0\0\0\3\0\0\0\1\0") + raw_block(0, {0: T2, 1: T1, 3: "0"})
    compacted = raw_block(5, {0: T2, 2: "{}", 4: f"{T1},{T2}", 7: "true"}, b"rows")
    return [*named(".log."), *hudi, rolled_back, compacted]


@cache
def delete_contents() -> list[bytes]:
    """Contents of delete blocks, of every type of ordering values."""
    orderings = [
        None,
        pa.nulls(2),
        pa.array([1, None], pa.int32()),
        pa.array([1, 2], pa.int64()),
        pa.array(["x", ""]),
        pa.array([0.5, None]),
        pa.array([True, False]),
        pa.array([date(2026, 1, 1), None]),
        pa.array([b"\0", None]),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        pa.array([None, 7], pa.int64()).cast(pa.decimal128(23, 2)),
    ]
    blocks = [b"".join(log.delete_block(T1, "{}", ["a", "ä"], "x", ordering)) for ordering in orderings]
    return [bytes(log.read_blocks(block, "log")[0].content) for block in blocks]


# --- Hudi's timeline --------------------------------------------------------------------------------------------------

_STAT: Final = commit.WriteStat(
    file_id="00000000-0000-0000-0000-000000000000-0",
    path="part=x/.00000000-0000-0000-0000-000000000000-0_20260101000000000.log.1_0-0-0",
    prev_commit="null",
    num_writes=2,
    partition_path="part=x",
    file_size_in_bytes=100,
    log_files=(".a_20260101000000000.log.1_0-0-0",),
    cdc_stats={"a": 1},
    runtime_stats=commit.RuntimeStats(1, 2, 3),
)


@cache
def commits() -> list[bytes]:
    """Commit metadata: as we write it, as Hudi's replace commits have it, and as JSON of before version 8."""
    from tests.format.replace_commit import encode_replace_commit

    metadata = commit.CommitMetadata({"part=x": (_STAT,)}, "UPSERT", {"schema": "{}", "crdt_mor": "7"}, version=1)
    replaced = encode_replace_commit(commit.CommitMetadata({}, "INSERT_OVERWRITE", {}, replaced={"part=x": ("f-0",)}))
    stats = {"fileId": "f-0", "path": "part=x/f-0_1-0-1_20260101000000000.parquet", "numWrites": 2, "logFiles": ["a"]}
    old = {
        "partitionToWriteStats": {"part=x": [stats | {"runtimeStats": {"totalScanTime": 1}}]},
        "compacted": False,
        "extraMetadata": {"schema": "{}"},
        "operationType": "UPSERT",
        "partitionToReplaceFileIds": {"part=x": ["f-0"]},
    }
    written = [data for data in named(".hoodie/timeline/", "commit") if data[:3] == b"Obj"]
    return [commit.encode_commit(metadata), replaced, json.dumps(old).encode(), *written[:6]]


@cache
def actions() -> list[bytes]:
    """The files of services in Hudi's timeline: plans and results of compactions, cleans, savepoints and so on."""
    instants = [clean.ActionInstant("20260101000000000", "deltacommit"), None]
    given_up = rollback.Rollback("20260101000000003", "20260101000000001", "deltacommit")
    saved = savepoint.SavepointRecord("me", 7, "why", {"part=x": ["a_0-0-0_1.parquet"]})
    operation = commit.CompactionOperation(
        "20260101000000000", (".a_1.log.1_0-0-0",), "a_0-0-0_1.parquet", "a", "part=x", {"T": 1.0}
    )
    plans = [
        clean.encode_clean_plan(clean.CleanPlanRecord({"part=x": ("a_0-0-0_1.parquet",)}, instant))
        for instant in instants
    ]
    dropped = {("20260101000000000", "deltacommit"): {"part=x": ["a_0-0-0_1.parquet"]}}
    return [
        commit.encode_compaction_plan(
            commit.CompactionPlanRecord((operation,), {"crdt_mor": "7"}, missing_partitions=("y",))
        ),
        *plans,
        clean.encode_clean(
            clean.CleanMetadata("20260101000000001", {"part=x": clean.CleanedPartition(("a_0-0-0_1.parquet",))})
        ),
        savepoint.encode_savepoint(saved),
        savepoint.encode_restore_plan([("20260101000000000", "deltacommit")], "20260101000000002"),
        savepoint.encode_restore("20260101000000003", 1, dropped),
        rollback.encode_rollback_plan(given_up),
        rollback.encode_rollback(given_up),
    ]


@cache
def archives() -> list[bytes]:
    """Objects of Hudi's archived timeline: manifests, their version, data files."""
    name = TimelineFileName(T1, "deltacommit", "completed", T2)
    instants = archive.encode_instants([archive.ArchivedInstant(name, b"metadata", b"plan")] * 2)
    return [archive.encode_manifest([("1_2_0.parquet", 7), ("3_4_0.parquet", 8)]), b"12\n", instants]


# --- our own timeline -------------------------------------------------------------------------------------------------


def values() -> list[bytes]:
    """Versions of the timeline."""
    return named(".crdt_mor/timeline/")


@cache
def segments() -> list[bytes]:
    """Segments, made of the completions of versions; an object of file ids, and one of a schema."""
    found = []
    for data in (values()[0], values()[-1]):
        document = json.loads(data)
        found.append(json.dumps({"format": 7, "completions": document["completions"]}).encode())
    ids = {"format": 7, "file_ids": {"part=x": ["00000000-7c1e-0000-0000-000000000000-0", 3]}}
    schema = {"format": 7, "schema": '[["id","string"]]'}
    return [*found, json.dumps(ids).encode(), json.dumps(schema).encode(), *named(".crdt_mor/segments/")]


@cache
def plans() -> list[bytes]:
    """Frozen plans of ours: a compaction, a clean, a restore, an erasure."""
    clean_plan = {
        "format": 1,
        "barrier": "20260101000000001",
        "table_id": TABLE_ID,
        "deletion": "20260101000000000",
        "retention": {"since": T1, "stable_since": T1, "groups": [["part=x", "f-0", T1]], "dropped": [T1, 3]},
        "last_completed": "",
        "policy": "KEEP_LATEST_BY_HOURS",
        "files": {"part=x": [["a_0-0-0_20260101000000000.parquet", 1, 2, 0]]},
    }
    files = ["part=x/a_0-0-0_20260101000000000.parquet"]
    restore = {
        "format": 1,
        "requested": T2,
        "to": T1,
        "marks": T1,
        "table_id": TABLE_ID,
        "dropped": [[T1, T2, "deltacommit", files]],
    }
    erasure = {"format": 1, "requested": T1, "table_id": TABLE_ID, "groups": [["part=x", "f-0"]]}
    return [*named(".crdt_mor/plans/"), *(json.dumps(document).encode() for document in (clean_plan, restore, erasure))]


@cache
def posts() -> list[bytes]:
    """Whole writes and events that were posted."""
    contents = []
    for statement, frame in (("UPSERT", rows(1)), ("DELETE", rows(1).select(["id", "part"]))):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, frame.schema) as stream:
            stream.write_table(frame)
        contents.append((statement, sink.getvalue().to_pybytes()))
    whole = [Post(None, AUTHOR, ("app", 3), statement, False, 2, 0, content) for statement, content in contents]
    file = DataFile("part=x/.00000000-0000-0000-0000-000000000000-0_20260101000000000.log.1_0-0-0", 1, 2)
    events: list[BeginIntent | CompleteIntent] = [
        BeginIntent("n7", 1_700_000_000_000, AUTHOR),
        CompleteIntent("n7", T1, "driver", "UPSERT", (file,), ("app", 3)),
    ]
    return [*(encode_post(post, TABLE_ID) for post in whole), *(encode_intent(event, TABLE_ID) for event in events)]


# --- base files -------------------------------------------------------------------------------------------------------


@cache
def footers() -> list[bytes]:
    """Footers of Parquet files, and headers of Bloom filters: structs of Thrift's compact protocol."""
    bases = [data for data in named(".parquet") if data[:4] == b"PAR1"]
    return [data[-8 - int.from_bytes(data[-8:-4], "little") : -8] for data in bases]


@cache
def parquets() -> list[bytes]:
    """Base files, one with Bloom filters among them."""
    from crdt_mor.format.base_file import write_parquet

    frame = pa.table({"_hoodie_record_key": [str(number) for number in range(64)], "n": list(range(64))})
    return [*named(".parquet")[:4], bytes(write_parquet(frame, lookup="_hoodie_record_key", row_group_rows=16))]


@cache
def sketches() -> list[bytes]:
    """States of the payloads that keep bytes of a format of their own, in files."""
    few, many = Distinct(), Distinct(lg_k=5)
    found = [few._sketch("a"), few._sketch(["a", "b"]), many._sketch([str(number) for number in range(500)])]
    return [*found, few._sketch([])]
