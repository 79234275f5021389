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
from crdt_mor.events.sweep import upkeep
from crdt_mor.events.write import ended_error
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.outcome import ValueOf
from crdt_mor.log.paths import heartbeat_path
from crdt_mor.log.steps import GetStat, Now, Steps, Wait
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
        "an update computes from all that was written before it, and a write that began before it is still under way. "
        "Nothing was written. A long write that says what it touches, transaction(partitions=[...]) or "
        "plan_write(..., partitions=[...]), or columns=[...], is not waited for by updates that read others. Update "
        "again when that write has ended"
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
    """The error of an update that has waited in vain: names the oldest of the writes before it, and its silence."""
    oldest = before[0]
    beat = yield GetStat(heartbeat_path(oldest.requested))
    heard_ms = oldest.begun_ms if beat is None else beat.modified_ms
    now_ms: int = yield Now()
    is_hudis = oldest.version == 0  # which is no part of a version
    where = (
        "Hudi's own timeline has this write"
        if is_hudis
        else "table.inspect.pending() lists such writes. If the process of that write is dead, roll it back: "
        f"table.maintenance.roll_back({oldest.requested!r})"
    )
    silent = "unknown" if heard_ms is None else f"{max(0, now_ms - heard_ms) / 1000:g}"
    return EarlierWritePendingError(
        f"{why}, or wait longer, wait=timedelta(...); {where}. requested={oldest.requested} {_names(oldest)} "
        f"since={to_datetime(oldest.requested):%Y-%m-%d %H:%M:%S} UTC silent_s={silent} "
        f"writes={len(before)} waited_s={wait_ms / 1000:g}"
    )


def _names(write: Pending) -> str:
    """Who has begun a write: its application, host and process."""
    author = write.author
    return "by=an unknown program" if author is None else f"by={author.application} host={author.host} pid={author.pid}"
