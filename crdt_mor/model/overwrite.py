"""The scopes of overwrites, ours or Hudi's, for writes that began before them.

scope      the whole table, or partitions by path, including future file groups
barrier    in the scope, files of writes requested before it are void
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from crdt_mor.model.instant import InstantTime

if TYPE_CHECKING:
    from crdt_mor.model.timeline import Timeline
    from crdt_mor.model.timeline_parts import Completion, DataFile


@dataclass(frozen=True, slots=True)
class Scope:
    """The replaced partition paths, sorted. None: the whole table."""

    partitions: tuple[str, ...] | None = None

    def covers(self, partition: str) -> bool:
        return self.partitions is None or partition in self.partitions

    def includes(self, other: Scope) -> bool:
        if self.partitions is None or other.partitions is None:
            return self.partitions is None
        return set(other.partitions) <= set(self.partitions)


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class Overwrite:
    barrier: InstantTime
    scope: Scope


OVERWRITE_TABLE: Final = "INSERT_OVERWRITE_TABLE"
OVERWRITE: Final = "INSERT_OVERWRITE"
DELETE_PARTITION: Final = "DELETE_PARTITION"
OPERATIONS: Final = frozenset({OVERWRITE_TABLE, OVERWRITE, DELETE_PARTITION})
"""Hudi's names. We report them as compactions, because a replacecommit would hide later writes."""


def is_replacing(completion: Completion) -> bool:
    """Return True if a commit of Hudi removed rows with file groups. A clustering only moves them."""
    return bool(completion.replaced) and completion.operation in OPERATIONS


def replaced_by(adopted: Iterable[Completion]) -> tuple[Overwrite, ...]:
    """Return Hudi's replacing commits as overwrites."""
    found = (c for c in adopted if is_replacing(c))
    return tuple(Overwrite(c.requested, _scope_replaced(c)) for c in found)


def with_replaced(overwrites: Iterable[Overwrite], adopted: Iterable[Completion]) -> tuple[Overwrite, ...]:
    """Add Hudi's replacing commits, sorted by barrier."""
    return tuple(sorted((*overwrites, *replaced_by(adopted)), key=lambda o: o.barrier))


def _scope_replaced(completion: Completion) -> Scope:
    if completion.operation == OVERWRITE_TABLE:
        return EVERYTHING
    written = {file.partition for file in completion.files}
    return Scope(tuple(sorted({partition for partition, _ in completion.replaced} | written)))


def still_noted(overwrites: Iterable[Overwrite], oldest: InstantTime | None) -> tuple[Overwrite, ...]:
    return tuple(o for o in overwrites if oldest is not None and oldest < o.barrier)


def void_files(value: Timeline, requested: InstantTime, files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files of a pending write that a later overwrite covers. Nobody may see them."""
    later = [o.scope for o in value.overwrites if o.barrier > requested]
    return [file for file in files if any(scope.covers(file.partition) for scope in later)]


@dataclass(frozen=True, slots=True)
class Overwriting:
    """The completion of an overwrite. write: the requested time of the user's write, as in its rows."""

    write: InstantTime
    scope: Scope


def overwrite_json(overwrite: Overwrite) -> list[object]:
    return [overwrite.barrier, overwrite.scope.partitions]


def overwrite_of(entry: list[Any]) -> Overwrite:
    barrier, partitions = entry
    return Overwrite(barrier, _scope_of(partitions))


def overwriting_json(overwriting: Overwriting) -> dict[str, object]:
    return {"write": overwriting.write, "partitions": overwriting.scope.partitions}


def overwriting_of(entry: Mapping[str, Any]) -> Overwriting:
    return Overwriting(entry["write"], _scope_of(entry["partitions"]))


def _scope_of(partitions: list[Any] | None) -> Scope:
    listed = isinstance(partitions, list) and all(isinstance(partition, str) for partition in partitions)
    if partitions is not None and not listed:
        raise TypeError(f"partitions of an overwrite. {partitions=}")
    return Scope(None if partitions is None else tuple(partitions))
