"""Encode the files of savepoints and restores: Hudi's records, each with our key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from crdt_mor.errors import FormatError
from crdt_mor.format.savepoint import (
    Instant,
    SavepointRecord,
    decode_savepoint_record,
    encode_restore,
    encode_restore_plan,
    encode_savepoint,
    notes,
)
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms, to_ms
from crdt_mor.model.names import OWN_KEY
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.restore import RestorePlan


def encode_savepoint_record(savepoint: Savepoint, slices: Iterable[FileSlice]) -> bytes:
    return encode_savepoint(savepoint_record(savepoint, slices))


def savepoint_record(savepoint: Savepoint, slices: Iterable[FileSlice]) -> SavepointRecord:
    paths = [file.path for slice_ in slices for file in slice_.files]
    by = savepoint.author.application if savepoint.author is not None else "crdt_mor"
    comment = f"{savepoint.name}: {savepoint.comment}" if savepoint.comment else savepoint.name
    return SavepointRecord(by, to_ms(savepoint.saved), comment, _by_partition(paths))


def encode_restore_record(plan: RestorePlan) -> bytes:
    restored_to = "" if plan.marks == EPOCH else plan.marks
    return encode_restore_plan([(d.requested, d.action) for d in plan.dropped], restored_to)


def encode_completed_restore(completion: Completion, plan: RestorePlan) -> bytes:
    dropped: dict[Instant, Mapping[str, Sequence[str]]] = {
        (d.requested, d.action): _by_partition(d.files) for d in plan.dropped
    }
    return encode_restore(completion.requested, to_ms(completion.completed) - to_ms(completion.requested), dropped)


def own_savepoint_time(data: bytes, path: str) -> InstantTime | None:
    """Return when our savepoint was made; None if not ours. A damaged file is not ours: we put files whole."""
    try:
        return from_ms(decode_savepoint_record(data, path).saved_ms) if OWN_KEY in notes(data, path) else None
    except FormatError:
        return None


def _by_partition(paths: Iterable[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        found.setdefault(partition, []).append(name)
    return found
