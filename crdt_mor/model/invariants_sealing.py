"""Invariants of sealing, which moves completions from a value to segments, and tokens to an object."""

from __future__ import annotations

from dataclasses import replace

from crdt_mor.model.instant import EPOCH
from crdt_mor.model.timeline import Timeline


def sealing_changes_nothing_else(event: Timeline, sealed: Timeline) -> bool:
    """Sealing changes only completions, segments, tokens and the marks of dropped commits."""
    dropped = replace(event.retention, dropped=sealed.retention.dropped, dropped_count=sealed.retention.dropped_count)
    moved = replace(sealed, completions=event.completions, segments=event.segments, tokens=event.tokens)
    return moved == replace(event, retention=dropped)


def completions_are_carried_or_sealed(event: Timeline, sealed: Timeline) -> bool:
    """Sealing neither loses nor duplicates completions: each stays in the value or moves to a segment."""
    still = {c.requested: c for c in sealed.completions}
    carried = [c for c in event.completions if c.requested in still]
    held = [sum(segment.count for segment in value.segments) for value in (event, sealed)]
    dropped = sealed.retention.dropped_count - event.retention.dropped_count
    moved = len(event.completions) - len(carried)
    return carried == list(sealed.completions) and dropped >= 0 and held[1] == held[0] + moved - dropped


def segments_never_change(event: Timeline, sealed: Timeline) -> bool:
    """Segments never change, because their objects are immutable and shared by many versions.

    A missing segment was rolled up, or dropped.
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
    """Sealing drops only completions up to the time that the event allows."""
    old, new = event.retention, sealed.retention
    return new.dropped <= old.dropped and (old.dropped_count == new.dropped_count or new.dropped > EPOCH)


def tokens_are_carried_or_stored(event: Timeline, sealed: Timeline) -> bool:
    """Sealing loses no token."""
    return event.tokens == sealed.tokens or set(event.tokens) == set(sealed.tokens)
