"""Savepoints and restores, as protocol steps: each is one event.

A restore's plan lists all dropped instants and files. Plan and segments are put before the version, under names of the
attempt, and deleted if the attempt loses its race. Any process carries the plan out (`hudi.restore`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from crdt_mor.errors import InvalidInputError
from crdt_mor.events.migration import require_restorable
from crdt_mor.hudi.adoption import adopt, foreign_completions
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.hudi.restore import HudiFiles, dropped_by_restores, hudi_files_in
from crdt_mor.log.deciding import deciding
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import plan_path, segment_path
from crdt_mor.log.segments import Contents, SegmentName, put_chunks, read_once
from crdt_mor.log.steps import Delete, Nonce, Put, Steps, put_surely
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.restore import Restore
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment, superseded_at
from crdt_mor.planners.packing import in_chunks
from crdt_mor.planners.restore import RestorePlan, is_dropped, newest_commit, plan_restore, restored, save, unsave


def make_savepoint(
    publisher: TablePublisher, known_tail: Timeline, name: str, comment: str, author: Author | None
) -> Steps[tuple[Timeline, Savepoint]]:
    """Name the table's current contents. Raises `InvalidInputError` if the name is taken."""
    nonce = yield Nonce()
    contents: Contents = {}

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        if any(s.nonce == nonce for s in tail.savepoints):
            return None
        newest = newest_commit((yield from _completions(tail, contents)))
        return save(tail, nonce, wall_ms, name, comment, author, newest)

    known_tail = yield from adopt(publisher, known_tail)  # the savepoint contains Hudi's commits
    value = yield from publisher.publish(derive, known_tail)
    made = next((s for s in value.savepoints if s.nonce == nonce), None)
    if made is None:
        raise InvalidInputError(
            f"another process dropped this savepoint right after its creation. Create the savepoint again. {name=}"
        )
    return value, made


def drop_savepoint(
    publisher: TablePublisher, known_tail: Timeline, name: str
) -> Steps[tuple[Timeline, Savepoint | None]]:
    """Drop a savepoint, then its files in Hudi's timeline; None if there is no such name. A sweep removes leftovers."""
    nonce = yield Nonce()
    found: Savepoint | None = None

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        nonlocal found
        savepoint = tail.find_savepoint(name)
        found = found if savepoint is None else savepoint  # already gone if an attempt's reply was lost
        return None if savepoint is None else unsave(tail, nonce, wall_ms, name)

    value = yield from publisher.publish(derive, known_tail)
    with deciding(is_made=found is not None):
        for path in publisher.projector.savepoint_paths(found) if found is not None else ():
            yield Delete(path)
    return value, found


@dataclass(frozen=True, slots=True)
class RestoreDone:
    """A restore's entry and plan; None if nothing was to be done. before: the value it derives from."""

    value: Timeline
    restore: Restore | None = None
    plan: RestorePlan | None = None
    before: Timeline | None = None


Target = Callable[[Timeline], InstantTime]
"""Returns the completion time to restore to; raises if there is none."""


def restore(
    publisher: TablePublisher,
    known_tail: Timeline,
    target: Target,
    listed_paths: Collection[str],
    saved: Collection[str],
    author: Author | None,
) -> Steps[RestoreDone]:
    nonce = yield Nonce()
    written: list[str] = []
    contents: Contents = {}
    made: tuple[RestorePlan, Timeline] | None = None
    foreign = False

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        nonlocal made, foreign
        if any(r.nonce == nonce for r in tail.restores):
            return None
        foreign = bool((yield from foreign_completions(publisher.projector, tail)).completions)
        if foreign:
            return None
        require_restorable(tail)
        completions = yield from _completions(tail, contents)
        plan = plan_restore(tail, completions, target(tail), wall_ms, listed_paths, saved)
        if is_nothing(plan, tail):
            return None
        attempt = yield Nonce()
        path = plan_path(plan.requested, attempt)
        written.append(path)
        yield from put_surely(Put(path, plan.encode()))
        segments = yield from _cut_segments(tail, completions, plan.to, contents, attempt, written)
        made = plan, tail
        buckets = publisher.projector.config.buckets
        active = yield from hudi_files_in(publisher.projector.folder)
        return restored(tail, nonce, attempt, plan, path, completions, segments, author, buckets, active)

    while True:
        known_tail = yield from adopt(publisher, known_tail)
        value = yield from publisher.publish(derive, known_tail)
        if not foreign:
            break
    entry = next((r for r in value.restores if r.nonce == nonce), None)
    named = {segment_path(s.name) for s in value.segments} | {entry.path if entry is not None else ""}
    with deciding(is_made=entry is not None):
        for path in written:
            if path not in named:
                yield Delete(path)  # of a lost attempt
    return RestoreDone(value) if entry is None or made is None else RestoreDone(value, entry, *made)


def files_of_dropped(publisher: TablePublisher, value: Timeline) -> Steps[HudiFiles]:
    """Return the files of dropped instants that are left in Hudi's timeline."""
    hudi_files = yield from hudi_files_in(publisher.projector.folder)
    instants = {c.requested for c in (yield from all_completions(value))}
    instants |= {p.requested for p in value.pending} | {plan.barrier for plan in value.plans}
    dropped = yield from dropped_by_restores(value, hudi_files, instants)
    return {requested: hudi_files[requested] for requested in dropped}


def is_nothing(plan: RestorePlan, value: Timeline) -> bool:
    return not (plan.dropped or value.pending or any(p.action != "clean" for p in value.plans))


def _completions(tail: Timeline, contents: Contents) -> Steps[list[Completion]]:
    found: list[Completion] = []
    for segment in tail.segments:
        found += yield from read_once(segment, contents)
    return [*found, *tail.completions]


def _cut_segments(
    tail: Timeline,
    completions: Sequence[Completion],
    to: InstantTime,
    contents: Contents,
    attempt: str,
    written: list[str],
) -> Steps[list[Segment]]:
    """Return the segments without dropped completions.

    Segments superseded after `to` are packed again, too: without the dropped compaction they are needed.
    """
    kept = [s for s in tail.segments if not _is_cut(s, contents[s.name], to)]
    run = [c for s in tail.segments if s not in kept for c in contents[s.name] if not is_dropped(c, to)]
    ends = superseded_at([c for c in completions if not is_dropped(c, to)])
    name = SegmentName(tail.version, attempt, 1, "live", written)
    live = in_chunks([c for c in run if ends[c.requested] is None], ends)
    past = in_chunks([c for c in run if ends[c.requested] is not None], ends)
    segments = [*kept, *(yield from put_chunks(name, live))]
    segments += yield from put_chunks(SegmentName(tail.version, attempt, 1, "past", written), past)
    return sorted(segments, key=lambda s: (-s.level, s.first, s.name))


def _is_cut(segment: Segment, completions: Sequence[Completion], to: InstantTime) -> bool:
    again = segment.superseded is not None and segment.superseded > to
    return again or any(is_dropped(c, to) for c in completions)
