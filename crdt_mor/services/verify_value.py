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
from crdt_mor.services.verify_given import read_decoded, twice

P = TypeVar("P")

_SEALING: Final = (invariants_sealing.completions_are_carried_or_sealed, invariants_sealing.segments_never_change)

TRIES: Final = 10
"""Tries of a look that misses an object, because newer versions may follow each time."""


@dataclass(slots=True)
class Reread:
    """The contents of a table's timeline, including Hudi's commits, with `commits` by completion time.

    `has_older`: older releases published some existing versions.
    """

    value: Timeline
    commits: list[Completion] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    objects: int = 0
    has_older: bool = False


def reread(session: Session) -> Reread:
    """Read the newest version and all that it names in the table's own folder."""
    for _ in range(TRIES):
        read = Reread(_newest(session))
        gone = _read_segments(session, read)
        if not gone or session.tail().version == read.value.version:
            break
    if read.value.version > 0 or versions_in(session.store):
        _ask_whole(read)
        _read_versions(session, read)
        _read_plans(session, read)
    return read


def _newest(session: Session) -> Timeline:
    """Return the newest version, decoded anew; the genesis if only Hudi wrote to the table."""
    tail = session.tail()
    if tail.version == 0:
        return tail
    value = session.run(find_tail(None))
    TableSchema.from_json(value.schema)
    return value


# --- segments ---------------------------------------------------------------------------------------------------------


def _read_segments(session: Session, read: Reread) -> bool:
    """Read the segments of the value. Return True if any is missing; a newer version may not need it."""
    held: list[tuple[Segment, Sequence[Completion]]] = []
    gone = False
    for segment in read.value.segments:
        path = segment_path(segment.name)
        try:
            stat = twice(session, partial(session.store.stat, path))
            held.append((segment, twice(session, partial(_segment, session, segment))))
        except SegmentGoneError as error:
            gone = True
            read.findings.append(finding("segment", path, str(error)))
        except FormatError as error:
            read.findings.append(finding("segment", path, error))
        else:
            read.objects += 1
            if segment.size and stat is not None and stat.size != segment.size:
                said = f"the segment's size differs from the value. bytes={segment.size} found={stat.size}"
                read.findings.append(finding("segment", path, said))
    commits = [*(c for _, some in held for c in some), *read.value.completions]
    read.commits = sorted(commits, key=lambda c: c.completed)
    needed = _needed_now(session, read)
    for segment, some in held:
        if (broken := broken_promise(segment, some, needed)) is not None:
            read.findings.append(finding("segment", segment_path(segment.name), broken))
    return gone


def _segment(session: Session, segment: Segment) -> Sequence[Completion]:
    return session.run(read_segment(segment))


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


def _note_broken(read: Reread, holds: Callable[..., object], version: int, first: str, count: int = 1) -> None:
    sentence = (holds.__doc__ or holds.__name__).partition("\n")[0].removesuffix(".")
    more = f" and {count - 1} more" if count > 1 else ""
    said = f"an invariant is broken: {sentence}. invariant={holds.__name__} {first}{more}"
    read.findings.append(finding("invariant", version_path(version), said))


# --- older versions ---------------------------------------------------------------------------------------------------


def _read_versions(session: Session, read: Reread) -> None:
    """Check the retained versions pairwise: none is missing, and each may follow its predecessor.

    Lower versions are not part of the timeline: a slow process may have put them too late.
    """
    before: Timeline | None = None
    copied = max((stat.path.rpartition("/")[2] for stat in session.store.list(COPIED)), default="")
    for number in _standing(session, read.value):
        path = version_path(number)
        try:
            decoded = read_decoded(session, path, Timeline.decode)
        except FormatError as error:
            read.findings.append(finding("old version", path, error))
            before = None
            continue
        if decoded is None:
            if before is not None and session.run(still_stands(before)):  # else publishers deleted both meanwhile
                newest = read.value.version
                said = f"a version is missing between others. before={before.version} newest={newest}"
                read.findings.append(finding("old version", path, said))
            before = None
            continue
        read.objects += 1
        try:
            value = session.run(with_objects(decoded))
            TableSchema.from_json(value.schema)
        except (SegmentGoneError, StorageUnavailableError):
            before = None  # objects named only by this version may be swept; others were checked before
            continue
        except FormatError as error:
            read.findings.append(finding("old version", path, str(error)))
            before = None
            continue
        if before is not None and path.rpartition("/")[2] > copied:  # a copy's versions up to its note are no events
            _ask_following(session, read, before, value)
        before = value


def _standing(session: Session, newest: Timeline) -> range:
    listed = versions_in(session.store)
    first, last = version_path(first_kept(newest)), version_path(newest.version)
    names = [stat.path for stat in listed if first <= stat.path <= last]
    oldest = whole_number(names[0].rpartition("/")[2].removesuffix(".json")) if names else None
    return range(newest.version if oldest is None else oldest, newest.version + 1)


def _ask_following(session: Session, read: Reread, before: Timeline, value: Timeline) -> None:
    """Check the invariants of two successive versions, ignoring moves to segments.

    Versions of older releases are skipped, because these had fewer invariants.
    """
    if {before.format, value.format} != {FORMAT}:
        read.has_older = True
        return
    try:
        fresh = session.run(fresh_completions(value))
    except (SegmentGoneError, StorageUnavailableError):
        return
    if value.is_restore_of(before):
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


def _read_plans(session: Session, read: Reread) -> None:
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
    notes = [stat for stat in session.store.list(PLANS) if stat.path.startswith(FAILURES)]
    now_ms = session.looked_ms() if notes else 0
    for note in notes:
        if note.size or not counts(note, now_ms):
            said = "a note of a failed compaction is old or not empty: planners ignore the note"
            read.hints.append(finding("hint", note.path, f"{said}. bytes={note.size}"))


def _plan_at(session: Session, read: Reread, check: str, path: str, decode: Callable[[bytes, str], P]) -> P | None:
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
