"""Which objects of a table its copy needs, and what follows what in a copy: pure functions of values.

    the source     … n ───────────────────────── m
    its copy         n ─ bridge ─ bridge ─ … ─── m        each put if absent

A copy is the source's value at one moment, byte for byte, and the objects that it names. When the copy moves on from
version n to version m, a bridge takes the place of each version in between: it says what n says. So the versions of
the copy have no gap, and a process that writes to the copy meets the one that moves it at the next version, where one
put wins.
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
    """The data files that some view needs which `value` answers for, now or by its history; by path.

    Those that a clean may have removed, or removes next, are not among them. completions: all that are known of it.
    """
    retention = value.retention
    needless = {f.path for f in needless_files(value, completions, retention.since, dict(retention.groups))}
    files = {file.path: file for c in completions for file in c.files if file.path not in needless}
    return [files[path] for path in sorted(files)]


def is_over(value: Timeline, instant: InstantTime) -> bool:
    """Whether an instant has ended by `value`, or is none of its table's: no later version completes it."""
    is_open = value.find_pending(instant) is not None or value.find_plan(instant) is not None
    return instant <= value.clock and not is_open


def says_the_same(value: Timeline, other: Timeline) -> bool:
    """Whether two versions of one table differ in no event, but for those that move its clock alone."""
    return _said(value) == _said(other) and _counted(value) == _counted(other) and _ends_as(value, other)


def _said(value: Timeline) -> Timeline:
    return replace(
        value, version=0, nonce="", clock=EPOCH, swept=EPOCH, completions=(), segments=(), posts=(), tokens_noted=EPOCH,
        retention=replace(value.retention, dropped=EPOCH, dropped_count=0), file_ids=FIXED,
    )  # fmt: skip


def _counted(value: Timeline) -> tuple[object, ...]:
    """How many commits there were until this version, also those that were dropped from it since; and its file ids."""
    count = sum(s.count for s in value.segments) + len(value.completions) + value.retention.dropped_count
    ids = value.file_ids
    return count, ids.stored, ids.groups if ids.stored is None else ()


def _ends_as(value: Timeline, other: Timeline) -> bool:
    """Whether two values have the same newest commit. Where segments have it, the time has to do that says which."""
    (time, commits), (other_time, others) = _newest(value), _newest(other)
    return time == other_time and (not commits or not others or commits == others)


def _newest(value: Timeline) -> tuple[InstantTime, set[tuple[InstantTime, str]]]:
    """When the newest commit was completed, also one that was dropped since; and which it is, where that is carried."""
    times = (*(c.completed for c in value.completions), *(s.last for s in value.segments))
    newest = max(times, default=value.retention.dropped)
    return newest, {(c.requested, c.nonce) for c in value.completions if c.completed == newest}


def bridge(tail: Timeline, nonce: str) -> Timeline:
    """The version after `tail`, which says what that says."""
    return replace(tail, version=tail.version + 1, nonce=nonce, format=FORMAT)
