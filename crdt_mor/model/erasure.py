"""An erasure that is under way: which file groups it goes through, and what is still left to do in each.

    T      the delete is requested: rows of it are gone for readers
    K      no write that was requested before T is pending any more, so that the delete is stable
    C      a base file whose barrier is after K is completed: it holds no byte of the rows, and no carry does. One that
           a log compaction has copied does not count: its bytes are older than its barrier
    erased the history of the file groups begins at C, and every older file of them is gone

The keys are not part of it: an erasure must not write down what it removes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from crdt_mor.errors import FormatError
from crdt_mor.model.instant import InstantTime, parse
from crdt_mor.model.names import LOG_COMPACT
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_json import WRONG_SHAPE
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
            return cls(parse(stored["requested"]), groups, stored["table_id"])
        except WRONG_SHAPE as error:
            raise FormatError(f"not an erasure: {error!r}. file={path}") from error


def copied_bases(completions: Iterable[Completion]) -> set[str]:
    """The paths of base files that may be copies of older ones, as a log compaction makes them."""
    return {file.path for c in completions if c.operation == LOG_COMPACT for file in c.files if file.is_base}


def is_folded(slice_: FileSlice | None, stable_at: InstantTime, copies: Collection[str]) -> bool:
    """Whether the latest slice of a file group holds no byte of rows that were deleted, and stable, at `stable_at`.

    A slice of a base file alone holds live rows alone. A base file with a later barrier was made when the delete was
    stable, so that neither the base nor its carry has the rows or the delete; unless it is a copy.

    copies: the `copied_bases` of the completions in which the slice's files are.
    """
    if slice_ is None:
        return True
    base = slice_.base
    return base is not None and (not slice_.logs or (base.name.instant > stable_at and base.path not in copies))


def history_begins(
    completions: Iterable[Completion], slices: Collection[FileSlice], stable_at: Mapping[FileGroup, InstantTime]
) -> dict[FileGroup, InstantTime]:
    """For each file group that `is_folded`: the completion time from which on no view needs a file that has the rows.

    stable_at: K of each file group. The answer stays the same while others go on compacting: it is about the first base
    file with a later barrier that is no copy, and where there is none about the base of the slice.
    """
    bases: dict[FileGroup, list[tuple[InstantTime, InstantTime]]] = {}
    made: dict[FileGroup, list[tuple[InstantTime, InstantTime]]] = {}
    for c in completions:
        for file in c.files:
            if file.is_base and file.group in stable_at:
                bases.setdefault(file.group, []).append((file.name.instant, c.completed))
                if c.operation != LOG_COMPACT:
                    made.setdefault(file.group, []).append((file.name.instant, c.completed))
    marks = {}
    for slice_ in slices:
        if slice_.group in stable_at and slice_.base is not None:
            group, current = slice_.group, slice_.base.name.instant
            later = [base for base in made.get(group, []) if base[0] > stable_at[group]]
            marks[group] = min(later)[1] if later else max(base for base in bases[group] if base[0] == current)[1]
    return marks
