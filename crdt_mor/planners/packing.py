"""Which completions share a segment, and which ones a value need not name any more.

    live      some of its commits the latest snapshot needs: read whenever a table is opened
    history   a compaction has superseded all of them: read by time travel and changes alone

A segment that was live when it was written fills with commits that compactions have superseded since, which only its
own bytes show. So a clean, when it completes, has the live segments looked through: where much of them is stale, or
where they are many and small, they are packed anew. And what no view needs that the table still answers for goes, see
`droppable_until`. Sealing alone rolls up what is small, level by level, and never looks at what is large again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment, bytes_of, superseded_at

SEGMENT_BYTES_MAX = 1 << 22
"""About how many bytes of completions share a segment. A single commit may have more."""

SEGMENT_BYTES_FULL = 1 << 20
"""From this size on a segment is not rolled up with others: that would read and write much for one name less."""

SMALL_LIVE_MAX = 4
"""Live segments below `SEGMENT_BYTES_FULL` that a clean leaves as they are."""

_COMPLETION_BYTES = 250
"""About what a completion takes besides what `bytes_of` counts."""

Ends = Mapping[InstantTime, InstantTime | None]
"""By requested time: from when on no snapshot needs a commit; None: some snapshot needs it now."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Completions for one segment, in completion order. `superseded` is that of the segment."""

    completions: tuple[Completion, ...]
    superseded: InstantTime | None


def droppable_until(value: Timeline, deletion: InstantTime, archived: InstantTime) -> InstantTime:
    """Up to when completed commits may go from a value: those that no view at this time or later needs.

    deletion: from then on data files are kept, for views by completion. Those by request are kept from `stable_since`.
    archived: Hudi's timeline directory has none of the commits requested up to then, and none of them is adopted again.
    What completed after a savepoint stays as well, since the table may be restored to it.
    """
    return min([deletion, value.retention.stable_since, archived, *(s.at for s in value.savepoints)])


def is_droppable(segment: Segment, until: InstantTime) -> bool:
    """Whether no commit of a segment is needed by a view as of `until` or later, or by what changed since then."""
    return segment.superseded is not None and segment.superseded <= until and segment.last <= until


def in_chunks(completions: Iterable[Completion], ends: Ends) -> list[Chunk]:
    """Completions as segments of bounded size: all of them live, or all of them history."""
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
    """About how many bytes completions take in a segment."""
    return bytes_of(completions) + _COMPLETION_BYTES * len(completions)


@dataclass(frozen=True, slots=True)
class Repacking:
    """What a clean makes of the segments.

    kept: segments that stay as they are. live, history: new ones. dropped: when the last commit of those that are
    dropped completed, and how many there are; EPOCH and 0 where there are none.
    """

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
    """The segments of a value after a clean.

    contents: of the live segments at least, by name. carried: what the value itself carries. until: `droppable_until`.
    """
    gone = [segment for segment in segments if is_droppable(segment, until)]
    live_segments = [segment for segment in segments if segment.superseded is None]
    ends = superseded_at([*(c for segment in live_segments for c in contents[segment.name]), *carried])
    again = _worth_packing(live_segments, contents, ends)
    run = [c for segment in again for c in contents[segment.name]]
    live = [c for c in run if ends[c.requested] is None]
    stale = [(c, end) for c in run if (end := ends[c.requested]) is not None]
    drop = [c for c, end in stale if end <= until and c.completed <= until]
    history = [c for c, end in stale if end > until or c.completed > until]
    last = max([*(segment.last for segment in gone), *(c.completed for c in drop)], default=EPOCH)
    count = sum(segment.count for segment in gone) + len(drop)
    return Repacking(
        tuple(segment for segment in segments if segment not in gone and segment not in again),
        tuple(in_chunks(live, ends)),
        tuple(in_chunks(history, ends)),
        (last, count),
    )


def _worth_packing(live: Sequence[Segment], contents: Mapping[str, Sequence[Completion]], ends: Ends) -> list[Segment]:
    """The live segments that are mostly stale; and the small ones, where there are many of them."""
    small = [segment for segment in live if segment.size < SEGMENT_BYTES_FULL]
    few = len(small) <= SMALL_LIVE_MAX
    return [s for s in live if (s in small and not few) or _is_mostly_stale(contents[s.name], ends)]


def _is_mostly_stale(completions: Sequence[Completion], ends: Ends) -> bool:
    return 2 * weigh([c for c in completions if ends[c.requested] is not None]) >= weigh(completions)


def _latest(ends: Iterable[InstantTime | None]) -> InstantTime | None:
    latest = EPOCH
    for end in ends:
        if end is None:
            return None
        latest = max(latest, end)
    return latest
