"""Choose the objects that a table's copy needs, and the versions of the copy. Pure functions.

    the source     … n ───────────────────────── m
    its copy         n ─ bridge ─ bridge ─ … ─── m        each put if absent

A copy is the source's value at one moment, byte for byte, with its objects. When the copy moves from version n to m,
bridges with the contents of n fill the gap, so writers race for the next version as usual (`events.copy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crdt_mor.model.file_ids import FIXED
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.planners.clean import needless_files


def files_needed(value: Timeline, completions: Sequence[Completion]) -> list[DataFile]:
    """Return the data files that kept views of `value` need, except those that a clean may remove."""
    retention = value.retention
    needless = {f.path for f in needless_files(value, completions, retention.since, dict(retention.groups))}
    files = {file.path: file for c in completions for file in c.files if file.path not in needless}
    return [files[path] for path in sorted(files)]


def is_over(value: Timeline, instant: InstantTime) -> bool:
    is_open = value.find_pending(instant) is not None or value.find_plan(instant) is not None
    return instant <= value.clock and not is_open


def differs_only_in_clocks(value: Timeline, other: Timeline) -> bool:
    """Return True if two versions of a table differ only in their clocks."""
    return (
        _without_clocks(value) == _without_clocks(other)
        and _commit_counts(value) == _commit_counts(other)
        and _has_same_newest_commit(value, other)
    )


def _without_clocks(value: Timeline) -> Timeline:
    return replace(
        value, version=0, nonce="", clock=EPOCH, swept=EPOCH, completions=(), segments=(), posts=(), tokens_noted=EPOCH,
        retention=replace(value.retention, dropped=EPOCH, dropped_count=0), file_ids=FIXED,
        schema=value.schema_object or value.schema,
    )  # fmt: skip


def _commit_counts(value: Timeline) -> tuple[object, ...]:
    count = sum(s.count for s in value.segments) + len(value.completions) + value.retention.dropped_count
    ids = value.file_ids
    return count, ids.stored, ids.groups if ids.stored is None else ()


def _has_same_newest_commit(value: Timeline, other: Timeline) -> bool:
    """Return True if both values have the same newest commit. Inside a segment only its time can be compared."""
    (time, commits), (other_time, others) = _newest(value), _newest(other)
    return time == other_time and (not commits or not others or commits == others)


def _newest(value: Timeline) -> tuple[InstantTime, set[tuple[InstantTime, str]]]:
    times = (*(c.completed for c in value.completions), *(s.last for s in value.segments))
    newest = max(times, default=value.retention.dropped)
    return newest, {(c.requested, c.nonce) for c in value.completions if c.completed == newest}


def bridge(tail: Timeline, nonce: str) -> Timeline:
    return replace(tail, version=tail.version + 1, nonce=nonce, format=FORMAT)
