"""The store of a small world: a plain value, what its files mean, and the steps that only actors here have."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

from crdt_mor.format.commit import CommitMetadata, encode_commit
from crdt_mor.hudi.actions import ACTIONS, PlannedAction
from crdt_mor.hudi.projection import Projector
from crdt_mor.log.paths import VERSIONS, segment_path
from crdt_mor.log.steps import Put
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.names import OWN_KEY, BaseFileName, TimelineFileName, data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decode_segment
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.store.protocol import Stat

Objects = tuple[tuple[str, Hashable], ...]
"""A store as a value: (path, content), sorted. Paths that begin with `!` are the search's own notes."""

LOG, FAULTS, FLYING = "!log", "!faults", "!flying"
LATE = "!late"
"""Files of plans, in Hudi's timeline or their outputs, that were put after the plan had been cancelled."""


class Violation(AssertionError):  # noqa: N818
    """A promise that does not hold in a state that can be reached."""


@dataclass(frozen=True, slots=True)
class Pick:
    """-> (tail, instant): any write that is pending, or plan that is open, right now. Blocks while there is none."""

    plan: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    """-> None, after everything in the store is removed."""


@dataclass(frozen=True, slots=True)
class Saw:
    """A reader went from one value to another. Checked on the spot, no scheduling point."""

    before: Timeline | None
    after: Timeline
    shown: tuple[Completion, ...] | None = None
    """All completions that it read of `after`, those of segments included; None where it read no segment."""


_OWN = encode_commit(CommitMetadata(stats={}, extra={OWN_KEY: "1"}))


class FakeProjector(Projector):
    """The real one, but that completed files hold our key alone: their names are what matters here."""

    def __init__(self) -> None:
        super().__init__(TableConfig("t", KeySpec(("id",)), buckets=1))

    def _completed(self, completion: Completion, schema: str) -> bytes:
        return _OWN


PROJECTOR = FakeProjector()
HUDI = PROJECTOR.folder


def begun_paths(requested: InstantTime) -> tuple[str, str]:
    asked, inflight = PROJECTOR.pending_paths(requested, "deltacommit")
    return asked, inflight


def planned_actions() -> list[PlannedAction[Any]]:
    """The actions whose instants begin with a plan."""
    return [action for action in ACTIONS.values() if isinstance(action, PlannedAction)]


def completed_path(completion: Completion) -> str:
    return PROJECTOR.path(completed_name(completion))


def is_version(put: Put) -> bool:
    """For `faulty` of a world in which puts of versions alone may be hit by a fault."""
    return put.path.startswith(VERSIONS)


@cache
def decoded(data: bytes) -> Timeline:
    """Values are immutable, so equal bytes may share one."""
    return Timeline.decode(data, "")


@cache
def stat_of(path: str) -> Stat:
    return Stat(path, 0, 0)


def listed(objects: dict[str, Any], folder: str) -> list[Stat]:
    return [stat_of(path) for path in sorted(objects) if path.rpartition("/")[0] == folder]


def walked(objects: dict[str, Any]) -> list[Stat]:
    return [stat_of(path) for path in sorted(objects) if not path.startswith((".hoodie", "!"))]


def removed(objects: dict[str, Any], path: str) -> dict[str, Any]:
    """The store after a deletion."""
    after = {p: data for p, data in objects.items() if p != path}
    return {**after, LATE: tuple(late for late in objects[LATE] if late != path)}


def completions_of(value: Timeline, objects: dict[str, Any]) -> list[Completion]:
    """All completions of a value, those of its segments included, in the order in which they were published."""
    found = list(value.completions)
    for segment in value.segments:
        data = objects.get(segment_path(segment.name))
        if data is None:
            raise Violation(f"version {value.version} names a segment that is not there: {segment.name}")
        sealed = sealed_in(data)
        if (segment.first, segment.last, segment.count) != (sealed[0].completed, sealed[-1].completed, len(sealed)):
            raise Violation(f"a version says of a segment what is not so: {segment}")
        found += sealed
    return sorted(found, key=lambda completion: completion.version)


@cache
def sealed_in(data: bytes) -> tuple[Completion, ...]:
    """The completions of a segment."""
    return decode_segment(data, "")


def barriers_kept(value: Timeline, objects: dict[str, Any]) -> set[InstantTime]:
    """The plans that are open or completed."""
    return {p.barrier for p in value.plans} | {c.requested for c in completions_of(value, objects)}


@cache
def barrier_of(path: str) -> InstantTime | None:
    """The barrier of the plan that a file is of, until it is completed: one in Hudi's timeline, or an output."""
    data = data_file_name(path)
    if data is not None:
        return data.instant if isinstance(data, BaseFileName) else None
    name = TimelineFileName.parse(path.rpartition("/")[2])
    if name is None or name.state == "completed":
        return None
    return name.requested if isinstance(ACTIONS.get(name.action), PlannedAction) else None


def stood(objects: dict[str, bytes]) -> dict[str, Any]:
    """Objects with the search's own notes: a store as a world begins with it."""
    versions = sorted(path for path in objects if path.startswith(VERSIONS))
    return {**objects, LOG: tuple(objects[path] for path in versions), FAULTS: 0, FLYING: None, LATE: ()}


def settled(objects: dict[str, Any]) -> dict[str, bytes]:
    """A store without the notes, in which all versions but the newest are gone."""
    versions = sorted(path for path in objects if path.startswith(VERSIONS))
    return {path: data for path, data in objects.items() if path[0] != "!" and path not in versions[:-1]}


@cache
def begins_in(log: tuple[bytes, ...]) -> dict[str, set[str]]:
    """The requested times of the writes that have begun and were not given up, by the nonce of their begin."""
    found: dict[str, set[str]] = {}
    values = [decoded(data) for data in log]
    given_up = {rolled_back.requested for value in values for rolled_back in value.rolled_back}
    for begun in (pending for value in values for pending in value.pending if pending.requested not in given_up):
        found.setdefault(begun.nonce, set()).add(begun.requested)
    return found


def check_begins(objects: dict[str, Any]) -> None:
    """Raise `Violation` where a write has begun twice. One that was given up may begin again: nobody has had it."""
    twice = {nonce: times for nonce, times in begins_in(objects[LOG]).items() if len(times) > 1}
    if twice:
        raise Violation(f"a write has begun twice: {twice}")
