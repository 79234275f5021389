"""An update in place: its write begins as any other, and waits until all that was requested before it has ended.

    begin     T, its place in the order of writes, is fixed (`events.write`)
    wait      until no write that was requested before T is pending, but for those that have declared at their begin
              that they touch nothing of what is read: from then on nothing of it can come before T any more
    read      what all commits requested before T show, and none requested after it (`Snapshot.before`)
    complete  as any other write

What it commits is so what it computes from exactly the commits that come before it in the order of requested times,
whatever completes when. Nobody's data aborts it, as commits that are requested after T come after it in every merge. No
write waits for it but a later update, and those that it waits for are given up where they are silent. Two updates never
wait for each other: the one that began first waits for neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.events.sweep import last_heard, upkeep
from crdt_mor.events.write import ended_error
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.outcome import ValueOf
from crdt_mor.log.steps import Now, Steps, StoreNow, Wait
from crdt_mor.model.declared import Declared
from crdt_mor.model.instant import InstantTime, to_datetime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending
from crdt_mor.planners.clean import is_commit

PAUSE_MS_MIN: Final = 2
PAUSE_MS_MAX: Final = 1_000
PAUSE_SHARE: Final = 8
"""A pause is this part of the time that has been waited so far: what comes late by it is little beside the wait."""


Meets = Callable[[Declared], bool]
"""Whether a write that has declared this may touch what an update reads."""


def anything_meets(declared: Declared) -> bool:  # noqa: ARG001
    """An update that reads everything, and so waits for all writes."""
    return True


def nobody_else(value: Timeline) -> Steps[list[Pending]]:  # noqa: ARG001
    """No writes beside those of a value."""
    return []
    yield


def earlier(value: Timeline, requested: InstantTime, meets: Meets = anything_meets) -> list[Pending]:
    """The pending writes of a value that were requested before a time, and may touch what an update reads."""
    return [pending for pending in value.pending if pending.requested < requested and meets(pending.declared)]


def commits_before(
    begun: ValueOf, shown: Sequence[Completion], settled: Sequence[Completion], requested: InstantTime
) -> list[Completion]:
    """The completions of the view of a write: all commits that were requested before it, none requested after it.

    begun: the value in which the write began; shown: the completions that it shows. settled: those of a later value,
    in which nothing is pending any more that was requested before the write and touches what it reads. Compactions
    since the begin are left out: they may have folded rows that come after the write.
    """
    known = {completion.requested for completion in shown}
    late = [c for c in settled if c.version > begun.version and c.requested < requested and is_commit(c)]
    return [*shown, *(completion for completion in late if completion.requested not in known)]


def wait_for_earlier(
    publisher: TablePublisher,
    known: Timeline,
    requested: InstantTime,
    expiry_ms: int,
    wait_ms: int,
    meets: Meets = anything_meets,
    others: Callable[[Timeline], Steps[list[Pending]]] = nobody_else,
) -> Steps[Timeline]:
    """The newest value, once no write is pending in it that was requested before this one and touches what it reads.

    others: writes that are no part of a value, and are waited for as well. Raises `EarlierWritePendingError` where that
    lasts for longer than `wait_ms`, and `WriterExpiredError` where the write itself was given up meanwhile.
    """

    def before(tail: Timeline) -> Steps[list[Pending]]:
        if tail.find_pending(requested) is None:
            raise (yield from ended_error(requested, tail))
        ours = earlier(tail, requested, meets)
        return sorted([*ours, *(yield from others(tail))], key=lambda pending: pending.requested)

    why = (
        "an earlier write that the update must wait for is still under way. Nothing was written. Update again when it "
        "has ended. An update does not wait for long writes that declare other partitions= or columns= when they begin"
    )
    return (yield from wait_for_writes(publisher, known, before, expiry_ms, wait_ms, why))


def wait_for_writes(
    publisher: TablePublisher,
    known: Timeline,
    awaited: Callable[[Timeline], Steps[list[Pending]]],
    expiry_ms: int,
    wait_ms: int,
    why: str,
) -> Steps[Timeline]:
    """The newest value, once it has none of the writes pending that are waited for; silent ones are given up.

    awaited: those of a value. Raises `EarlierWritePendingError` where that lasts for longer than `wait_ms`, which says
    why these writes are waited for.
    """
    began: int = yield Now()
    tail = known
    while True:
        tail = yield from upkeep(publisher, tail, expiry_ms)
        before = yield from awaited(tail)
        if not before:
            return tail
        waited_ms: int = (yield Now()) - began
        if waited_ms >= wait_ms:
            raise (yield from _still_pending(before, wait_ms, why))
        pause_ms = min(max(PAUSE_MS_MIN, waited_ms // PAUSE_SHARE), PAUSE_MS_MAX)
        yield Wait(min(pause_ms, wait_ms - waited_ms))


def _still_pending(before: list[Pending], wait_ms: int, why: str) -> Steps[EarlierWritePendingError]:
    """Return the error that names the oldest of the writes that were waited for."""
    oldest = before[0]
    if oldest.version == 0:  # a version of ours has no write of Hudi's
        end = "If its process is dead, roll it back with Hudi: Hudi's own timeline has this write"
        heard_ms = None
    else:
        end = f'If its process is dead, end the write with maintenance.roll_back("{oldest.requested}")'
        heard_ms = yield from last_heard(oldest)
    silent = "" if heard_ms is None else f"silent_s={max(0, (yield StoreNow()) - heard_ms) / 1000:.0f} "
    author, declared = oldest.author, oldest.declared
    who = "unknown" if author is None else author.application
    process = f"pid={author.pid} host={author.host} " if author is not None and author.host else ""
    scope = "".join(
        f"{kind}={list(names)} "
        for kind, names in (("partitions", declared.partitions), ("columns", declared.columns))
        if names is not None
    )
    return EarlierWritePendingError(
        f"{why}. {end}; to wait longer, pass wait=timedelta(minutes=10). "
        f"requested={oldest.requested} by={who} since={to_datetime(oldest.requested):%Y-%m-%d %H:%M:%S} UTC "
        f"{silent}{process}{scope}writes={len(before)} waited_s={wait_ms / 1000:g}"
    )
