"""The scopes of overwrites, ours or Hudi's, for writes that began before them.

scope      the whole table, or partitions by path, including future file groups
barrier    in the scope, files of writes requested before it are void
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.model.instant import InstantTime


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


def still_noted(overwrites: Iterable[Overwrite], oldest: InstantTime | None) -> tuple[Overwrite, ...]:
    return tuple(o for o in overwrites if oldest is not None and oldest < o.barrier)


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
