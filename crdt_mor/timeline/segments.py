"""Segments: immutable objects to which a value's older completions are moved, so that the value stays small.

    completions of the value ──seal──► a segment of level 0 ──16 of a level──► one of the next level, and so on

Rolling up parts a run in two: completions that the latest snapshot needs, and completions that only history needs,
whose files a compaction has superseded. So opening the latest snapshot reads few segments however long the history is.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.errors import FormatError
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import COMPLETIONS_BYTES_MAX, COMPLETIONS_MAX, SEGMENTS_MAX, Timeline
from crdt_mor.model.timeline_json import decode_segment, encode_segment
from crdt_mor.model.timeline_parts import Completion, Segment, bytes_of, superseded_at
from crdt_mor.timeline.paths import segment_path
from crdt_mor.timeline.steps import Put, Read, Steps, put_surely


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
