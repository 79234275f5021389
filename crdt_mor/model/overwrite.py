"""What an overwrite covers, ours or one of Hudi's, and what is noted of it for writes that began before it.

scope      all of the table, or some partitions, by their paths: also of file groups that do not exist yet
barrier    the moment of the overwrite in the order of requested times: what was requested before it is void there
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
    """Which rows an overwrite replaces. partitions: those of these partition paths, sorted; None: all of the table."""

    partitions: tuple[str, ...] | None = None

    def covers(self, partition: str) -> bool:
        """Whether the rows of a partition are replaced."""
        return self.partitions is None or partition in self.partitions

    def includes(self, other: Scope) -> bool:
        """Whether whatever the other scope covers is covered by this one."""
        if self.partitions is None or other.partitions is None:
            return self.partitions is None
        return set(other.partitions) <= set(self.partitions)


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class Overwrite:
    """An overwrite that voids files of writes which are still pending: each that was requested before the barrier."""

    barrier: InstantTime
    scope: Scope


OVERWRITE_TABLE: Final = "INSERT_OVERWRITE_TABLE"
OVERWRITE: Final = "INSERT_OVERWRITE"
DELETE_PARTITION: Final = "DELETE_PARTITION"
OPERATIONS: Final = frozenset({OVERWRITE_TABLE, OVERWRITE, DELETE_PARTITION})
"""What Hudi calls these operations. Its readers are told of a compaction: a replacecommit would hide later writes."""


def is_replacing(completion: Completion) -> bool:
    """Whether a commit of Hudi's took rows away with the file groups that it replaced: a clustering only moves them."""
    return bool(completion.replaced) and completion.operation in OPERATIONS


def replaced_by(adopted: Iterable[Completion]) -> tuple[Overwrite, ...]:
    """What commits of Hudi's have replaced, as overwrites: all of the table, or the partitions of the file groups."""
    found = (c for c in adopted if is_replacing(c))
    return tuple(Overwrite(c.requested, _scope_replaced(c)) for c in found)


def with_replaced(overwrites: Iterable[Overwrite], adopted: Iterable[Completion]) -> tuple[Overwrite, ...]:
    """Overwrites, and what commits of Hudi's have replaced, in the order of their barriers."""
    return tuple(sorted((*overwrites, *replaced_by(adopted)), key=lambda o: o.barrier))


def _scope_replaced(completion: Completion) -> Scope:
    if completion.operation == OVERWRITE_TABLE:
        return EVERYTHING
    written = {file.partition for file in completion.files}
    return Scope(tuple(sorted({partition for partition, _ in completion.replaced} | written)))


def still_noted(overwrites: Iterable[Overwrite], oldest: InstantTime | None) -> tuple[Overwrite, ...]:
    """The overwrites that void files of writes which are still pending. oldest: of these; None: no write is pending."""
    return tuple(o for o in overwrites if oldest is not None and oldest < o.barrier)


def void_files(value: Timeline, requested: InstantTime, files: Iterable[DataFile]) -> list[DataFile]:
    """Those of a pending write's files that an overwrite of a later barrier covers: they must not be seen."""
    later = [o.scope for o in value.overwrites if o.barrier > requested]
    return [file for file in files if any(scope.covers(file.partition) for scope in later)]


@dataclass(frozen=True, slots=True)
class Overwriting:
    """What the completion of an overwrite says besides its files.

    write: the requested time of the write that the user began, which its rows bear. scope: what it covers.
    """

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
