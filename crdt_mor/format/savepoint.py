"""The contents of the timeline files of a savepoint and of a restore.

    T.savepoint.inflight, T_C.savepoint     HoodieSavepointMetadata: the files of T's snapshot
    T.restore.requested                     HoodieRestorePlan
    T_C.restore                             HoodieRestoreMetadata

crdt_mor's key is in the header of the Avro container, because the records have no place for it. Hudi leaves the
inflight file empty; crdt_mor's equals the completed file, which identifies it. `clean` reads the files of a savepoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

from crdt_mor.format import avro_record
from crdt_mor.format.avro_record import Datum
from crdt_mor.model.names import OWN_KEY

_NOTES: Final = MappingProxyType({OWN_KEY: "1"})
_SAVEPOINT: Final = avro_record.Kind("savepoint_metadata", _NOTES)
_PLAN: Final = avro_record.Kind("restore_plan", _NOTES)
_METADATA: Final = avro_record.Kind("restore_metadata", _NOTES)
_PLAN_VERSION: Final = 2
_VERSION: Final = 1

Instant = tuple[str, str]
"""An instant in Hudi's terms: requested time, and action."""


@dataclass(frozen=True, slots=True)
class SavepointRecord:
    """The content of a savepoint.

    saved_ms: its time, in ms since 1970. files: names without folder, by partition.
    """

    by: str
    saved_ms: int
    comment: str
    files: Mapping[str, Sequence[str]]


def encode_savepoint(savepoint: SavepointRecord) -> bytes:
    return avro_record.encode(
        _SAVEPOINT,
        {
            "savepointedBy": savepoint.by,
            "savepointedAt": savepoint.saved_ms,
            "comments": savepoint.comment,
            "partitionMetadata": {
                partition: {"partitionPath": partition, "savepointDataFile": list(names)}
                for partition, names in savepoint.files.items()
            },
            "version": _VERSION,
        },
    )


def decode_savepoint_record(data: bytes, path: str) -> SavepointRecord:
    """Decode a `.savepoint` file of any release; raise `FormatError` for damage."""
    datum = avro_record.decode(data, path, _SAVEPOINT.name)
    with avro_record.taking_fields("savepoint", path):
        partitions = cast("Mapping[str, Mapping[str, list[str]]]", datum["partitionMetadata"])
        return SavepointRecord(
            by=cast("str", datum["savepointedBy"]),
            saved_ms=int(cast("int", datum["savepointedAt"])),
            comment=cast("str", datum["comments"]),
            files={partition: tuple(item["savepointDataFile"]) for partition, item in partitions.items()},
        )


def encode_restore_plan(instants: Iterable[Instant], restored_to: str) -> bytes:
    """Encode a `.restore.requested` file. restored_to: the newest instant that stays; "" for none."""
    return avro_record.encode(
        _PLAN,
        {
            "instantsToRollback": list(map(_instant, instants)),
            "version": _PLAN_VERSION,
            "savepointToRestoreTimestamp": restored_to or None,
        },
    )


def encode_restore(started: str, milliseconds: int, dropped: Mapping[Instant, Mapping[str, Sequence[str]]]) -> bytes:
    """Encode a completed `.restore` file. dropped: by instant, newest first, the removed files by partition."""
    return avro_record.encode(
        _METADATA,
        {
            "startRestoreTime": started,
            "timeTakenInMillis": milliseconds,
            "instantsToRollback": [requested for requested, _ in dropped],
            "hoodieRestoreMetadata": {
                instant[0]: [_rolled_back(started, instant, files)] for instant, files in dropped.items()
            },
            "version": _VERSION,
            "restoreInstantInfo": list(map(_instant, dropped)),
        },
    )


def _rolled_back(started: str, instant: Instant, files: Mapping[str, Sequence[str]]) -> Datum:
    return {
        "startRollbackTime": started,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, files.values())),
        "commitsRollback": [instant[0]],
        "partitionMetadata": {
            partition: {"partitionPath": partition, "successDeleteFiles": list(names), "failedDeleteFiles": []}
            for partition, names in files.items()
        },
        "version": _VERSION,
        "instantsRollback": [_instant(instant)],
    }


def _instant(instant: Instant) -> Datum:
    return {"commitTime": instant[0], "action": instant[1]}


def notes(data: bytes, path: str) -> Mapping[str, str]:
    """Return the header of any of these files, with crdt_mor's key if it wrote the file."""
    return avro_record.notes_of(data, path)
