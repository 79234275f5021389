"""Update rows in place: the write begins, then waits until all earlier writes have ended.

    begin     fix T, the place in the order of writes (`events.write`)
    wait      until no write before T is pending. Writes that declared other rows or columns are not waited for. After
              that, no commit before T can change the rows to read
    read      all commits requested before T, and none requested after (`Snapshot.before`)
    complete  like any other write

No commit aborts an update, as later requests follow T in every merge. Only later updates wait for an update, so two
updates never wait for each other. Silent writes are given up.
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
from crdt_mor.model.declared import Declared, in_words
from crdt_mor.model.instant import InstantTime, to_datetime, to_ms
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending
from crdt_mor.planners.clean import is_commit

PAUSE_MS_MIN: Final = 2
PAUSE_MS_MAX: Final = 1_000
PAUSE_SHARE: Final = 8
"""A pause is this part of the time waited so far, so the delay is small beside the wait."""


Meets = Callable[[Declared], bool]
"""Returns True if a write with this declaration may touch rows that the update reads."""


def anything_meets(declared: Declared) -> bool:  # noqa: ARG001
    return True


def nobody_else(value: Timeline) -> Steps[list[Pending]]:  # noqa: ARG001
    return []
    yield


def earlier(value: Timeline, requested: InstantTime, meets: Meets = anything_meets) -> list[Pending]:
    return [pending for pending in value.pending if pending.requested < requested and meets(pending.declared)]


def commits_before(
    begun: ValueOf, shown: Sequence[Completion], completed_since: Sequence[Completion], requested: InstantTime
) -> list[Completion]:
    """Return the commits before an update: those shown at its begin, and the `completed_since` commits since.

    Compactions since the begin are left out: they may contain later rows.
    """
    shown_instants = {completion.requested for completion in shown}
    late = [c for c in completed_since if c.version > begun.version and c.requested < requested and is_commit(c)]
    return [*shown, *(completion for completion in late if completion.requested not in shown_instants)]


def wait_for_earlier(
    publisher: TablePublisher,
    known_tail: Timeline,
    requested: InstantTime,
    expiry_ms: int,
    wait_ms: int,
    meets: Meets = anything_meets,
    others: Callable[[Timeline], Steps[list[Pending]]] = nobody_else,
    begun_ms: int | None = None,
) -> Steps[Timeline]:
    """Wait until no earlier write that touches the read rows is pending.

    others: returns writes outside the value to wait for. begun_ms: this process's clock at the begin of the update,
    from which `wait_ms` counts; None: from now. Raises `EarlierWritePendingError` after `wait_ms`, and
    `WriterExpiredError` if this write was given up.
    """

    def before(tail: Timeline) -> Steps[list[Pending]]:
        if tail.find_pending(requested) is None:
            raise (yield from ended_error(requested, tail))
        ours = earlier(tail, requested, meets)
        return sorted([*ours, *(yield from others(tail))], key=lambda pending: pending.requested)

    why = (
        "an earlier write that the update must wait for is still running. Nothing was written. Update again after "
        "that write. An update does not wait for long writes that declare other partitions= or columns= when they "
        "begin"
    )
    return (yield from wait_for_writes(publisher, known_tail, before, expiry_ms, wait_ms, why, begun_ms))


def wait_for_writes(
    publisher: TablePublisher,
    known_tail: Timeline,
    awaited: Callable[[Timeline], Steps[list[Pending]]],
    expiry_ms: int,
    wait_ms: int,
    why: str,
    begun_ms: int | None = None,
) -> Steps[Timeline]:
    """Wait until no awaited write is pending, and give up silent writes. Raises `EarlierWritePendingError`."""
    began: int = (yield Now()) if begun_ms is None else begun_ms
    tail = known_tail
    while True:
        tail = yield from upkeep(publisher, tail, expiry_ms)
        before = yield from awaited(tail)
        if not before:
            return tail
        waited_ms: int = (yield Now()) - began
        if waited_ms >= wait_ms:
            raise (yield from _still_pending(before, tail, wait_ms, why))
        pause_ms = min(max(PAUSE_MS_MIN, waited_ms // PAUSE_SHARE), PAUSE_MS_MAX)
        yield Wait(min(pause_ms, wait_ms - waited_ms))


def _still_pending(before: list[Pending], tail: Timeline, wait_ms: int, why: str) -> Steps[EarlierWritePendingError]:
    oldest = before[0]
    began_ms = to_ms(oldest.requested) if oldest.begun_ms is None else oldest.begun_ms
    now_ms: int = yield StoreNow()
    if oldest.version == 0:  # our versions contain no pending writes of Hudi
        end = "If its process is dead, roll it back with Hudi: Hudi's own timeline contains this write"
        heard_ms = None
    else:
        end = f'If its process is dead, end the write with maintenance.roll_back("{oldest.requested}")'
        heard_ms = yield from last_heard(oldest)
    silent = "" if heard_ms is None else f"silent_s={max(0, now_ms - heard_ms) / 1000:.0f} "
    author, age_s = oldest.author, max(0, now_ms - began_ms) / 1000
    who = "unknown" if author is None else author.application
    process = f"pid={author.pid} host={author.host} " if author is not None and author.host else ""
    scope = in_words(oldest.declared, tail.names.shown)
    return EarlierWritePendingError(
        f"{why}. Application {who!r} began the write {age_s:.0f} s ago, and it may write {scope}. "
        f"{end}; to wait longer, pass wait=timedelta(minutes=10). "
        f"requested={oldest.requested} by={who} since={to_datetime(oldest.requested):%Y-%m-%d %H:%M:%S} UTC "
        f"{silent}{process}writes={len(before)} waited_s={wait_ms / 1000:g}"
    )
