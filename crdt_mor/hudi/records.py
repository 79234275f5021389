"""Encode the files of Hudi's timeline: Hudi's records, each with our key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from crdt_mor.format.clean import (
    KEEP_BY_COMMITS,
    KEEP_BY_TIME,
    ActionInstant,
    CleanedPartition,
    CleanMetadata,
    CleanPlanRecord,
    decode_clean,
    decode_clean_plan,
    encode_clean,
    encode_clean_plan,
)
from crdt_mor.format.commit import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlanRecord,
    WriteStat,
    decode_commit,
    decode_compaction_plan,
    encode_commit,
    encode_compaction_plan,
)
from crdt_mor.format.rollback import Rollback, encode_rollback, encode_rollback_plan
from crdt_mor.model.instant import EPOCH, to_ms
from crdt_mor.model.names import CLAIM_KEY, COMMIT, COMMIT_INFO_KEY, DELTA_COMMIT, OWN_KEY
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.planners.clean import CleanPlan
from crdt_mor.planners.compaction import CompactionPlan, GroupInput

MIB: Final = 1 << 20


@cache
def pending_record() -> bytes:
    return encode_commit(CommitMetadata(stats={}, operation="UPSERT", extra={OWN_KEY: "1"}))


def claim_record(nonce: str) -> bytes:
    """Encode the claim of a time, later a file of a pending write (`events.one_event`)."""
    return encode_commit(CommitMetadata(stats={}, operation="UPSERT", extra={OWN_KEY: "1", CLAIM_KEY: nonce}))


@cache
def overwrite_record() -> bytes:
    """Encode the plan of an overwrite, as Hudi's compaction plan.

    It names no file groups: Hudi's readers refuse two plans of a group, and a cancelled plan may remain for a while.
    """
    return encode_compaction_plan(CompactionPlanRecord((), extra={OWN_KEY: "1"}))


def encode_plan_record(plan: CompactionPlan) -> bytes:
    """Encode a frozen plan as Hudi's compaction plan. Hudi hides only groups named in pending plans."""
    operations = tuple(_operation(group) for group in plan.groups)
    return encode_compaction_plan(CompactionPlanRecord(operations, extra={OWN_KEY: "1"}))


def _operation(group: GroupInput) -> CompactionOperation:
    logs = tuple(str(file.name) for file in group.logs)
    base_instant = (group.base or group.logs[0]).name.instant
    return CompactionOperation(
        base_instant=base_instant,
        delta_files=logs,
        data_file=str(group.base.name) if group.base else None,
        file_id=group.file_id,
        partition_path=group.partition,
        metrics=_metrics(group),
    )


def _metrics(group: GroupInput) -> Mapping[str, float]:
    """Return sizes for the memory planning of Hudi's executor, which fails without them."""
    logs = sum(file.size for file in group.logs)
    base = group.base.size if group.base else 0
    read, written = (logs + base) // MIB, base // MIB
    return {
        "TOTAL_LOG_FILES": float(len(group.logs)), "TOTAL_LOG_FILES_SIZE": float(logs),
        "TOTAL_IO_READ_MB": float(read), "TOTAL_IO_WRITE_MB": float(written), "TOTAL_IO_MB": float(read + written),
    }  # fmt: skip


def is_same_plan(data: bytes, expected: bytes, path: str) -> bool:
    """Return True if a writer of ours put this plan record; earlier releases wrote no sizes."""
    if data == expected:
        return True
    plan = decode_compaction_plan(expected, path)
    operations = tuple(replace(operation, metrics=None) for operation in plan.operations)
    return data == encode_compaction_plan(replace(plan, operations=operations))


def plan_record_extra(data: bytes, path: str) -> Mapping[str, str]:
    return decode_compaction_plan(data, path).extra or {}


def commit_extra(data: bytes, path: str) -> Mapping[str, str]:
    return decode_commit(data, path).extra


def encode_completed_compaction(completion: Completion, avro_schema: str) -> bytes:
    """Encode a compaction's commit metadata. Our log compactions write base files, so they count as compactions."""
    return encode_completed_write(replace(completion, operation="COMPACT"), avro_schema, compacted=True)


def encode_completed_write(completion: Completion, avro_schema: str, *, compacted: bool | None = None) -> bytes:
    stats: dict[str, list[WriteStat]] = {}
    for file in completion.files:
        stats.setdefault(file.partition, []).append(_write_stat(file, completion))
    extra = {OWN_KEY: str(completion.version), "schema": avro_schema}
    said = [dict(info) for info in dict.fromkeys(writer.author.info for writer in completion.writers) if info]
    if said:
        extra[COMMIT_INFO_KEY] = json.dumps(said if completion.members else said[0], separators=(",", ":"))
    return encode_commit(CommitMetadata(stats=stats, operation=completion.operation, extra=extra, compacted=compacted))


def encode_rollback_record(completion: Completion) -> bytes:
    return encode_rollback_plan(_rollback(completion))


def encode_completed_rollback(completion: Completion, avro_schema: str) -> bytes:  # noqa: ARG001  no commit's record
    """Encode a rollback's metadata, without files: these were removed before."""
    return encode_rollback(_rollback(completion))


def _rollback(completion: Completion) -> Rollback:
    assert completion.undone is not None, "a rollback of ours names the write that it undid"
    return Rollback(completion.requested, completion.undone, DELTA_COMMIT)


def _write_stat(file: DataFile, completion: Completion) -> WriteStat:
    name = str(file.name)
    if file.is_base:
        return WriteStat(
            file_id=file.name.file_id, path=file.path, prev_commit="null", num_writes=file.rows,
            partition_path=file.partition, total_write_bytes=file.size, file_size_in_bytes=file.size,
        )  # fmt: skip
    return WriteStat(
        file_id=file.name.file_id, path=file.path, prev_commit=completion.requested, num_writes=file.rows,
        num_update_writes=file.rows, num_deletes=file.deletes, partition_path=file.partition,
        total_write_bytes=file.size, file_size_in_bytes=file.size, base_file="", log_files=(name,),
        log_version=1, log_offset=0,
    )  # fmt: skip


# --- cleans -----------------------------------------------------------------------------------------------------------

_POLICIES = {"time": KEEP_BY_TIME, "commits": KEEP_BY_COMMITS}


def encode_clean_record(plan: CleanPlan) -> bytes:
    return encode_clean_plan(
        CleanPlanRecord(
            files=_names_by_partition(plan),
            earliest_to_retain=None if plan.earliest == EPOCH else ActionInstant(plan.earliest, COMMIT),
            last_completed=_last_completed(plan),
            policy=_POLICIES[plan.policy],
            extra={OWN_KEY: "1"},
        )
    )


def encode_completed_clean(completion: Completion, plan: CleanPlan) -> bytes:
    """Encode a completed clean. Hudi's readers refuse times before `earliest`."""
    return encode_clean(
        CleanMetadata(
            started=completion.requested,
            partitions={name: CleanedPartition(files) for name, files in _names_by_partition(plan).items()},
            earliest_to_retain="" if plan.earliest == EPOCH else plan.earliest,
            last_completed=_last_completed(plan),
            policy=_POLICIES[plan.policy],
            milliseconds=to_ms(completion.completed) - to_ms(completion.requested),
            extra={OWN_KEY: str(completion.version)},
        )
    )


def clean_plan_extra(data: bytes, path: str) -> Mapping[str, str]:
    return decode_clean_plan(data, path).extra


def clean_extra(data: bytes, path: str) -> Mapping[str, str]:
    return decode_clean(data, path).extra


def _names_by_partition(plan: CleanPlan) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for file in plan.files:
        names.setdefault(file.partition, []).append(str(file.name))
    return names


def _last_completed(plan: CleanPlan) -> str:
    return "" if plan.last_completed == EPOCH else plan.last_completed
