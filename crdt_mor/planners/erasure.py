"""An erasure that is under way: which file groups it goes through, and what is still left to do in each.

    T      the delete is requested: rows of it are gone for readers
    K      no write that was requested before T is pending any more, so that the delete is stable
    C      a base file whose barrier is after K is completed: it holds no byte of the rows, and no carry does
    erased the history of the file groups begins at C, and every older file of them is gone

The keys are not part of it: an erasure must not write down what it removes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crdt_mor.errors import FormatError
from crdt_mor.model.instant import EPOCH, InstantTime, parse
from crdt_mor.model.names import LOG_COMPACT
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_json import WRONG_SHAPE, require_types
from crdt_mor.model.timeline_parts import Completion, FileGroup

FORMAT = 1
"""Version of the JSON of an erasure."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The note of an erasure, put before its delete is committed.

    requested: T. groups: the file groups in which a file may hold the rows, each once.
    """

    requested: InstantTime
    groups: tuple[FileGroup, ...]
    table_id: str | None = None

    def encode(self) -> bytes:
        """JSON."""
        fields = {"format": FORMAT, "requested": self.requested, "table_id": self.table_id, "groups": self.groups}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Erasure:
        """The erasure in an object; raises `FormatError` naming `path`."""
        try:
            stored = json.loads(data)
            if stored["format"] != FORMAT:
                raise FormatError(
                    f"an erasure of a newer release; upgrade crdt-mor. file={path} format={stored['format']}"
                )
            groups = tuple((str(partition), str(file_id)) for partition, file_id in stored["groups"])
            erasure = cls(parse(stored["requested"]), groups, stored["table_id"])
            require_types((erasure,))
            return erasure
        except WRONG_SHAPE as error:
            raise FormatError(f"not an erasure: {error!r}. file={path}") from error


def history_begins(
    completions: Iterable[Completion],
    slices: Iterable[FileSlice],
    stable_at: Mapping[FileGroup, InstantTime],
) -> dict[FileGroup, InstantTime]:
    """For each file group that is done: the completion time from which on no view needs a file that has the rows.

    A file group is done when rows that were deleted, and stable, at K are in neither its base file nor its logs. A
    base file whose barrier is after K was folded when the delete was stable, so that neither it nor a carry beside it
    has the rows or the delete; unless it is a copy of an older one, as a log compaction makes it. And a slice of a base
    file alone holds live rows alone.

    stable_at: K of each file group. slices: the latest. While others go on compacting the answer stays the same: it is
    about the first such base file, and where there is none about the base of the slice.
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
