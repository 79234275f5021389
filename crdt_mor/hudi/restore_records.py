"""What stands in the files of savepoints and restores in Hudi's timeline: records of Hudi's, each with our key."""

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
    """The bytes of the files of a savepoint, whose moment shows these slices."""
    return encode_savepoint(savepoint_record(savepoint, slices))


def savepoint_record(savepoint: Savepoint, slices: Iterable[FileSlice]) -> SavepointRecord:
    """What a savepoint keeps: the files of these slices, which its moment shows."""
    paths = [file.path for slice_ in slices for file in slice_.files]
    by = savepoint.author.application if savepoint.author is not None else "crdt_mor"
    comment = f"{savepoint.name}: {savepoint.comment}" if savepoint.comment else savepoint.name
    return SavepointRecord(by, to_ms(savepoint.saved), comment, _by_partition(paths))


def encode_restore_record(plan: RestorePlan) -> bytes:
    """A restore's plan, which names the instants that it drops."""
    restored_to = "" if plan.marks == EPOCH else plan.marks
    return encode_restore_plan([(d.requested, d.action) for d in plan.dropped], restored_to)


def encode_completed_restore(completion: Completion, plan: RestorePlan) -> bytes:
    """What a restore dropped, and the files that went with it."""
    dropped: dict[Instant, Mapping[str, Sequence[str]]] = {
        (d.requested, d.action): _by_partition(d.files) for d in plan.dropped
    }
    return encode_restore(completion.requested, to_ms(completion.completed) - to_ms(completion.requested), dropped)


def own_savepoint_time(data: bytes, path: str) -> InstantTime | None:
    """When the savepoint was made that a file in Hudi's timeline is of, if it is one of ours; None if it is not.

    We put files whole, so that a damaged one is not ours.
    """
    try:
        return from_ms(decode_savepoint_record(data, path).saved_ms) if OWN_KEY in notes(data, path) else None
    except FormatError:
        return None


def _by_partition(paths: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The names of files by their partition path."""
    found: dict[str, list[str]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        found.setdefault(partition, []).append(name)
    return found
