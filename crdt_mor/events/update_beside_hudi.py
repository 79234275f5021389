"""An update beside Hudi's own writers, which say nothing to a value before they have completed.

A commit of Hudi's has its place by its requested time, as ours have. So an update waits for the writes of Hudi's that
were requested before it and are under way, as it does for ours, and computes from what they have committed. It looks
once its own time is there: a write that Hudi requests from then on comes later.

Hudi gives a write its time some moments before it puts the first file of it, so that a write which Hudi begins at the
very moment of an update is not seen.
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
    """Whether Hudi has requested a write before a time that is under way, or that `value` does not have."""
    projector = publisher.projector
    listed = yield List(projector.folder)
    if (yield from _under_way(value, listed, requested, expiry_ms)):
        return True
    foreign = yield from foreign_completions(projector, value, listed=listed)
    return any(completion.requested < requested for completion in foreign.completions)


def wait_beside_hudi(
    publisher: TablePublisher, known: Timeline, requested: InstantTime, expiry_ms: int, wait_ms: int, meets: Meets
) -> Steps[Timeline]:
    """As `wait_for_earlier`, of writes of Hudi's as well; what they have committed is part of the value."""

    def of_hudi(tail: Timeline) -> Steps[list[Pending]]:
        listed = yield List(publisher.projector.folder)
        return (yield from _under_way(tail, listed, requested, expiry_ms))

    tail = yield from wait_for_earlier(publisher, known, requested, expiry_ms, wait_ms, meets, of_hudi)
    return (yield from adopt(publisher, tail))


def _under_way(value: Timeline, listed: Sequence[Stat], requested: InstantTime, expiry_ms: int) -> Steps[list[Pending]]:
    """The writes of Hudi's that were requested before a time and are under way. listed: Hudi's directory."""
    heard: list[Pending] = yield from heard_of_hudi(begun_files(value, listed), expiry_ms)
    return [pending for pending in heard if pending.requested < requested]
