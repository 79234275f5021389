"""Find the outcome of an instant, in a value and its segments.

A missing instant was given up only if it cannot be a dropped commit, see `may_be_dropped`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType

from crdt_mor.log.paths import version_path
from crdt_mor.log.segments import SegmentGoneError, read_segment, with_objects
from crdt_mor.log.steps import Steps, read_named
from crdt_mor.log.tail import Tail, find_tail, first_kept
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.posts import PostName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending

ValueOf = NewType("ValueOf", Timeline)
"""The value of the version in which a write began, without commits requested later.

A `Tail` may contain such commits, if another process published the begin. So writes that compute from reads take this.
"""


def value_of(begun: Pending, tail: Tail) -> Steps[ValueOf | None]:
    """Return the value in which a write of `tail` began, or None if that version is not kept."""
    if tail.version == begun.version:
        return ValueOf(tail)
    path = version_path(begun.version)
    data = yield from read_named(path)
    if data is None or begun.version < first_kept((yield from find_tail(tail))):
        return None
    try:
        return ValueOf((yield from with_objects(Timeline.decode(data, path), tail)))
    except SegmentGoneError:
        return None


def is_given_up_in(instant: InstantTime, tail: Timeline) -> Steps[bool]:
    """Return True if a once pending instant is rolled back, cancelled or forgotten. Nobody needs a forgotten commit's
    files.
    """
    if tail.find_pending(instant) is not None or tail.find_plan(instant) is not None:
        return False
    if tail.find_rolled_back(instant) is not None:
        return True
    completion = yield from find_completion(instant, tail)
    return completion is None


def may_be_dropped(requested: InstantTime, tail: Timeline) -> bool:
    """Return True if an instant missing from `tail` may be a dropped commit."""
    return requested < tail.retention.dropped


def find_completion(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    return (yield from _find_after(requested, lambda completion: completion.requested == requested, tail))


def find_rollback(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    return (yield from _find_after(requested, lambda completion: completion.undone == requested, tail))


def find_completion_by_nonce(nonce: str, since: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    return (yield from _find_after(since, lambda completion: completion.nonce == nonce, tail))


def find_overwrite(write: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    def became(completion: Completion) -> bool:
        return completion.overwriting is not None and completion.overwriting.write == write

    return (yield from _find_after(write, became, tail))


def find_taken(post: PostName, since: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    return (yield from _find_after(since, lambda completion: completion.find_member(post) is not None, tail))


def _find_after(since: InstantTime, wanted: Callable[[Completion], bool], tail: Timeline) -> Steps[Completion | None]:
    while True:
        try:
            for completion in reversed(tail.completions):
                if wanted(completion):
                    return completion
            for segment in reversed(tail.segments):
                if segment.last > since:
                    for completion in (yield from read_segment(segment)):
                        if wanted(completion):
                            return completion
            return None
        except SegmentGoneError:
            tail = yield from newer_value(tail)


def all_completions(value: Timeline) -> Steps[list[Completion]]:
    """Return the completions of a value and its segments, except those dropped since."""
    completions = {c.requested: c for c in value.completions}
    tail = value
    while True:
        try:
            for segment in tail.segments:
                completions |= {c.requested: c for c in (yield from read_segment(segment))}
        except SegmentGoneError:
            tail = yield from newer_value(tail)
            continue
        # A later value contains all earlier completions.
        if tail is not value:
            completions |= {c.requested: c for c in tail.completions}
        own = {c.requested for c in value.completions}
        return [c for c in completions.values() if tail is value or c.version <= value.version or c.requested in own]


def newer_value(value: Timeline) -> Steps[Tail]:
    """Return the tail after a segment of an old value was swept. Raises if the tail misses the segment, too."""
    tail = yield from find_tail(value)
    if tail.version == value.version:
        for segment in value.segments:
            yield from read_segment(segment)
    return tail
