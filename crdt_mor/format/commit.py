"""What Hudi's timeline files say: commit metadata and compaction plans.

    T_C.deltacommit, T_C.commit      HoodieCommitMetadata         also T.deltacommit.inflight: the planned work
    T_C.replacecommit                HoodieReplaceCommitMetadata
    T.compaction.requested           HoodieCompactionPlan

Each is an Avro container with one record. The schemas below are Hudi's own, to the letter: every string and map says
`avro.java.string`, since Java casts to String. Equal values give equal bytes, so that any helper projects the same
file. A file of another Hudi release is read by the schema that it carries: fields it lacks are null. Hudi before
version 8 wrote JSON, which is read as well.
Knows neither file names nor which instants count.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Final, TypeAlias, cast

import fastavro
from fastavro.types import Schema

from crdt_mor.errors import FormatError
from crdt_mor.format import avro

_Json: TypeAlias = "str | bool | int | list[_Json] | dict[str, _Json] | None"


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """Milliseconds that a compaction spent on a file group. Hudi shows them; nothing depends on them."""

    total_scan_time: int | None = 0
    total_create_time: int | None = 0
    total_upsert_time: int | None = 0


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One file that a commit wrote. Counters that do not apply are 0, not null: Java has primitives behind them."""

    file_id: str | None = None
    path: str | None = None
    prev_commit: str | None = None
    num_writes: int | None = 0
    num_deletes: int | None = 0
    num_update_writes: int | None = 0
    total_write_bytes: int | None = 0
    total_write_errors: int | None = 0
    partition_path: str | None = None
    total_log_records: int | None = 0
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = 0
    num_inserts: int | None = 0
    total_log_blocks: int | None = 0
    total_corrupt_log_block: int | None = 0
    total_rollback_blocks: int | None = 0
    file_size_in_bytes: int | None = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: Sequence[str] | None = None
    cdc_stats: Mapping[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    total_log_files_compacted: int | None = 0
    total_log_read_time_ms: int | None = 0
    total_log_size_compacted: int | None = 0
    temp_path: str | None = None
    num_updates: int | None = 0


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What one instant did: the files it wrote by partition, and what it wants to be remembered."""

    stats: Mapping[str, Sequence[WriteStat]] = field(default_factory=dict)
    operation: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    compacted: bool | None = False
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: int | None = None


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file group of a plan. Paths are file names only; without a base file `base_instant` is the first log's."""

    base_instant: str | None
    delta_files: Sequence[str]
    data_file: str | None
    file_id: str | None
    partition_path: str | None
    metrics: Mapping[str, float] | None = None
    bootstrap_file: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionPlanRecord:
    """What a pending compaction will read, as Hudi is told. Our own plan stands in the timeline value."""

    operations: Sequence[CompactionOperation] = ()
    extra: Mapping[str, str] | None = None
    version: int | None = 2
    preserve_metadata: bool | None = True
    missing_partitions: Sequence[str] | None = None


# ---- the schemas, as Hudi writes them ----------------------------------------------------------------------------

_STRING: Final[_Json] = {"type": "string", "avro.java.string": "String"}


def _optional(name: str, type_: _Json) -> _Json:
    return {"name": name, "type": ["null", type_], "default": None}


def _array(items: _Json) -> dict[str, _Json]:
    return {"type": "array", "items": items}


def _map(values: _Json) -> dict[str, _Json]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _record(name: str, *members: _Json) -> dict[str, _Json]:
    return {"type": "record", "name": name, "fields": list(members)}


def _file(name: str, *members: _Json) -> dict[str, _Json]:
    return {"type": "record", "name": name, "namespace": "org.apache.hudi.avro.model", "fields": list(members)}


_RUNTIME_STATS: Final = _record(
    "HoodieRuntimeStats",
    _optional("totalScanTime", "long"),
    _optional("totalCreateTime", "long"),
    _optional("totalUpsertTime", "long"),
)
_WRITE_STAT: Final = _record(
    "HoodieWriteStat",
    _optional("fileId", _STRING),
    _optional("path", _STRING),
    _optional("prevCommit", _STRING),
    _optional("numWrites", "long"),
    _optional("numDeletes", "long"),
    _optional("numUpdateWrites", "long"),
    _optional("totalWriteBytes", "long"),
    _optional("totalWriteErrors", "long"),
    _optional("partitionPath", _STRING),
    _optional("totalLogRecords", "long"),
    _optional("totalLogFiles", "long"),
    _optional("totalUpdatedRecordsCompacted", "long"),
    _optional("numInserts", "long"),
    _optional("totalLogBlocks", "long"),
    _optional("totalCorruptLogBlock", "long"),
    _optional("totalRollbackBlocks", "long"),
    _optional("fileSizeInBytes", "long"),
    _optional("logVersion", "int"),
    _optional("logOffset", "long"),
    _optional("baseFile", _STRING),
    _optional("logFiles", {**_array(_STRING), "default": None}),
    _optional("cdcStats", {**_map("long"), "default": None}),
    _optional("prevBaseFile", _STRING),
    _optional("minEventTime", "long"),
    _optional("maxEventTime", "long"),
    _optional("runtimeStats", _RUNTIME_STATS),
    _optional("totalLogFilesCompacted", "long"),
    _optional("totalLogReadTimeMs", "long"),
    _optional("totalLogSizeCompacted", "long"),
    _optional("tempPath", _STRING),
    _optional("numUpdates", "long"),
)
_VERSION: Final[_Json] = {"name": "version", "type": ["int", "null"], "default": 1}
_COMMIT: Final = _file(
    "HoodieCommitMetadata",
    _optional("partitionToWriteStats", _map(_array(_WRITE_STAT))),
    _optional("compacted", "boolean"),
    _optional("extraMetadata", {**_map(_STRING), "default": None}),
    _VERSION,
    _optional("operationType", _STRING),
)
_REPLACE_COMMIT: Final = _file(
    "HoodieReplaceCommitMetadata",
    _optional("partitionToWriteStats", _map(_array(_WRITE_STAT))),
    _optional("compacted", "boolean"),
    _optional("extraMetadata", _map(_STRING)),
    _VERSION,
    _optional("operationType", _STRING),
    _optional("partitionToReplaceFileIds", _map(_array(_STRING))),
)
_COMPACTION_OPERATION: Final = _record(
    "HoodieCompactionOperation",
    {"name": "baseInstantTime", "type": ["null", _STRING]},
    _optional("deltaFilePaths", _array(_STRING)),
    _optional("dataFilePath", _STRING),
    {"name": "fileId", "type": ["null", _STRING]},
    _optional("partitionPath", _STRING),
    _optional("metrics", _map("double")),
    _optional("bootstrapFilePath", _STRING),
)
_COMPACTION_STRATEGY: Final = _record(
    "HoodieCompactionStrategy",
    _optional("compactorClassName", _STRING),
    _optional("strategyParams", _map(_STRING)),
    _VERSION,
)
_COMPACTION_PLAN: Final = _file(
    "HoodieCompactionPlan",
    _optional("operations", _array(_COMPACTION_OPERATION)),
    _optional("extraMetadata", _map(_STRING)),
    _VERSION,
    _optional("strategy", _COMPACTION_STRATEGY),
    {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
    _optional("missingSchedulePartitions", _array(_STRING)),
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of file: its record's name, and what is needed to write it, made once."""

    name: str
    parsed: Schema
    header: bytes


def _kind(schema: dict[str, _Json]) -> _Kind:
    text = json.dumps(schema, separators=(",", ":"))
    return _Kind(str(schema["name"]), _parse(text), avro.container_header(text))


@lru_cache(maxsize=64)
def _parse(schema: str) -> Schema:
    return fastavro.parse_schema(json.loads(schema))


_COMMIT_KIND: Final = _kind(_COMMIT)
_REPLACE_KIND: Final = _kind(_REPLACE_COMMIT)
_PLAN_KIND: Final = _kind(_COMPACTION_PLAN)

_Datum: TypeAlias = dict[str, object]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


_STAT_NAMES: Final = tuple((item.name, _camel(item.name)) for item in fields(WriteStat))
_RUNTIME_NAMES: Final = tuple((item.name, _camel(item.name)) for item in fields(RuntimeStats))


# ---- write ---------------------------------------------------------------------------------------------------------


def encode_commit(metadata: CommitMetadata) -> bytes:
    """The bytes of a `.deltacommit`, `.commit` or `.deltacommit.inflight` file. Equal metadata, equal bytes."""
    assert not metadata.replaced, "replaced file groups belong in a replacecommit"
    return _encode(_COMMIT_KIND, _commit_datum(metadata))


def encode_replace_commit(metadata: CommitMetadata) -> bytes:
    """The bytes of a `.replacecommit` file."""
    replaced = {partition: list(file_ids) for partition, file_ids in metadata.replaced.items()}
    return _encode(_REPLACE_KIND, {**_commit_datum(metadata), "partitionToReplaceFileIds": replaced})


def encode_compaction_plan(plan: CompactionPlanRecord) -> bytes:
    """The bytes of a `.compaction.requested` file."""
    return _encode(
        _PLAN_KIND,
        {
            "operations": [_operation_datum(operation) for operation in plan.operations],
            "extraMetadata": None if plan.extra is None else dict(plan.extra),
            "version": plan.version,
            "strategy": None,
            "preserveHoodieMetadata": plan.preserve_metadata,
            "missingSchedulePartitions": None if plan.missing_partitions is None else list(plan.missing_partitions),
        },
    )


def _encode(kind: _Kind, datum: _Datum) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, kind.parsed, datum)
    return avro.encode_container(kind.header, 1, buffer.getvalue())


def _commit_datum(metadata: CommitMetadata) -> _Datum:
    # Maps are there even when empty: Java removes a key from them without looking.
    return {
        "partitionToWriteStats": {
            partition: [_stat_datum(stat) for stat in stats] for partition, stats in metadata.stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "version": metadata.version,
        "operationType": metadata.operation,
    }


def _stat_datum(stat: WriteStat) -> _Datum:
    datum = {camel: getattr(stat, name) for name, camel in _STAT_NAMES}
    if stat.log_files is not None:
        datum["logFiles"] = list(stat.log_files)
    if stat.cdc_stats is not None:
        datum["cdcStats"] = dict(stat.cdc_stats)
    if stat.runtime_stats is not None:
        datum["runtimeStats"] = {camel: getattr(stat.runtime_stats, name) for name, camel in _RUNTIME_NAMES}
    return datum


def _operation_datum(operation: CompactionOperation) -> _Datum:
    return {
        "baseInstantTime": operation.base_instant,
        "deltaFilePaths": list(operation.delta_files),
        "dataFilePath": operation.data_file,
        "fileId": operation.file_id,
        "partitionPath": operation.partition_path,
        "metrics": None if operation.metrics is None else dict(operation.metrics),
        "bootstrapFilePath": operation.bootstrap_file,
    }


# ---- read ----------------------------------------------------------------------------------------------------------


def decode_commit(data: bytes, path: str, *, replace: bool = False) -> CommitMetadata:
    """What a commit file (`replace`: a replacecommit file) says; `FormatError` if it is empty or damaged."""
    kind = _REPLACE_KIND if replace else _COMMIT_KIND
    datum = _decode_json(data, path, kind) if data[:1] == b"{" else _decode(data, path, kind)
    try:
        return CommitMetadata(
            stats=_stats(datum.get("partitionToWriteStats")),
            operation=cast("str | None", datum.get("operationType")),
            extra=cast("dict[str, str]", datum.get("extraMetadata") or {}),
            compacted=cast("bool | None", datum.get("compacted")),
            replaced={
                partition: tuple(file_ids or ())
                for partition, file_ids in _mapping(datum.get("partitionToReplaceFileIds")).items()
            },
            version=cast("int | None", datum.get("version")),
        )
    except (TypeError, AttributeError) as error:
        raise FormatError(f"commit metadata of a shape that Hudi does not write: {error}. path={path}") from error


def decode_compaction_plan(data: bytes, path: str) -> CompactionPlanRecord:
    """What a `.compaction.requested` file says; `FormatError` if it is empty or damaged."""
    datum = _decode(data, path, _PLAN_KIND)
    try:
        missing = cast("list[str] | None", datum.get("missingSchedulePartitions"))
        return CompactionPlanRecord(
            operations=tuple(_operation(item) for item in cast("list[_Datum]", datum.get("operations") or [])),
            extra=cast("dict[str, str] | None", datum.get("extraMetadata")),
            version=cast("int | None", datum.get("version")),
            preserve_metadata=cast("bool | None", datum.get("preserveHoodieMetadata")),
            missing_partitions=None if missing is None else tuple(missing),
        )
    except (TypeError, AttributeError) as error:
        raise FormatError(f"a compaction plan of a shape that Hudi does not write: {error}. path={path}") from error


def _decode(data: bytes, path: str, kind: _Kind) -> _Datum:
    container = avro.decode_container(data, path)
    records = [(count, datums) for count, datums in container.blocks if count]
    if len(records) != 1 or records[0][0] != 1:
        count = sum(count for count, _ in records)
        raise FormatError(f"one record expected, {count} found. record={kind.name} path={path}")
    try:
        parsed = _parse(container.schema)
        name = str(cast("Mapping[str, object]", parsed)["name"]).rpartition(".")[2]
        buffer = io.BytesIO(records[0][1])
        # One union of a string field and another has no tag in Python; our records have none of those.
        datum = cast("_Datum", fastavro.schemaless_reader(buffer, parsed, None))
    except Exception as error:  # fastavro raises whatever the bytes lead it to
        raise FormatError(f"damaged {kind.name}: {error!r}. path={path}") from error
    if name != kind.name:
        raise FormatError(f"{kind.name} expected, {name} found. path={path}")
    if buffer.read(1):
        raise FormatError(f"bytes after the record. record={kind.name} path={path}")
    return datum


def _decode_json(data: bytes, path: str, kind: _Kind) -> _Datum:
    """Commit metadata in JSON, as Hudi wrote it before version 8; archived instants may still be in it."""
    try:
        return cast("_Datum", json.loads(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged {kind.name}: {error}. path={path}") from error


def _mapping(value: object) -> Mapping[str, Sequence[str]]:
    return cast("Mapping[str, Sequence[str]]", value or {})


def _stats(value: object) -> dict[str, Sequence[WriteStat]]:
    partitions = cast("Mapping[str, Sequence[Mapping[str, object]]]", value or {})
    return {partition: tuple(_stat(item) for item in items) for partition, items in partitions.items()}


def _stat(datum: Mapping[str, object]) -> WriteStat:
    values = {name: datum.get(camel) for name, camel in _STAT_NAMES}
    if isinstance(log_files := values["log_files"], list):
        values["log_files"] = tuple(log_files)
    if isinstance(runtime := values["runtime_stats"], dict):
        values["runtime_stats"] = RuntimeStats(**{name: runtime.get(camel) for name, camel in _RUNTIME_NAMES})
    return WriteStat(**values)  # type: ignore[arg-type]  # the names are the fields', the types Avro's


def _operation(datum: Mapping[str, object]) -> CompactionOperation:
    return CompactionOperation(
        base_instant=cast("str | None", datum.get("baseInstantTime")),
        delta_files=tuple(cast("list[str]", datum.get("deltaFilePaths") or [])),
        data_file=cast("str | None", datum.get("dataFilePath")),
        file_id=cast("str | None", datum.get("fileId")),
        partition_path=cast("str | None", datum.get("partitionPath")),
        metrics=cast("dict[str, float] | None", datum.get("metrics")),
        bootstrap_file=cast("str | None", datum.get("bootstrapFilePath")),
    )
