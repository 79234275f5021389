"""What is true of the value of an event before and after completions are moved from it to segments.

Moving them is no event: the version that is put is the value after it, so nothing that the event said may be lost.
"""

from __future__ import annotations

from dataclasses import replace

from crdt_mor.model.instant import EPOCH
from crdt_mor.model.timeline import Timeline


def sealing_changes_nothing_else(event: Timeline, sealed: Timeline) -> bool:
    """Sealing moves completions to segments, and drops what nobody needs; all else is as the event has it."""
    if event is sealed:
        return True
    dropped = replace(event.retention, dropped=sealed.retention.dropped, dropped_count=sealed.retention.dropped_count)
    moved = replace(sealed, completions=event.completions, segments=event.segments)
    return moved == replace(event, retention=dropped)


def completions_are_carried_or_sealed(event: Timeline, sealed: Timeline) -> bool:
    """No completion is lost, and none is counted twice: those that are no longer carried are in segments.

    What segments hold grows by just as many, less what was dropped.
    """
    if event is sealed:
        return True
    still = {c.requested: c for c in sealed.completions}
    carried = [c for c in event.completions if c.requested in still]
    held = [sum(segment.count for segment in value.segments) for value in (event, sealed)]
    dropped = sealed.retention.dropped_count - event.retention.dropped_count
    moved = len(event.completions) - len(carried)
    return carried == list(sealed.completions) and dropped >= 0 and held[1] == held[0] + moved - dropped


def segments_never_change(event: Timeline, sealed: Timeline) -> bool:
    """A segment that is still named is the very segment: its object is immutable, and many values name it.

    One that is no longer named has been rolled up into a new one, or was dropped.
    """
    if event.segments == sealed.segments:
        return True
    before = {s.name: s for s in event.segments}
    after = {s.name: s for s in sealed.segments}
    lost, new = before.keys() - after.keys(), after.keys() - before.keys()
    dropped = sealed.retention.dropped_count > event.retention.dropped_count
    return all(before[name] == after[name] for name in before.keys() & after.keys()) and (
        not lost or bool(new) or dropped
    )


def only_what_may_go_is_dropped(event: Timeline, sealed: Timeline) -> bool:
    """What was dropped completed at or before the time up to which the event lets commits go."""
    old, new = event.retention, sealed.retention
    return new.dropped <= old.dropped and (old.dropped_count == new.dropped_count or new.dropped > EPOCH)
