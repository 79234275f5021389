"""Publishing: one value of the timeline follows another, by put-if-absent alone.

    find_tail    remembered value ─ gallop upward ─ look again that it still stands;  else list, take the highest
    publish      loop:  tail ─ derive the next value ─ help project the tail's events ─ put version n+1
                        lost or unsure: pause, look at the new tail, derive again
    project      the event's files in Hudi's own timeline directory, put-if-absent; a cancelled plan's are removed

The rules that make it correct. Leaving out any one of them makes `tests/simulation/test_small_world.py` fail:

  1. One terminal event per instant: `complete` and `roll_back` derive only from a value in which it is pending.
  2. Help before you publish: version n is projected before n+1 is put, so Hudi's directory never has a hole.
  3. Own it before any side effect: after a put that failed, read back, it may be ours; after one that succeeded,
     version n must still be there, else the object may be a ghost below the tail (deletion is oldest first). What was
     read back, or put by somebody else, is made durable before it is acknowledged or built upon.
  4. Acknowledge last, after one's own projection.

The first event of a table that was made without an id gives it one, its nonce: whoever loses that race derives again
from a value that has it.

An event that finds itself decided in the tail derives nothing (`None`), so whoever is unsure just starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from crdt_mor.errors import (
    ClockError,
    CommitUnknownError,
    FormatError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
)
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.names import data_file_name
from crdt_mor.model.timeline import (
    COMPLETIONS_BYTES_MAX,
    COMPLETIONS_MAX,
    SEGMENTS_MAX,
    Completion,
    Segment,
    Timeline,
    bytes_of,
    decode_segment,
    encode_segment,
    superseded_at,
)
from crdt_mor.store.base import Stat
from crdt_mor.timeline.projection import Projector
from crdt_mor.timeline.steps import (
    Delete,
    GetStat,
    List,
    MakeDurable,
    Nonce,
    Now,
    Pause,
    Put,
    Read,
    Steps,
    StoreNow,
    Walk,
)

OWN_FOLDER = ".hoodie/.crdt_mor"
VERSIONS = f"{OWN_FOLDER}/timeline"
SEGMENTS = f"{OWN_FOLDER}/segments"

KEPT_VERSIONS = 512
"""Versions behind the tail that are kept, so that who remembers one of them finds the tail without a listing."""

EXPIRE_EVERY = 64
"""Who publishes a multiple of this version deletes the ones that are too old. Readers delete nothing."""

CLOCK_AHEAD_MAX_MS = 60_000
"""How far a writer's wall clock may be ahead of the store's when it moves the table's. One that is behind does no harm,
nor does one that is behind the table's, however wrong it is: neither moves anything."""


def version_path(version: int) -> str:
    """Where a version of the timeline lives."""
    return f"{VERSIONS}/{version:020d}.json"


def segment_path(name: str) -> str:
    """Where a segment lives."""
    return f"{SEGMENTS}/{name}.json"


PUTS_MAX = 10
"""How often a put is repeated whose reply was lost."""

HINTS = (".deltacommit.inflight", ".deltacommit.requested")
"""Files that say of a write only that it has begun. If a power cut takes them, it takes the writer as well: they need
not be durable, which saves a commit four of its twelve waits for the disk."""


Derive = Callable[[Timeline, int], Steps[Timeline | None]]
"""(tail, wall clock in ms) -> the next value, or None if the tail holds the event's outcome already."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """What every publication needs to know of the table: how its events look in Hudi's timeline."""

    projector: Projector

    def publish(self, derive: Derive, known: Timeline | None = None, store_ms: int | None = None) -> Steps[Timeline]:
        """Publish one event; the value returned is genuine and projected, and holds the event's outcome.

        store_ms: a time that the store's clock has reached, where the caller has asked for one.
        """
        tail = yield from find_tail(known)
        attempt = 0
        try:
            while True:
                wall_ms = yield from wall_clock(tail, store_ms)
                value = yield from derive(tail, wall_ms)
                yield from self.help_project(tail)
                if value is None:
                    return tail
                nonce = yield Nonce()  # an attempt's own, so that it lands at most once
                value = replace(value, nonce=nonce, table_id=tail.table_id or nonce)
                value = yield from seal(tail, value)
                owned = yield from claim(tail, value)
                attempt += 1
                if owned is not None:
                    yield from self.project(owned)
                    if owned.version % EXPIRE_EVERY == 0:
                        yield from expire_versions(owned)
                    return owned
                yield Pause(attempt - 1)
                tail = yield from self._next_tail(tail, value)
        except StorageUnavailableError as error:
            if attempt == 0:
                raise
            raise _unknown(error) from error

    def _next_tail(self, tail: Timeline, lost: Timeline) -> Steps[Timeline]:
        """The tail after a put that did not succeed. If the table is another one by now, or gone, `lost` is taken back:
        it may stand in that table's folder, above its tail.

        Where the table is there, and refuses only for what stands above its tail, `lost` may be part of it yet.
        """
        try:
            return (yield from find_tail(tail))
        except (TableReplacedError, TableNotFoundError) as error:
            if (yield from _still_stands(tail)):
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

    def help_project(self, tail: Timeline) -> Steps[None]:
        """Rule 2: whoever follows a version makes sure that its events are projected."""
        yield MakeDurable(version_path(tail.version))
        yield from self.project(tail)

    def project(self, value: Timeline) -> Steps[None]:
        """Put the files of the value's own events into Hudi's timeline directory, unless they are there.

        Of a plan that it cancelled, they are removed.
        """
        files = yield from self.projector.files(value)
        placed = []
        for path, data in files:
            if (yield GetStat(path)) is None:
                yield from put_surely(Put(path, data, durable=not path.endswith(HINTS)))
                placed.append(path)
            elif not path.endswith(HINTS):
                # Its maker may have died before it was durable, and what follows it must not outlast it.
                yield MakeDurable(path)
        if placed and (yield from _is_void(value)):
            begun = begun_by(value)
            if begun is not None and value.find_plan(begun) is not None:
                yield from self._withdraw(begun)
            else:
                for path in reversed(placed):
                    yield Delete(path)
        for gone in value.rolled_back:
            if gone.is_plan and gone.version == value.version:
                yield from self._withdraw(gone.requested)

    def _withdraw(self, barrier: InstantTime) -> Steps[None]:
        """Remove what a cancelled plan left: its outputs first (`timeline.plans` says why), then its files in Hudi's.

        Where an output cannot be found or deleted, the plan stays in Hudi's timeline for a sweep by somebody who may.
        """
        try:
            files: list[Stat] = yield Walk()
        except StorageUnavailableError:
            return
        gone = True
        for file in files:
            name = data_file_name(file.path)
            if name is not None and name.instant == barrier:
                gone &= yield Delete(file.path)
        if gone:
            for path in reversed(self.projector.pending_paths(barrier, "compaction")):
                yield Delete(path)


def _is_void(value: Timeline) -> Steps[bool]:
    """Whether the files of a value's events do not belong in Hudi's directory, though they were just put there.

    Put-if-absent is not idempotent once somebody may delete the file: if the instant was given up in the meantime, its
    files have been removed by somebody who will not come again. If the table was, they were put into another one.
    """
    begun = begun_by(value)
    try:
        if begun is not None:
            return (yield from is_given_up(begun, value))
        if not (yield from _still_stands(value)):
            yield from find_tail(value)
    except (TableReplacedError, TableNotFoundError):
        return True
    return False


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


def claim(tail: Timeline, value: Timeline) -> Steps[Timeline | None]:
    """Rule 3: put `value` after `tail`. The published value if it is genuinely ours; None if lost or unsure."""
    path = version_path(value.version)
    created = yield Put(path, value.encode())
    try:
        if not created:
            data = yield Read(path)  # stores and SDKs repeat a put that had succeeded, and a lost reply says nothing
            if data is None:
                return None
            found = Timeline.decode(data, path)
            if found.nonce != value.nonce:
                return None
            value = found
            yield MakeDurable(path)  # what was read back may not last yet
        return value if (yield from is_genuine(tail)) else None
    except StorageUnavailableError as error:
        raise _unknown(error) from error


def _unknown(cause: StorageUnavailableError) -> CommitUnknownError:
    """What a failure means once something may have been published."""
    return CommitUnknownError(
        "the store failed after it had been asked to publish, so this may be visible already: look at the table before "
        f"writing again, or write with a token, which may be repeated. cause={cause}"
    )


def is_genuine(tail: Timeline) -> Steps[bool]:
    """Whether the version that was just put after `tail` can be trusted: deletion is oldest first.

    The nonce matters: what stands there may itself be a ghost, put by somebody who derived from a still older tail.
    """
    return (yield from _still_stands(tail))


def put_surely(put: Put) -> Steps[None]:
    """Put an object whose content is the same whoever puts it. A lost reply says nothing, so it is asked for again.

    It lasts, also where it was there: who put it may have died before it did.
    """
    for attempt in range(PUTS_MAX):
        created = yield put
        if created is not None:
            if put.durable and not created:
                yield MakeDurable(put.path)
            return
        yield Pause(attempt)
    raise CommitUnknownError(f"no put is answered any more; what was written may be there or not. path={put.path}")


def begun_by(value: Timeline) -> InstantTime | None:
    """The instant of the write or plan that this very version made pending."""
    for pending in value.pending:
        if pending.version == value.version:
            return pending.requested
    for plan in value.plans:
        if plan.version == value.version:
            return plan.barrier
    return None


def is_given_up(instant: InstantTime, known: Timeline) -> Steps[bool]:
    """Whether an instant that was pending in `known` is rolled back or cancelled by now."""
    tail = yield from find_tail(known)
    if tail.find_pending(instant) is not None or tail.find_plan(instant) is not None:
        return False
    if tail.find_rolled_back(instant) is not None:
        return True
    done = yield from find_completion(instant, tail)
    return done is None


def find_completion(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of an instant, in the value or in its segments."""
    return (yield from _find_after(requested, lambda done: done.requested == requested, tail))


def find_ending(nonce: str, since: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of the write that a begin with this nonce made, which was not before `since`."""
    return (yield from _find_after(since, lambda done: done.nonce == nonce, tail))


def _find_after(since: InstantTime, wanted: Callable[[Completion], bool], tail: Timeline) -> Steps[Completion | None]:
    """A completion after `since`, in the value or in its segments."""
    for done in reversed(tail.completions):
        if wanted(done):
            return done
    for segment in reversed(tail.segments):
        if segment.last > since:
            for done in (yield from read_segment(segment)):
                if wanted(done):
                    return done
    return None


def all_completions(value: Timeline) -> Steps[list[Completion]]:
    """Every completion of a value, those of its segments included."""
    found = list(value.completions)
    for segment in value.segments:
        found += yield from read_segment(segment)
    return found


# --- the tail -------------------------------------------------------------------------------------------------------


def find_tail(known: Timeline | None) -> Steps[Timeline]:
    """The newest value; `known` is one that was genuine once, and makes it cheap.

    Raises `TableReplacedError` where the table is no longer the one that `known` is of.
    """
    if known is not None:
        tail = yield from _climb(known)
        if tail is not None:
            return tail
    while True:
        names = yield List(VERSIONS)
        if not names:
            raise TableNotFoundError(f"there is no timeline here; was the table's {OWN_FOLDER} folder removed?")
        path = names[-1].path
        data = yield Read(path)
        if data is None:
            continue  # deleted since: the tail has moved on
        found = _value_at(data, path)
        if known is not None and (yield from _is_elsewhere(known, found)):
            raise replaced(known.table_id, found.table_id)
        # Between listing and reading it may have been deleted and put again by somebody who was late: a ghost. But then
        # more than KEPT_VERSIONS newer ones had been published by the time it was read, and a listing shows the newest.
        names = yield List(VERSIONS)
        if names and names[-1].path < version_path(found.version + KEPT_VERSIONS):
            tail = yield from _climb(found)
            if tail is not None:
                return tail


def _value_at(data: bytes, path: str) -> Timeline:
    """The value of a version, which must be the one that its name says: it would be looked for in another place."""
    found = Timeline.decode(data, path)
    if version_path(found.version) != path:
        raise FormatError(f"this is another version than its name says: restore it. file={path} found={found.version}")
    return found


def is_kept(known: Timeline, tail: Timeline) -> bool:
    """Whether `known` still has to stand where `tail` is the newest version, so that who misses it is elsewhere."""
    return tail.version < known.version + KEPT_VERSIONS


def _is_elsewhere(known: Timeline, found: Timeline) -> Steps[bool]:
    """Whether `found`, the newest version, tells that the table of `known` is not the one that is there."""
    if _is_foreign(found, known):
        return True
    return is_kept(known, found) and not (yield from _still_stands(known))


def _is_foreign(found: Timeline, known: Timeline) -> bool:
    """Whether a value is certainly of another table. A table that was made without an id may have one by now."""
    return known.table_id is not None and found.table_id != known.table_id


def replaced(opened: str | None, found: str | None) -> TableReplacedError:
    """The refusal to go on in a table with what belongs to another one."""
    return TableReplacedError(
        "the table here is another one than the one that was opened: it was removed and made again, or restored from a "
        f"copy. Nothing was written; open it anew. opened={opened} found={found}"
    )


def _climb(start: Timeline) -> Steps[Timeline | None]:
    """The tail above `start`; None if `start` is no longer there.

    Versions stand without a gap from the oldest kept one to the tail, so galloping and halving find the end. A probe
    that hits nothing may have hit a deleted version, so `start` is read again *after* the last probe: versions go
    oldest first, and if `start` still stands, nothing above it was ever deleted, nor is anything found there a ghost.
    """
    low, step = start.version, 1
    while (yield GetStat(version_path(low + step))) is not None:
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if (yield GetStat(version_path(middle))) is not None:
            low = middle
        else:
            high = middle
    tail = start
    if low != start.version:
        data = yield Read(version_path(low))
        if data is None:
            return None
        tail = _value_at(data, version_path(low))
    if not (yield from _still_stands(start)):
        return None
    if _is_foreign(tail, start):
        raise replaced(start.table_id, tail.table_id)  # `start` stands, so a writer of an earlier table died here
    return tail


def take_back(known: Timeline, paths: Iterable[str]) -> Steps[None]:
    """Delete what was put for an event of `known`, whose publication was refused, where its table is no longer there.

    A table that is there refuses as well, while something that a process of another one has put stands above its tail;
    then the event may be part of it already.
    """
    for path in paths if not (yield from _is_here(known)) else ():
        yield Delete(path)


def _is_here(known: Timeline) -> Steps[bool]:
    """Whether the table of `known` is the one that is there, which the oldest version tells. When in doubt, yes."""
    if (yield from _still_stands(known)):
        return True
    names = yield List(VERSIONS)
    if not names or known.table_id is None:
        return False
    data = yield Read(names[0].path)
    return data is None or not _is_foreign(_value_at(data, names[0].path), known)


def _still_stands(value: Timeline) -> Steps[bool]:
    data = yield Read(version_path(value.version))
    return data is not None and value.is_in(data)


def expire_versions(tail: Timeline) -> Steps[None]:
    """Delete the versions that are too old, strictly oldest first and one at a time. Safety rests on that order.

    So the first version that cannot be deleted ends it: the next publisher whose turn it is tries again.
    """
    with suppress(StorageUnavailableError):  # the event is published, and old versions do no harm
        names = yield List(VERSIONS)
        if not (yield from _still_stands(tail)):
            return  # the listing may be of another table, which was made here since
        for name in names:
            if name.path >= version_path(tail.version - KEPT_VERSIONS) or not (yield Delete(name.path)):
                return


# --- segments -------------------------------------------------------------------------------------------------------


def seal(tail: Timeline, value: Timeline) -> Steps[Timeline]:
    """`value`, derived from `tail`, with the tail's completions moved to a segment once they are many, or large.

    Names and contents are functions of the tail alone, so everyone who follows this tail writes the same objects.
    """
    if len(tail.completions) < COMPLETIONS_MAX and bytes_of(tail.completions) < COMPLETIONS_BYTES_MAX:
        return value
    segment = yield from _write_segment(tail, 0, sorted(tail.completions, key=_by_completion))
    segments = [*tail.segments, *segment]
    level = 0
    while len(full := [s for s in segments if s.level == level and s.superseded is None]) >= SEGMENTS_MAX:
        segments = yield from _roll_up(tail, segments, full, level + 1)
        level += 1
    history = [s for s in segments if s.superseded is not None]
    for level in sorted({s.level for s in history}):
        full = [s for s in segments if s.level == level and s.superseded is not None]
        if len(full) >= SEGMENTS_MAX:
            segments = yield from _roll_up(tail, segments, full, level + 1)
    return value.sealed(tail, segments)


def read_segment(segment: Segment) -> Steps[tuple[Completion, ...]]:
    """The completions of a segment."""
    path = segment_path(segment.name)
    data = yield Read(path)
    if data is None:
        raise FormatError(f"a segment of the timeline is missing; restore it from a backup. file={path}")
    return decode_segment(data, path)


def _roll_up(tail: Timeline, segments: list[Segment], full: list[Segment], level: int) -> Steps[list[Segment]]:
    """`full` become one run: at most one segment that the latest snapshot needs, and one that only history needs."""
    run: list[Completion] = []
    for segment in full:
        run.extend((yield from read_segment(segment)))
    run.sort(key=_by_completion)
    written = yield from _write_segment(tail, level, run, known=full)
    return sorted([*(s for s in segments if s not in full), *written], key=lambda s: (-s.level, s.first, s.name))


def _write_segment(
    tail: Timeline, level: int, run: Sequence[Completion], known: Sequence[Segment] = ()
) -> Steps[list[Segment]]:
    ends = superseded_at(run)
    history = level > 0 and all(s.superseded is not None for s in known)
    floor = max((s.superseded for s in known if s.superseded is not None), default=None)
    live = [] if history else [c for c in run if level == 0 or ends[c.requested] is None]
    needed = {c.requested for c in live}
    past = [c for c in run if c.requested not in needed]
    written = []
    for kind, part in (("live", live), ("history" if history else "past", past)):
        if not part:
            continue
        name = f"{tail.version:020d}-{tail.nonce}-{level}-{kind}"
        yield from put_surely(Put(segment_path(name), encode_segment(part)))
        until = None
        if kind != "live":
            until = floor if history else max(end for c in part if (end := ends[c.requested]) is not None)
        written.append(Segment(name, level, part[0].completed, part[-1].completed, len(part), until))
    return written


def _by_completion(c: Completion) -> InstantTime:
    return c.completed
