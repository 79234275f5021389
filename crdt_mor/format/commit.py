"""The contents of Hudi's timeline files: commit metadata and compaction plans.

    T_C.deltacommit, T_C.commit      HoodieCommitMetadata         also T.deltacommit.inflight: the planned work
    T_C.replacecommit                HoodieReplaceCommitMetadata
    T.compaction.requested           HoodieCompactionPlan

Each file is one record. Hudi before version 8 wrote commits as JSON, which is read too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Final, cast

from crdt_mor.errors import FormatError
from crdt_mor.format import avro_record
from crdt_mor.format.avro_record import Datum
from crdt_mor.model.numbers import is_whole


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """Milliseconds that a compaction spent on a file group, for display."""

    total_scan_time: int | None = 0
    total_create_time: int | None = 0
    total_upsert_time: int | None = 0


@dataclass(frozen=True, slots=True)
class WriteStat:
    """A file that a commit wrote. Counters that do not apply are 0, not null: Java stores them as primitives."""

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
    """The result of an instant: its files by partition, and key-value metadata (`extra`)."""

    stats: Mapping[str, Sequence[WriteStat]] = field(default_factory=dict)
    operation: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    compacted: bool | None = False
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: int | None = None


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """A file group of a plan, by file names. Without a base file, `base_instant` is the first log's."""

    base_instant: str | None
    delta_files: Sequence[str]
    data_file: str | None
    file_id: str | None
    partition_path: str | None
    metrics: Mapping[str, float] | None = None
    bootstrap_file: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionPlanRecord:
    """The input of a pending compaction, for Hudi. crdt_mor's own plan is in the timeline value."""

    operations: Sequence[CompactionOperation] = ()
    extra: Mapping[str, str] | None = None
    version: int | None = 2
    preserve_metadata: bool | None = True
    missing_partitions: Sequence[str] | None = None


_COMMIT: Final = avro_record.Kind("commit_metadata")
_COMPACTION_PLAN: Final = avro_record.Kind("compaction_plan")
_REPLACE_COMMIT_RECORD: Final = "HoodieReplaceCommitMetadata"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


_STAT_NAMES: Final = tuple((item.name, _camel(item.name)) for item in fields(WriteStat))
_RUNTIME_NAMES: Final = tuple((item.name, _camel(item.name)) for item in fields(RuntimeStats))


# ---- write ---------------------------------------------------------------------------------------------------------


def encode_commit(metadata: CommitMetadata) -> bytes:
    """Encode a `.deltacommit`, `.commit` or `.deltacommit.inflight` file. Equal metadata gives equal bytes."""
    assert not metadata.replaced, "replaced file groups belong in a replacecommit, which nothing here writes"
    return avro_record.encode(_COMMIT, _commit_datum(metadata))


def encode_compaction_plan(plan: CompactionPlanRecord) -> bytes:
    return avro_record.encode(
        _COMPACTION_PLAN,
        {
            "operations": [_operation_datum(operation) for operation in plan.operations],
            "extraMetadata": None if plan.extra is None else dict(plan.extra),
            "version": plan.version,
            "strategy": None,
            "preserveHoodieMetadata": plan.preserve_metadata,
            "missingSchedulePartitions": None if plan.missing_partitions is None else list(plan.missing_partitions),
        },
    )


def _commit_datum(metadata: CommitMetadata) -> Datum:
    # Empty maps are written too: Java removes a key without a check.
    return {
        "partitionToWriteStats": {
            partition: [_stat_datum(stat) for stat in stats] for partition, stats in metadata.stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "version": metadata.version,
        "operationType": metadata.operation,
    }


def _stat_datum(stat: WriteStat) -> Datum:
    datum = {camel: getattr(stat, name) for name, camel in _STAT_NAMES}
    if stat.log_files is not None:
        datum["logFiles"] = list(stat.log_files)
    if stat.cdc_stats is not None:
        datum["cdcStats"] = dict(stat.cdc_stats)
    if stat.runtime_stats is not None:
        datum["runtimeStats"] = {camel: getattr(stat.runtime_stats, name) for name, camel in _RUNTIME_NAMES}
    return datum


def _operation_datum(operation: CompactionOperation) -> Datum:
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
    """Decode a commit file (`replace`: a replacecommit file); raise `FormatError` for damage."""
    record = _REPLACE_COMMIT_RECORD if replace else _COMMIT.name
    datum = _decode_json(data, path, record) if data[:1] == b"{" else avro_record.decode(data, path, record)
    with avro_record.taking_fields("commit metadata", path):
        metadata = CommitMetadata(
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
        _require_types(metadata)
        return metadata


def decode_compaction_plan(data: bytes, path: str) -> CompactionPlanRecord:
    datum = avro_record.decode(data, path, _COMPACTION_PLAN.name)
    with avro_record.taking_fields("compaction plan", path):
        missing = cast("list[str] | None", datum.get("missingSchedulePartitions"))
        return CompactionPlanRecord(
            operations=tuple(_operation(item) for item in cast("list[Datum]", datum.get("operations") or [])),
            extra=cast("dict[str, str] | None", datum.get("extraMetadata")),
            version=cast("int | None", datum.get("version")),
            preserve_metadata=cast("bool | None", datum.get("preserveHoodieMetadata")),
            missing_partitions=None if missing is None else tuple(missing),
        )


_STAT_KINDS: Final = tuple(
    (item.name, {"str | None": (str, NoneType), "int | None": (int, NoneType)}.get(str(item.type)))
    for item in fields(WriteStat)
)
"""The plain fields of a write stat and their types; None for others."""


def _require_types(metadata: CommitMetadata) -> None:
    texts: list[object] = [*metadata.stats, *metadata.extra, *metadata.extra.values(), *metadata.replaced]
    texts += [file_id for file_ids in metadata.replaced.values() for file_id in file_ids]
    texts += [] if metadata.operation is None else [metadata.operation]
    for stat in (stat for stats in metadata.stats.values() for stat in stats):
        texts += stat.log_files or ()
        for name, kinds in _STAT_KINDS:
            value = getattr(stat, name)
            if kinds is not None and not (isinstance(value, kinds) and (not isinstance(value, int) or is_whole(value))):
                raise TypeError(f"{name}={value!r:.99}")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{next(text for text in texts if not isinstance(text, str))!r:.99} is no text")


def _decode_json(data: bytes, path: str, record: str) -> Datum:
    """Decode commit metadata in JSON, which archived instants of Hudi before version 8 contain."""
    try:
        return cast("Datum", json.loads(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged {record}: {error}. path={path}") from error


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
