"""Update a table while Hudi's own writers run. A value contains Hudi's writes only after they complete.

Hudi's directory is listed after the update fixes its time, so later Hudi writes are requested later. Hudi chooses a
write's time shortly before the first file appears. So an update misses a Hudi write that begins at the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.events.update import Meets, wait_for_earlier
from crdt_mor.hudi.adoption import adopt, foreign_completions
from crdt_mor.hudi.adoption_pending import begun_files, heard_of_hudi
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import List, Steps
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.store.protocol import Stat


def is_beside_hudi(publisher: TablePublisher, value: Timeline, requested: InstantTime, expiry_ms: int) -> Steps[bool]:
    """Return True if Hudi requested an earlier write that is running or missing from `value`."""
    projector = publisher.projector
    listed = yield List(projector.folder)
    if (yield from _under_way(value, listed, requested, expiry_ms)):
        return True
    foreign = yield from foreign_completions(projector, value, listed=listed)
    return any(completion.requested < requested for completion in foreign.completions)


def wait_beside_hudi(
    publisher: TablePublisher,
    known_tail: Timeline,
    requested: InstantTime,
    expiry_ms: int,
    wait_ms: int,
    meets: Meets,
    begun_ms: int | None = None,
) -> Steps[Timeline]:
    """Wait as `wait_for_earlier`, also for Hudi's writes, and adopt their commits."""

    def of_hudi(tail: Timeline) -> Steps[list[Pending]]:
        listed = yield List(publisher.projector.folder)
        return (yield from _under_way(tail, listed, requested, expiry_ms))

    tail = yield from wait_for_earlier(publisher, known_tail, requested, expiry_ms, wait_ms, meets, of_hudi, begun_ms)
    return (yield from adopt(publisher, tail))


def _under_way(value: Timeline, listed: Sequence[Stat], requested: InstantTime, expiry_ms: int) -> Steps[list[Pending]]:
    heard: list[Pending] = yield from heard_of_hudi(begun_files(value, listed), expiry_ms)
    return [pending for pending in heard if pending.requested < requested]
