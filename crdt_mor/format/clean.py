"""The contents of the timeline files of a clean, and of a savepoint. No clean removes a savepoint's files.

    T.clean.requested     HoodieCleanerPlan
    T_C.clean             HoodieCleanMetadata
    T_C.savepoint         HoodieSavepointMetadata

Hudi refuses time travel to before `earliest_to_retain` of the newest completed clean. Each file is one record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from crdt_mor.format import avro_record
from crdt_mor.format.avro_record import Datum
from crdt_mor.model.names import join_path

KEEP_BY_TIME: Final = "KEEP_LATEST_BY_HOURS"
KEEP_BY_COMMITS: Final = "KEEP_LATEST_COMMITS"
"""Hudi's names of the clean policies."""

_VERSION: Final = 2
"""The version of both records: plans list files with a flag, results name files without folder."""


@dataclass(frozen=True, slots=True)
class ActionInstant:
    """An instant in Hudi's terms. State: REQUESTED, INFLIGHT or COMPLETED."""

    requested: str
    action: str
    state: str = "COMPLETED"


@dataclass(frozen=True, slots=True)
class CleanPlanRecord:
    """The files that a clean will remove, for Hudi.

    earliest_to_retain: the instant from which history is kept, or None.
    last_completed: requested time of the last commit completed at planning, or empty.
    policy: Hudi's name, such as `KEEP_BY_TIME`.
    files: names without folder, by partition path.
    partitions: the partitions to remove as a whole.
    """

    files: Mapping[str, Sequence[str]]
    earliest_to_retain: ActionInstant | None = None
    last_completed: str = ""
    policy: str = KEEP_BY_TIME
    partitions: Sequence[str] | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanedPartition:
    """The files that a clean removed from a partition, without folder, and failed to remove.

    deleted: True if the whole partition was removed.
    """

    removed: Sequence[str]
    failed: Sequence[str] = ()
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """The result of a clean.

    earliest_to_retain: views as of this time or later are whole; empty if all are.
    last_completed: requested time of the last commit completed at planning, or empty.
    policy: stored in each partition, so it is lost without partitions.
    """

    started: str
    partitions: Mapping[str, CleanedPartition]
    earliest_to_retain: str = ""
    last_completed: str = ""
    policy: str = KEEP_BY_TIME
    milliseconds: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def files_removed(self) -> int:
        return sum(len(partition.removed) for partition in self.partitions.values())


_PLAN: Final = avro_record.Kind("cleaner_plan")
_METADATA: Final = avro_record.Kind("clean_metadata")
_SAVEPOINT_RECORD: Final = "HoodieSavepointMetadata"


def encode_clean_plan(plan: CleanPlanRecord) -> bytes:
    earliest = plan.earliest_to_retain
    return avro_record.encode(
        _PLAN,
        {
            "earliestInstantToRetain": earliest
            and {"timestamp": earliest.requested, "action": earliest.action, "state": earliest.state},
            "lastCompletedCommitTimestamp": plan.last_completed,
            "policy": plan.policy,
            "filesToBeDeletedPerPartition": {},  # Java reads it without a check
            "version": _VERSION,
            "filePathsToBeDeletedPerPartition": {
                partition: [{"filePath": join_path(partition, name), "isBootstrapBaseFile": False} for name in names]
                for partition, names in plan.files.items()
            },
            "partitionsToBeDeleted": list(plan.partitions or ()),
            "extraMetadata": dict(plan.extra),
        },
    )


def decode_clean_plan(data: bytes, path: str) -> CleanPlanRecord:
    """Decode a `.clean.requested` file of any release; raise `FormatError` for damage."""
    datum = avro_record.decode(data, path, _PLAN.name)
    with avro_record.taking_fields("clean plan", path):
        listed = cast("Mapping[str, list[Datum]]", datum.get("filePathsToBeDeletedPerPartition") or {})
        files = {partition: [str(item["filePath"]) for item in items] for partition, items in listed.items()}
        # Hudi stores whole paths, crdt_mor paths inside the table; plans of version 1 list names in another field.
        files = files or cast("dict[str, list[str]]", datum.get("filesToBeDeletedPerPartition") or {})
        partitions = cast("list[str] | None", datum.get("partitionsToBeDeleted"))
        return CleanPlanRecord(
            files={partition: tuple(map(_name, paths)) for partition, paths in files.items()},
            earliest_to_retain=_instant(cast("Mapping[str, str] | None", datum.get("earliestInstantToRetain"))),
            last_completed=cast("str", datum.get("lastCompletedCommitTimestamp") or ""),
            policy=cast("str", datum["policy"]),
            partitions=None if not partitions else tuple(partitions),
            extra=cast("dict[str, str]", datum.get("extraMetadata") or {}),
        )


def encode_clean(metadata: CleanMetadata) -> bytes:
    return avro_record.encode(
        _METADATA,
        {
            "startCleanTime": metadata.started,
            "timeTakenInMillis": metadata.milliseconds,
            "totalFilesDeleted": metadata.files_removed,
            "earliestCommitToRetain": metadata.earliest_to_retain,
            "lastCompletedCommitTimestamp": metadata.last_completed,
            "partitionMetadata": {
                partition: {
                    "partitionPath": partition,
                    "policy": metadata.policy,
                    "deletePathPatterns": [*cleaned.removed, *cleaned.failed],
                    "successDeleteFiles": list(cleaned.removed),
                    "failedDeleteFiles": list(cleaned.failed),
                    "isPartitionDeleted": cleaned.deleted,
                }
                for partition, cleaned in metadata.partitions.items()
            },
            "version": _VERSION,
            "bootstrapPartitionMetadata": {},
            "extraMetadata": dict(metadata.extra),
        },
    )


def decode_clean(data: bytes, path: str) -> CleanMetadata:
    """Decode a `.clean` file of any release; raise `FormatError` for damage."""
    datum = avro_record.decode(data, path, _METADATA.name)
    with avro_record.taking_fields("clean metadata", path):
        partitions = cast("Mapping[str, Datum]", datum["partitionMetadata"])
        policies = [cast("str", item["policy"]) for item in partitions.values()]
        return CleanMetadata(
            started=cast("str", datum["startCleanTime"]),
            partitions={partition: _cleaned(item) for partition, item in partitions.items()},
            earliest_to_retain=cast("str", datum["earliestCommitToRetain"]),
            last_completed=cast("str", datum.get("lastCompletedCommitTimestamp") or ""),
            policy=policies[0] if policies else KEEP_BY_TIME,
            milliseconds=cast("int", datum["timeTakenInMillis"]),
            extra=cast("dict[str, str]", datum.get("extraMetadata") or {}),
        )


def decode_savepoint(data: bytes, path: str) -> list[str]:
    """Return the files of a savepoint, as paths inside the table; raise `FormatError` for damage."""
    datum = avro_record.decode(data, path, _SAVEPOINT_RECORD)
    with avro_record.taking_fields("savepoint", path):
        partitions = cast("Mapping[str, Mapping[str, list[str]]]", datum["partitionMetadata"])
        return sorted(
            join_path(partition, _name(file))
            for partition, item in partitions.items()
            for file in item["savepointDataFile"]
        )


def _instant(datum: Mapping[str, str] | None) -> ActionInstant | None:
    return None if datum is None else ActionInstant(datum["timestamp"], datum["action"], datum["state"])


def _cleaned(datum: Datum) -> CleanedPartition:
    names = [tuple(map(_name, cast("list[str]", datum[key]))) for key in ("successDeleteFiles", "failedDeleteFiles")]
    return CleanedPartition(names[0], names[1], deleted=bool(datum.get("isPartitionDeleted")))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
