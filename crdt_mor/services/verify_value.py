"""Verify the timeline of a table: versions, segments, plans and their invariants.

    the newest version ─► its segments ─► all commits ─► invariants of the whole (model.invariants_whole)
    the older existing versions ─► no gap, all readable, allowed successions (model.invariants)
    open plans and restores ─► their objects

A missing object is looked up in the newest version, which may no longer name it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CrdtMorError, FormatError, StorageUnavailableError
from crdt_mor.events.leftovers import counts
from crdt_mor.events.session import Session
from crdt_mor.hudi.actions import planned_action
from crdt_mor.log.paths import COPIED, FAILURES, PLANS, VERSIONS, segment_path, version_path
from crdt_mor.log.segments import SegmentGoneError, fresh_completions, read_segment, with_objects
from crdt_mor.log.tail import find_tail, first_kept, still_stands, versions_in
from crdt_mor.model import invariants_sealing
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.invariants import INVARIANTS
from crdt_mor.model.invariants_whole import WHOLE_INVARIANTS, broken_promise
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.model.timeline_parts import Completion, FileGroup, Segment
from crdt_mor.planners.restore import RestorePlan
from crdt_mor.services.verify_findings import Finding, finding
from crdt_mor.services.verify_given import ahead, read_decoded, twice
from crdt_mor.store.protocol import Stat, side_by_side

P = TypeVar("P")

_SEALING: Final = (invariants_sealing.completions_are_carried_or_sealed, invariants_sealing.segments_never_change)

TRIES: Final = 10
"""Tries of a look that misses an object, because newer versions may follow each time."""


@dataclass(slots=True)
class Reread:
    """The newest value and all commits, including Hudi's, by completion time."""

    value: Timeline
    commits: list[Completion] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    objects: int = 0


@dataclass(slots=True)
class Older:
    """has_older: older releases published some existing versions."""

    value: Timeline
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    objects: int = 0
    has_older: bool = False


def reread(session: Session) -> Reread:
    for _ in range(TRIES):
        read = Reread(_newest(session))
        gone = _read_segments(session, read)
        if not gone or session.tail().version == read.value.version:
            break
    if read.value.version > 0 or versions_in(session.store):
        _ask_whole(read)
    return read


def reread_older(session: Session, value: Timeline) -> Older:
    read = Older(value)
    store = session.store
    lists = [partial(versions_in, store), partial(store.list, COPIED), partial(store.list, PLANS)]
    versions, copied, plans = side_by_side(store, lists)
    if value.version > 0 or versions:
        _read_versions(session, read, versions, max((stat.path.rpartition("/")[2] for stat in copied), default=""))
        _read_plans(session, read, plans)
    return read


def _newest(session: Session) -> Timeline:
    """Return the newest version, decoded anew; the genesis if only Hudi wrote to the table."""
    if session.known_tail().version == 0 and session.tail().version == 0:
        return session.known_tail()
    with session.beside(lambda: session.run(find_tail(None))) as anew:
        session.tail()
        value = anew()
    TableSchema.from_json(value.schema)
    return value


# --- segments ---------------------------------------------------------------------------------------------------------


def _read_segments(session: Session, read: Reread) -> bool:
    """Read the segments of the value. Return True if any is missing; a newer version may not need it."""
    held: list[tuple[Segment, Sequence[Completion]]] = []
    gone = False
    segments = read.value.segments
    for segment, found in zip(segments, ahead(session, partial(_segment, session), segments), strict=True):
        path = segment_path(segment.name)
        if isinstance(found, FormatError):
            gone |= isinstance(found, SegmentGoneError)
            read.findings.append(finding("segment", path, found))
            continue
        size, completions = found
        held.append((segment, completions))
        read.objects += 1
        if segment.size and size is not None and size != segment.size:
            said = f"the segment's size differs from the value. bytes={segment.size} found={size}"
            read.findings.append(finding("segment", path, said))
    commits = [*(c for _, some in held for c in some), *read.value.completions]
    read.commits = sorted(commits, key=lambda c: c.completed)
    needed = _needed_now(session, read)
    for segment, some in held:
        if (broken := broken_promise(segment, some, needed)) is not None:
            read.findings.append(finding("segment", segment_path(segment.name), broken))
    return gone


def _segment(session: Session, segment: Segment) -> tuple[int | None, Sequence[Completion]] | FormatError:
    try:
        stat = twice(session, partial(session.store.stat, segment_path(segment.name)))
        return None if stat is None else stat.size, twice(session, lambda: session.run(read_segment(segment)))
    except FormatError as error:
        return error


def _needed_now(session: Session, read: Reread) -> Collection[InstantTime]:
    if read.findings or session.config.layout_one:
        return ()
    slices = fold_slices(read.commits, old_logs=session.config.was_upgraded)
    shown = {file.path for slice_ in slices for file in slice_.files}
    return {c.requested for c in read.commits if any(file.path in shown for file in c.files)}


def _ask_whole(read: Reread) -> None:
    if read.findings:
        return
    for holds in WHOLE_INVARIANTS:
        broken = list(holds(read.value, read.commits))
        if broken:
            _note_broken(read, holds, read.value.version, broken[0], len(broken))


def _note_broken(read: Reread | Older, holds: Callable[..., object], version: int, first: str, count: int = 1) -> None:
    sentence = (holds.__doc__ or holds.__name__).partition("\n")[0].removesuffix(".")
    more = f" and {count - 1} more" if count > 1 else ""
    said = f"an invariant is broken: {sentence}. invariant={holds.__name__} {first}{more}"
    read.findings.append(finding("invariant", version_path(version), said))


# --- older versions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Version:
    """value: None if its objects are gone. fresh: its own commits in segments; None if these are gone."""

    is_there: bool = False
    value: Timeline | None = None
    fresh: Sequence[Completion] | None = None
    fault: str | FormatError | None = None


def _version_at(session: Session, number: int) -> _Version:
    path = version_path(number)
    try:
        decoded = read_decoded(session, path, Timeline.decode)
    except FormatError as error:
        return _Version(fault=error)
    if decoded is None:
        return _Version()
    try:
        value = session.run(with_objects(decoded))
        TableSchema.from_json(value.schema)
    except (SegmentGoneError, StorageUnavailableError):
        return _Version(True)  # objects named only by this version may be swept; others were checked before
    except FormatError as error:
        return _Version(True, fault=str(error))
    try:
        return _Version(True, value, session.run(fresh_completions(value)))
    except (SegmentGoneError, StorageUnavailableError):
        return _Version(True, value)
    except FormatError as error:
        return _Version(True, value, fault=str(error))


def _read_versions(session: Session, read: Older, listed: Sequence[Stat], copied: str) -> None:
    """Check the retained versions pairwise: none is missing, and each may follow its predecessor.

    A slow process may have put lower versions too late. A copy's versions up to its note, `copied`, are no events.
    """
    before: Timeline | None = None
    numbers = _standing(listed, read.value)
    for number, found in zip(numbers, ahead(session, partial(_version_at, session), numbers), strict=True):
        path = version_path(number)
        read.objects += found.is_there
        is_event = path.rpartition("/")[2] > copied  # of two first copies, the earlier moment may come late
        if found.fault is not None:
            read.findings.append(finding("old version", path, found.fault))
        elif not found.is_there and is_event and before is not None and session.run(still_stands(before)):
            # If `before` is gone as well, publishers deleted both meanwhile.
            newest = read.value.version
            said = f"a version is missing between others. before={before.version} newest={newest}"
            read.findings.append(finding("old version", path, said))
        value = found.value
        if before is not None and value is not None and found.fault is None and is_event:
            _ask_following(read, before, value, found.fresh)
        before = value


def _standing(listed: Sequence[Stat], newest: Timeline) -> range:
    first, last = version_path(first_kept(newest)), version_path(newest.version)
    names = [stat.path for stat in listed if first <= stat.path <= last]
    oldest = whole_number(names[0].rpartition("/")[2].removesuffix(".json")) if names else None
    return range(newest.version if oldest is None else oldest, newest.version + 1)


def _ask_following(read: Older, before: Timeline, value: Timeline, fresh: Sequence[Completion] | None) -> None:
    """Check the invariants of two successive versions, ignoring moves to segments. Older releases had fewer."""
    if {before.format, value.format} != {FORMAT}:
        read.has_older = True
        return
    if fresh is None or value.is_restore_of(before):
        return  # a restore deletes the versions before it, which exist only until it is projected
    old = {c.requested for c in before.completions}
    new = [c for c in (*fresh, *value.completions) if c.version == value.version and c.requested not in old]
    dropped = replace(value.retention, dropped=before.retention.dropped, dropped_count=before.retention.dropped_count)
    completions = (*before.completions, *new)
    event = replace(value, completions=completions, segments=before.segments, retention=dropped)
    broken = [holds for holds in INVARIANTS if not holds(before, event)]
    broken += [holds for holds in _SEALING if not holds(event, value)]
    for holds in broken:
        _note_broken(read, holds, value.version, f"previous={before.version} following={value.version}")


# --- plans ------------------------------------------------------------------------------------------------------------


def _read_plans(session: Session, read: Older, listed: Sequence[Stat]) -> None:
    taken: dict[FileGroup, str] = {}
    for plan in read.value.plans:
        decode = planned_action(plan.action).decode
        frozen = _plan_at(session, read, "plan", plan.path, decode)
        if frozen is None:
            continue
        if frozen.barrier != plan.barrier or frozen.table_id not in (None, read.value.table_id):
            said = f"another plan than the value names. barrier={plan.barrier} found={frozen.barrier}"
            read.findings.append(finding("plan", plan.path, said))
        for group in frozen.file_groups:
            if group in taken:
                said = f"two open plans contain one file group. file_group={group[1]} other={taken[group]}"
                read.findings.append(finding("plan", plan.path, said, group))
            taken[group] = plan.path
    for restore in read.value.restores:
        _plan_at(session, read, "restore plan", restore.path, RestorePlan.decode)
    notes = [stat for stat in listed if stat.path.startswith(FAILURES)]
    now_ms = session.looked_ms() if notes else 0
    for note in notes:
        if note.size or not counts(note, now_ms):
            said = "a note of a failed compaction is old or not empty: planners ignore the note"
            read.hints.append(finding("hint", note.path, f"{said}. bytes={note.size}"))


def _plan_at(session: Session, read: Older, check: str, path: str, decode: Callable[[bytes, str], P]) -> P | None:
    """Return a plan; None, with a finding, if it is unreadable and still needed."""
    try:
        plan = read_decoded(session, path, decode)
        if plan is not None:
            read.objects += 1
            return plan
        tail = session.tail()
        if path in {*(plan.path for plan in tail.plans), *(restore.path for restore in tail.restores)}:
            read.findings.append(finding(check, path, "the object is gone"))
        return None
    except StorageUnavailableError:
        raise
    except CrdtMorError as error:
        read.findings.append(finding(check, path, error))
        return None


def unreadable(session: Session, error: CrdtMorError) -> Iterator[Finding]:
    listed = versions_in(session.store)
    yield finding("version", listed[-1].path if listed else VERSIONS, str(error))
