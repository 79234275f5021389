"""Group completions into segments, and drop completions from the value.

    live      the latest snapshot needs some of its commits: read on every open
    history   compactions superseded all its commits: read only by time travel and changes

Only a live segment's contents show how many of its commits are superseded. A completed clean reads them and repacks
stale segments, or many small ones, and drops completions that no kept view needs. Sealing only merges small segments,
and never reads large ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment, bytes_of, superseded_at

SEGMENT_BYTES_MAX = 1 << 22
"""Approximate bytes of completions per segment; one commit may exceed it."""

SEGMENT_BYTES_FULL = 1 << 20
"""Larger segments are not rolled up: this would read and write much to save a single name."""

SMALL_LIVE_MAX = 4
"""Live segments below `SEGMENT_BYTES_FULL` that a clean tolerates."""

_COMPLETION_BYTES = 250
SupersededTimes = Mapping[InstantTime, InstantTime | None]
"""By requested time: when the last snapshot stopped needing a commit, or None."""


@dataclass(frozen=True, slots=True)
class Chunk:
    completions: tuple[Completion, ...]
    superseded: InstantTime | None


def droppable_until(value: Timeline, deletion: InstantTime, archived: InstantTime) -> InstantTime:
    """Return the time up to which completed commits may be dropped: no view from then on needs them.

    Commits after a savepoint stay, because the table may be restored to it.

    Args:
        deletion: data files of completion-time views are kept from here; request-time views from `stable_since`.
        archived: Hudi's timeline directory contains no earlier commit, so none is adopted again.
    """
    return min([deletion, value.retention.stable_since, archived, *(s.at for s in value.savepoints)])


def is_droppable(segment: Segment, until: InstantTime) -> bool:
    """Return True if no view or changes from `until` on need a commit of the segment."""
    return segment.superseded is not None and max(segment.superseded, segment.last) <= until


def in_chunks(completions: Iterable[Completion], ends: SupersededTimes) -> list[Chunk]:
    parts: list[list[Completion]] = []
    size = 0
    for completion in sorted(completions, key=lambda c: c.completed):
        weight = weigh([completion])
        if not parts or size + weight > SEGMENT_BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(completion)
        size += weight
    return [Chunk(tuple(part), _latest(ends[c.requested] for c in part)) for part in parts]


def weigh(completions: Sequence[Completion]) -> int:
    return bytes_of(completions) + _COMPLETION_BYTES * len(completions)


@dataclass(frozen=True, slots=True)
class Repacking:
    """A clean's changes of the segments. `dropped`: the last dropped completion time, and their number."""

    kept: tuple[Segment, ...]
    live: tuple[Chunk, ...]
    history: tuple[Chunk, ...]
    dropped: tuple[InstantTime, int]


def repack(
    segments: Sequence[Segment],
    contents: Mapping[str, Sequence[Completion]],
    carried: Sequence[Completion],
    until: InstantTime,
) -> Repacking:
    """Return the segments after a clean. `contents`: completions by live segment, `carried`: the value's own."""
    live = [segment for segment in segments if segment.superseded is None]
    ends = superseded_at([*_completions_of(live, contents), *carried])
    repacked = _worth_packing(live, contents, ends)
    gone = [segment for segment in segments if is_droppable(segment, until)]
    needed, history, dropped = _by_need(_completions_of(repacked, contents), ends, until)
    return Repacking(
        tuple(segment for segment in segments if segment not in gone and segment not in repacked),
        tuple(in_chunks(needed, ends)),
        tuple(in_chunks(history, ends)),
        _dropped(gone, dropped),
    )


def _completions_of(segments: Iterable[Segment], contents: Mapping[str, Sequence[Completion]]) -> list[Completion]:
    return [completion for segment in segments for completion in contents[segment.name]]


def _by_need(
    completions: Iterable[Completion], ends: SupersededTimes, until: InstantTime
) -> tuple[list[Completion], list[Completion], list[Completion]]:
    """Divide completions into those of the latest snapshot, of older views from `until` on, and of no kept view."""
    needed, history, dropped = list[Completion](), list[Completion](), list[Completion]()
    for completion in completions:
        end = ends[completion.requested]
        if end is None:
            needed.append(completion)
        elif max(end, completion.completed) > until:
            history.append(completion)
        else:
            dropped.append(completion)
    return needed, history, dropped


def _dropped(segments: Sequence[Segment], completions: Sequence[Completion]) -> tuple[InstantTime, int]:
    last = max([*(segment.last for segment in segments), *(c.completed for c in completions)], default=EPOCH)
    return last, sum(segment.count for segment in segments) + len(completions)


def _worth_packing(
    live: Sequence[Segment], contents: Mapping[str, Sequence[Completion]], ends: SupersededTimes
) -> list[Segment]:
    small = [segment for segment in live if segment.size < SEGMENT_BYTES_FULL]
    few = len(small) <= SMALL_LIVE_MAX
    return [s for s in live if (s in small and not few) or _is_mostly_stale(contents[s.name], ends)]


def _is_mostly_stale(completions: Sequence[Completion], ends: SupersededTimes) -> bool:
    return 2 * weigh([c for c in completions if ends[c.requested] is not None]) >= weigh(completions)


def _latest(ends: Iterable[InstantTime | None]) -> InstantTime | None:
    latest = EPOCH
    for end in ends:
        if end is None:
            return None
        latest = max(latest, end)
    return latest
