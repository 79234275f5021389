"""The contents of the timeline files of a rollback, which name the write that was given up.

    T.rollback.requested     HoodieRollbackPlan
    T_C.rollback             HoodieRollbackMetadata

crdt_mor's key is in the header of the Avro container, because the records have no place for it. Equal values give equal
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crdt_mor.format import avro_record
from crdt_mor.format.avro_record import Datum
from crdt_mor.model.names import OWN_KEY

_NOTES: Final = MappingProxyType({OWN_KEY: "1"})
_PLAN: Final = avro_record.Kind("rollback_plan", _NOTES)
_METADATA: Final = avro_record.Kind("rollback_metadata", _NOTES)
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rollback of a write after its files were removed.

    started: requested time of the rollback.
    undone, action: requested time and action of the write.
    """

    started: str
    undone: str
    action: str


def encode_rollback_plan(rollback: Rollback) -> bytes:
    return avro_record.encode(
        _PLAN, {"instantToRollback": _instant(rollback), "RollbackRequests": [], "version": _VERSION}
    )


def encode_rollback(rollback: Rollback) -> bytes:
    return avro_record.encode(
        _METADATA,
        {
            "startRollbackTime": rollback.started,
            "timeTakenInMillis": 0,
            "totalFilesDeleted": 0,
            "commitsRollback": [rollback.undone],
            "partitionMetadata": {},
            "version": _VERSION,
            "instantsRollback": [_instant(rollback)],
        },
    )


def _instant(rollback: Rollback) -> Datum:
    return {"commitTime": rollback.undone, "action": rollback.action}
