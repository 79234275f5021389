"""Publish: a value of the timeline follows another, by put-if-absent alone.

    publish      loop:  tail ─ derive the next value ─ help project the tail's events ─ put version n+1
                        lost or unsure: pause, look at the new tail, derive again
    project      a projector publishes the event's files, put-if-absent (`log.projection`)

The rules that make it correct. Leaving out any of them makes `tests/simulation/test_small_world.py` fail:

  1. One terminal event per instant: `complete` and `roll_back` derive only from a value in which it is pending.
  2. Help before you publish: version n is projected before n+1 is put, so projected events never have a gap.
  3. Own it before any side effect. After a failed put, read back: the version may be ours. After a successful put,
     version n must still stand, or ours may be a ghost below the tail (deletion is oldest first). A version read back
     or put by others is made durable before it is acknowledged or built upon.
  4. Acknowledge last, after your own projection.

The first event of a table without an id sets the id to its nonce. `model.invariants` is checked before each put. An
event derives nothing (`None`) if the tail contains its outcome, so an unsure process starts again.
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
from crdt_mor.log.combining import Crowd, Load, Posting
from crdt_mor.log.deciding import deciding, stopped_outcome, unknown_outcome
from crdt_mor.log.intents import Intent
from crdt_mor.log.outcome import newer_value
from crdt_mor.log.paths import version_path
from crdt_mor.log.projection import EventProjector, Projected, look_again, project, wait_for_projection
from crdt_mor.log.segments import Contents, SegmentGoneError, discard, seal, with_objects
from crdt_mor.log.steps import PUTS_MAX, Delete, MakeDurable, Nonce, Now, Pause, Put, Read, Steps, StoreNow
from crdt_mor.log.tail import Tail, expire_versions, find_tail, still_stands
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.model.invariants import require_invariants, require_sealed
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.protocol import Stat

EXPIRE_EVERY = 32
"""Versions between two deletions of expired versions by publishers. Readers delete nothing."""

CLOCK_AHEAD_MAX_MS = 60_000
"""How far a writer's clock may be ahead of the store's when it moves the table's clock. A slow clock moves nothing."""

Derive = Callable[[Timeline, int], Timeline | Steps[Timeline | None] | None]
"""(tail, wall clock in ms) -> the next value, or None if the tail contains the event's outcome. A generator if it must
read objects.
"""


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """How a process saves requests when publishing.

    looked: the known value was the tail a moment ago, and the put fails if it no longer is. helped: a projected
    version, or -1. store_ms: a time that the store's clock has reached. late: as in `log.projection.project`. crowd: an
    intent may be published with or by others (`log.combining`).
    """

    looked: bool = False
    helped: int = -1
    store_ms: int | None = None
    late: list[Projected] | None = None
    crowd: Crowd | None = None

    @property
    def is_far(self) -> bool:
        """True if round trips are expensive: requests run in parallel even if perhaps unnecessary."""
        return self.late is not None

    def after_a_look(self, store_ms: int | None) -> Shortcuts:
        return replace(self, looked=True, store_ms=store_ms)


NO_SHORTCUTS = Shortcuts()

CLAIMS_MAX = 8
"""Tries to claim a time for posts, about as long as a commit takes: another process that has claimed this time is
publishing, or dead."""

Carry = Callable[[Timeline, Load, Shortcuts], Steps[Timeline | None]]
"""(tail, load, shortcuts) -> the newest value after a commit of the load, `tail` if nothing of it fits, or None if
the time could not be claimed. See `events.carrying`.
"""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes and projects the events of a table. Nothing depends on `tell`.

    carry: commits whole writes of others, which would wait too long otherwise (`planners.way`).
    """

    projector: EventProjector
    tell: Tell = tell_nobody
    carry: Carry | None = None

    def publish(
        self,
        derive: Derive,
        known_tail: Timeline | None = None,
        shortcuts: Shortcuts = NO_SHORTCUTS,
        intent: Intent | None = None,
        wall_ms: int | None = None,
    ) -> Steps[Tail]:
        """Publish an event. Returns a genuine, projected value with its outcome, perhaps later (`outcome.value_of`).

        intent: the event as a value, which may be posted. wall_ms: a time for the table's clock that the store's clock
        has passed.
        """
        assert known_tail is not None or not shortcuts.looked
        tail = known_tail if known_tail is not None and shortcuts.looked else (yield from find_tail(known_tail))
        posting = Posting(intent, shortcuts.crowd, is_carrier=self.carry is not None)
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
                posting.may_land |= event is None and posting.attempt > 0  # landed, or ended otherwise
                if tail.version != shortcuts.helped:
                    told = posting.is_posted and (yield from wait_for_projection(self.projector, tail))
                    if not told:
                        yield from self.help_project(tail)
                if event is None:
                    yield from posting.end(published=False)
                    return Tail(tail)
                carried = yield from self._carried(tail, posting, shortcuts)
                if carried is not None:
                    tail, unmade = carried, 0
                    continue
                event = yield from posting.with_others(tail, event, time_ms)
                value = yield from next_version(tail, event, segments, own)
            except SegmentGoneError:
                tail = yield from newer_value(tail)  # this process slept while many versions were published
                continue
            owned = yield from claim(tail, value)
            posting.attempt += 1
            posting.may_land = True
            if owned is not None:
                yield from self.project(owned, own=True, late=shortcuts.late)
                if not shortcuts.is_far:  # otherwise done with the late looks
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

    def _carried(self, tail: Timeline, posting: Posting, shortcuts: Shortcuts) -> Steps[Timeline | None]:
        """Commit posts that have waited too long, together with this event; None: there are none, or nothing came."""
        writes = posting.passed(tail)
        if not writes:
            return None
        load = yield from posting.load(tail, writes)
        may_land, posting.may_land = posting.may_land, True
        newest = yield from self._carry(tail, load, shortcuts)  # a `StorageUnavailableError` says: nothing published
        posting.attempt += 1
        posting.may_land = may_land and newest is None
        return newest

    def carry_first(self, tail: Timeline, writes: Sequence[Stat], shortcuts: Shortcuts) -> Steps[Timeline | None]:
        """Commit posts before a write that cannot be committed with them. Returns the newest value, or None."""
        return (yield from self._carry(tail, Load(tuple(writes)), shortcuts))

    def _carry(self, tail: Timeline, load: Load, shortcuts: Shortcuts) -> Steps[Timeline | None]:
        if self.carry is None:
            return None
        for attempt in range(CLAIMS_MAX):
            newest = yield from self.carry(tail, load, shortcuts)
            if newest is tail:
                return None  # no post fits: their owners find out
            newest = newest or (yield from find_tail(tail))
            if newest.version > tail.version:
                return newest
            yield Pause(attempt)
        return None

    def next_tail(self, tail: Timeline, lost: Timeline) -> Steps[Tail]:
        """Return the tail after an unsuccessful put.

        If the table was replaced or removed, delete `lost`: it may stand above the new table's tail. If only a version
        of an earlier table stands above this table's tail, keep `lost`: it may still become part of the table.
        """
        try:
            return (yield from find_tail(tail))
        except (TableReplacedError, TableNotFoundError) as error:
            if (yield from still_stands(tail)):
                raise CommitUnknownError(
                    "a process with an earlier table at this address writes here, so it is unknown whether this "
                    "write is visible. Check the table before you write again; a write with a token may be "
                    f"repeated. cause={error}"
                ) from error
            path = version_path(lost.version)
            data = yield Read(path)
            if data is not None and lost.is_in(data):
                yield Delete(path)
            raise

    def help_project(self, tail: Timeline) -> Steps[list[str]]:
        """Rule 2: make sure that a version is projected before another follows. Returns the missing paths."""
        yield MakeDurable(version_path(tail.version))
        return (yield from self.project(tail))

    def project(
        self, value: Timeline, *, own: bool = False, after: Sequence[str] = (), late: list[Projected] | None = None
    ) -> Steps[list[str]]:
        return (yield from project(self.projector, value, own=own, after=after, late=late))

    def look_again(self, late: Sequence[Projected]) -> Steps[None]:
        yield from look_again(self.projector, late)
        for projected in late:
            yield from expire_in_turn(projected.value)


def expire_in_turn(value: Timeline) -> Steps[None]:
    if value.version % EXPIRE_EVERY == 0:
        yield from expire_versions(value)


def _has_lost(tail: Timeline, value: Timeline) -> Steps[bool]:
    """Return True if another version follows `tail`, so that `value` will never be part of the table.

    Only while `tail` stands: otherwise the other version may be a ghost.
    """
    data = yield Read(version_path(value.version))
    return data is not None and not value.is_in(data) and (yield from still_stands(tail))


def _derived(derive: Derive, tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
    outcome = derive(tail, wall_ms)
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def wall_clock(tail: Timeline, store_ms: int | None) -> Steps[int]:
    """Return the wall clock for the next event. It may move the table's clock for good, so refuse a broken clock.

    It is compared with the store's clock, never with the table's, which a fast clock takes along event by event. The
    store is not asked if a time is known that its clock has reached: `store_ms`, or the begin of a pending write.
    """
    wall_ms: int = yield Now()
    reached = [p.begun_ms for p in tail.pending if p.begun_ms is not None]
    if store_ms is not None:
        reached.append(store_ms)
    if wall_ms > to_ms(tail.clock) and wall_ms > max(reached, default=0) + CLOCK_AHEAD_MAX_MS:
        now_ms: int = yield StoreNow()
        if wall_ms > now_ms + CLOCK_AHEAD_MAX_MS:
            raise ClockError(
                "this machine's clock is far ahead of the store's, and would move the table's clock ahead for "
                f"good. Set the clock, then write again. wall_clock={from_ms(wall_ms)} store_clock={from_ms(now_ms)} "
                f"ahead_s={(wall_ms - now_ms) // 1000}"
            )
    return wall_ms


def next_version(tail: Timeline, event: Timeline, segments: Contents, own: list[str]) -> Steps[Timeline]:
    """Return the version to put for an event after `tail`, checked against the invariants."""
    nonce = yield Nonce()  # unique to the attempt: lands at most once
    event = replace(event, nonce=nonce, table_id=tail.table_id or nonce)
    value = yield from seal(tail, event, segments, own)
    require_invariants(tail, event)
    if value is not event:
        require_sealed(event, value)
    return value


def claim(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
    """Rule 3: put `value` after `tail`. Returns the value if genuinely ours, or None if lost or unsure."""
    created = yield Put(version_path(value.version), value.encode(), decides=True)
    return (yield from confirmed(tail, value, created))


def confirmed(tail: Timeline, value: Timeline, created: bool | None) -> Steps[Timeline | None]:
    """Check the outcome of a put. created: its reply."""
    path = version_path(value.version)
    with deciding(is_made=True):
        if not created:
            data = yield Read(path)  # stores and SDKs repeat successful puts, and replies get lost
            if data is None:
                return None
            stored = Timeline.decode(data, path)
            if stored.nonce != value.nonce:
                return None
            value = yield from with_objects(stored, value)
            yield MakeDurable(path)  # perhaps not durable yet
        return value if (yield from is_genuine(tail)) else None


def _never_made(value: Timeline) -> CommitUnknownError:
    return CommitUnknownError(
        "the store repeatedly refused the next version or did not answer, but no next version exists. Test the "
        "store's conditional puts with crdt-mor check-store. Check the table before you write again; a write with a "
        f"token may be repeated. path={version_path(value.version)} tries={PUTS_MAX}"
    )


def is_genuine(tail: Timeline) -> Steps[bool]:
    """Return True if the version just put after `tail` can be trusted: deletion is oldest first.

    The nonce matters: the object may be a ghost with an older tail.
    """
    return (yield from still_stands(tail))
