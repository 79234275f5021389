"""Erasures in progress: their file groups, and the work left in each.

    T      the delete is requested: readers no longer see the rows
    K      no write requested before T is pending, so the delete is stable
    C      a base file with a barrier after K is completed: neither it nor a carry contains a byte of the rows
    erased the file groups' history begins at C, and all their older files are gone

The note omits the keys: an erasure must not write down the data that it removes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crdt_mor.model.instant import EPOCH, InstantTime, parse
from crdt_mor.model.names import LOG_COMPACT
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_json import decoding_plan, require_types
from crdt_mor.model.timeline_parts import Completion, FileGroup

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Erasure:
    """The note of an erasure, put before its delete is committed.

    Attributes:
        requested: T.
        groups: file groups with files that may contain the rows.
    """

    requested: InstantTime
    groups: tuple[FileGroup, ...]
    table_id: str | None = None

    def encode(self) -> bytes:
        fields = {"format": FORMAT, "requested": self.requested, "table_id": self.table_id, "groups": self.groups}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Erasure:
        with decoding_plan(data, path, "an erasure", [FORMAT]) as stored:
            groups = tuple((str(partition), str(file_id)) for partition, file_id in stored["groups"])
            erasure = cls(parse(stored["requested"]), groups, stored["table_id"])
            require_types((erasure,))
            return erasure


def history_begins(
    completions: Iterable[Completion],
    slices: Iterable[FileSlice],
    stable_at: Mapping[FileGroup, InstantTime],
) -> dict[FileGroup, InstantTime]:
    """Return, for each finished file group, the completion time from which no view needs a file with the rows.

    A group is finished when neither base file nor logs contain rows that were deleted, and stable, at K. A base file
    with a barrier after K was folded after the delete was stable, so it and its carry are clean, unless a log
    compaction copied it. A slice with only a base file contains only live rows. The first such base file counts, or
    else the slice's base, so concurrent compactions do not change the answer.

    Args:
        stable_at: K of each file group.
    """
    bases: dict[FileGroup, list[tuple[InstantTime, InstantTime, str]]] = {group: [] for group in stable_at}
    replaced: dict[FileGroup, InstantTime] = {}
    for c in completions:
        replaced |= dict.fromkeys(c.replaced, c.completed)
        for file in c.files:
            if file.is_base and file.group in stable_at:
                bases[file.group].append((file.name.instant, c.completed, c.operation))
    latest = {slice_.group: slice_ for slice_ in slices}
    begins: dict[FileGroup, InstantTime] = {}
    for group, since in stable_at.items():
        slice_ = latest.get(group)
        folded = (base for base in bases[group] if base[0] > since and base[2] != LOG_COMPACT)
        first = min(folded, default=(since, None))[1]
        if first is None and slice_ is not None and slice_.base is not None and not slice_.logs:
            first = max(completed for barrier, completed, _ in bases[group] if barrier == slice_.base.name.instant)
        if first is not None:
            begins[group] = first
        elif slice_ is None:
            begins[group] = replaced.get(group, EPOCH)
    return begins
