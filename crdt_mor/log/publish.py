"""Publishing: one value of the timeline follows another, by put-if-absent alone.

    publish      loop:  tail ─ derive the next value ─ help project the tail's events ─ put version n+1
                        lost or unsure: pause, look at the new tail, derive again
    project      a projector tells others of the event, put-if-absent (`log.projection`)

The rules that make it correct. Leaving out any one of them makes `tests/simulation/test_small_world.py` fail:

  1. One terminal event per instant: `complete` and `roll_back` derive only from a value in which it is pending.
  2. Help before you publish: version n is projected before n+1 is put, so what others are told never has a hole.
  3. Own it before any side effect: after a put that failed, read back, it may be ours; after one that succeeded,
     version n must still be there, else the object may be a ghost below the tail (deletion is oldest first). What was
     read back, or put by somebody else, is made durable before it is acknowledged or built upon.
  4. Acknowledge last, after one's own projection.

The first event of a table that was made without an id gives it one, which is its nonce. A process that loses that race
derives again from a value that has the id.

What is true of every version and the one that follows it is stated in `model.invariants`, and asked before each put.

An event whose outcome the tail holds already derives nothing (`None`), so a process that is unsure starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from crdt_mor.errors import (
    ClockError,
    CommitUnknownError,
    CrdtMorError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
)
from crdt_mor.ground.observing import Tell, tell_nobody
from crdt_mor.ground.observing_events import RaceLostEvent
from crdt_mor.log.combining import Crowd, Posting
from crdt_mor.log.deciding import deciding, stopped_outcome, unknown_outcome
from crdt_mor.log.intents import Intent
from crdt_mor.log.outcome import newer_value
from crdt_mor.log.paths import version_path
from crdt_mor.log.projection import EventProjector, Projected, look_again, project, wait_for_projection
from crdt_mor.log.segments import Contents, SegmentGoneError, discard, seal, with_file_ids
from crdt_mor.log.steps import PUTS_MAX, Delete, MakeDurable, Nonce, Now, Put, Read, Steps, StoreNow
from crdt_mor.log.tail import Tail, expire_versions, find_tail, still_stands
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.model.invariants import require_invariants, require_sealed
from crdt_mor.model.timeline import Timeline

EXPIRE_EVERY = 32
"""A publisher whose version is a multiple of this deletes the versions that are too old. Readers delete nothing."""

CLOCK_AHEAD_MAX_MS = 60_000
"""How far a writer's wall clock may be ahead of the store's clock when it moves the table's clock.

A wall clock that is behind the store's or the table's clock does no harm, however wrong it is: it moves nothing."""

Derive = Callable[[Timeline, int], Timeline | Steps[Timeline | None] | None]
"""(tail, wall clock in ms) -> the next value, or None if the tail holds the event's outcome already.

A plain function where the tail says everything; a generator of steps where something has to be looked up for it.
"""


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """How a process saves requests when it publishes: by what it knows before, does afterwards, or leaves to others.

    looked: the value that it goes by was the tail a moment ago, so that the put itself tells whether it still is.
    helped: a version that it knows to be projected; -1: it knows of none.
    store_ms: a time that the store's clock has reached; None: it knows of none.
    late: where it is noted which files were put, for `look_again`; None: whether they came too late is seen at once.
    crowd: with it an intent may be published with others', or by others: see `log.combining`.
    """

    looked: bool = False
    helped: int = -1
    store_ms: int | None = None
    late: list[Projected] | None = None
    crowd: Crowd | None = None

    @property
    def is_far(self) -> bool:
        """Whether every round trip counts, so that what may not be needed is asked for beside what is."""
        return self.late is not None

    def after_a_look(self, store_ms: int | None) -> Shortcuts:
        """The same of a process that has found the tail just now, and noted the store's clock."""
        return replace(self, looked=True, store_ms=store_ms)


NO_SHORTCUTS = Shortcuts()


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes the events of one table, and has a projector tell others of them.

    tell: is told of what happened, once it has; nothing here depends on it.
    """

    projector: EventProjector
    tell: Tell = tell_nobody

    def publish(
        self,
        derive: Derive,
        known: Timeline | None = None,
        shortcuts: Shortcuts = NO_SHORTCUTS,
        intent: Intent | None = None,
        wall_ms: int | None = None,
    ) -> Steps[Tail]:
        """Publish one event; the value returned is genuine and projected, and holds the event's outcome.

        It may be of a later version than the event's: see `log.outcome.value_of`.

        intent: the same event as a value, which may be posted.
        wall_ms: the time to which the event moves the table's clock, where that is not the wall clock's. The store's
            clock has passed it.
        """
        assert known is not None or not shortcuts.looked
        tail = known if known is not None and shortcuts.looked else (yield from find_tail(known))
        posting = Posting(intent, shortcuts.crowd)
        try:
            return (yield from self._publish(derive, tail, posting, shortcuts, wall_ms))
        except StorageUnavailableError as error:
            if posting.attempt == 0 and not posting.is_posted:
                raise
            raise unknown_outcome(error) from error
        except CrdtMorError as error:
            if not posting.is_posted and not posting.may_land:
                raise
            yield from posting.withdraw()
            if isinstance(error, CommitUnknownError | TableReplacedError | TableNotFoundError):
                raise
            raise stopped_outcome(error) from error

    def _publish(
        self, derive: Derive, tail: Timeline, posting: Posting, shortcuts: Shortcuts, wall_ms: int | None
    ) -> Steps[Tail]:
        """As `publish`, from the newest version that is known."""
        segments: Contents = {}
        unmade = 0
        while True:
            own: list[str] = []
            try:
                time_ms = (yield from wall_clock(tail, shortcuts.store_ms)) if wall_ms is None else wall_ms
                event = yield from _derived(derive, tail, time_ms)
                if event is not None and not (yield from posting.is_turn(tail, may_land=unmade > 0)):
                    yield from posting.leave_to_others(tail)
                    tail = yield from find_tail(tail)
                    continue
                posting.may_land |= event is None and posting.attempt > 0  # it has landed, or has ended otherwise
                if tail.version != shortcuts.helped:
                    told = posting.is_posted and (yield from wait_for_projection(self.projector, tail))
                    if not told:
                        yield from self.help_project(tail)
                if event is None:
                    yield from posting.end(published=False)
                    return Tail(tail)
                event = yield from posting.with_others(tail, event, time_ms)
                value = yield from next_version(tail, event, segments, own)
            except SegmentGoneError:
                tail = yield from newer_value(tail)  # this process slept while many were published
                continue
            owned = yield from claim(tail, value)
            posting.attempt += 1
            posting.may_land = True
            if owned is not None:
                yield from self.project(owned, own=True, late=shortcuts.late)
                if not shortcuts.is_far:  # else it is done with the late looks
                    yield from expire_in_turn(owned)
                yield from posting.end(published=True)
                return Tail(owned)
            self.tell(RaceLostEvent(version=value.version, attempt=posting.attempt))
            if own and (yield from _has_lost(tail, value)):
                yield from discard(own)
            yield from posting.pause(tail)
            newest = yield from self.next_tail(tail, value)
            unmade = unmade + 1 if newest.version == tail.version else 0
            posting.may_land = unmade > 0
            if unmade == PUTS_MAX:
                raise _never_made(value)
            tail = newest

    def next_tail(self, tail: Timeline, lost: Timeline) -> Steps[Tail]:
        """The tail after a put that did not succeed.

        If the table was replaced or removed, `lost` is deleted: it may stand above the tail of the table that is there
        now. If the table is still there, and only a version of an earlier table stands above its tail, then `lost` may
        become part of it yet.
        """
        try:
            return (yield from find_tail(tail))
        except (TableReplacedError, TableNotFoundError) as error:
            if (yield from still_stands(tail)):
                raise CommitUnknownError(
                    "a process that has an earlier table of this place open writes here, so that it is not known "
                    "whether this write is visible: look at the table before writing again, or write with a token, "
                    f"which may be repeated. cause={error}"
                ) from error
            path = version_path(lost.version)
            data = yield Read(path)
            if data is not None and lost.is_in(data):
                yield Delete(path)
            raise

    def help_project(self, tail: Timeline) -> Steps[list[str]]:
        """Rule 2: the publisher that follows a version makes sure that its events are projected.

        Returns the paths of the files that were missing.
        """
        yield MakeDurable(version_path(tail.version))
        return (yield from self.project(tail))

    def project(
        self, value: Timeline, *, own: bool = False, after: Sequence[str] = (), late: list[Projected] | None = None
    ) -> Steps[list[str]]:
        """Tell others of a version's own events, in files: as `log.projection.project`."""
        return (yield from project(self.projector, value, own=own, after=after, late=late))

    def look_again(self, late: Sequence[Projected]) -> Steps[None]:
        """Remove of the files in `late` those that were put too late, and versions that are too old, if it is time."""
        yield from look_again(self.projector, late)
        for projected in late:
            yield from expire_in_turn(projected.value)


def expire_in_turn(value: Timeline) -> Steps[None]:
    """Delete the versions that are too old, if it is the turn of the publisher of `value`."""
    if value.version % EXPIRE_EVERY == 0:
        yield from expire_versions(value)


def _has_lost(tail: Timeline, value: Timeline) -> Steps[bool]:
    """Whether another version followed `tail`, so that `value` is not part of the table and will never be.

    What stands in the place of `value` tells only as long as `tail` stands, too. Else it may be a ghost: `value` was
    there, others followed it, and it was deleted.
    """
    data = yield Read(version_path(value.version))
    return data is not None and not value.is_in(data) and (yield from still_stands(tail))


def _derived(derive: Derive, tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
    """The outcome of a derivation of either kind."""
    outcome = derive(tail, wall_ms)
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def wall_clock(tail: Timeline, store_ms: int | None) -> Steps[int]:
    """The wall clock, which the next event may move the table's clock to: for good, so a broken one is refused.

    It is compared with the store's clock, never with the table's, which a fast clock takes along, event by event. The
    store is not asked as long as a time will do that its clock has reached for sure: `store_ms`, or the one that a
    pending write noted at its begin. So neither the begin nor the end of a short write asks for it.
    """
    wall_ms: int = yield Now()
    reached = [p.begun_ms for p in tail.pending if p.begun_ms is not None]
    if store_ms is not None:
        reached.append(store_ms)
    if wall_ms > to_ms(tail.clock) and wall_ms > max(reached, default=0) + CLOCK_AHEAD_MAX_MS:
        now_ms: int = yield StoreNow()
        if wall_ms > now_ms + CLOCK_AHEAD_MAX_MS:
            raise ClockError(
                "this machine's clock is far ahead of the store's, and no later commit of anybody could be earlier "
                f"than one of ours: set the clock, then write again. wall_clock={from_ms(wall_ms)} "
                f"store_clock={from_ms(now_ms)} ahead_s={(wall_ms - now_ms) // 1000}"
            )
    return wall_ms


def next_version(tail: Timeline, event: Timeline, segments: Contents, own: list[str]) -> Steps[Timeline]:
    """The version that is put for an event that follows `tail`, once the invariants have nothing against it.

    segments, own: as for `seal`.
    """
    nonce = yield Nonce()  # an attempt's own, so that it lands at most once
    event = replace(event, nonce=nonce, table_id=tail.table_id or nonce)
    value = yield from seal(tail, event, segments, own)
    require_invariants(tail, event)
    require_sealed(event, value)
    return value


def claim(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
    """Rule 3: put `value` after `tail`. The published value if it is genuinely ours; None if lost or unsure."""
    created = yield Put(version_path(value.version), value.encode(), decides=True)
    return (yield from confirmed(tail, value, created))


def confirmed(tail: Timeline, value: Timeline, created: bool | None) -> Steps[Timeline | None]:
    """As `claim`, once `value` was put. created: what the put has answered."""
    path = version_path(value.version)
    with deciding(is_made=True):
        if not created:
            data = yield Read(path)  # stores and SDKs repeat a put that had succeeded, and a lost reply says nothing
            if data is None:
                return None
            stored = Timeline.decode(data, path)
            if stored.nonce != value.nonce:
                return None
            value = yield from with_file_ids(stored, value)
            yield MakeDurable(path)  # what was read back may not last yet
        return value if (yield from is_genuine(tail)) else None


def _never_made(value: Timeline) -> CommitUnknownError:
    """The error where the store makes no next version, nor has another process made one."""
    return CommitUnknownError(
        "the store makes no next version of the timeline: again and again it says that there is one already, or does "
        "not say what became of it, and a look finds none. If it goes on so, try with crdt-mor check-store what its "
        "conditional puts do. Look at the table before writing again, or write with a token, which may be repeated. "
        f"path={version_path(value.version)} tries={PUTS_MAX}"
    )


def is_genuine(tail: Timeline) -> Steps[bool]:
    """Whether the version that was just put after `tail` can be trusted: deletion is oldest first.

    The nonce matters: what stands there may itself be a ghost, put by somebody who derived from a still older tail.
    """
    return (yield from still_stands(tail))
