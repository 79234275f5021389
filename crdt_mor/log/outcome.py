"""What has become of an instant: looked up in a value, and where the value does not carry it, in its segments.

A value may have dropped commits that no view needs any more (`planners.packing`). So an instant that is found nowhere
was given up only if it cannot have been among them, see `may_be_dropped`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType

from crdt_mor.log.paths import version_path
from crdt_mor.log.segments import SegmentGoneError, read_segment, with_file_ids
from crdt_mor.log.steps import Steps, read_named
from crdt_mor.log.tail import Tail, find_tail, first_kept
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.posts import PostName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending

ValueOf = NewType("ValueOf", Timeline)
"""The value of the version in which a write began. It holds no commit that was requested after the write.

A `Tail` may hold such commits: another process may have published the begin, and others have followed. A write that
computes from what it reads therefore takes a `ValueOf`."""


def value_of(begun: Pending, tail: Tail) -> Steps[ValueOf | None]:
    """Return the value in which a write of `tail` began, or None where that version is not kept.

    A version that is kept was not deleted, so no late put has taken its name.
    """
    if tail.version == begun.version:
        return ValueOf(tail)
    path = version_path(begun.version)
    data = yield from read_named(path)
    if data is None or begun.version < first_kept((yield from find_tail(tail))):
        return None
    try:
        return ValueOf((yield from with_file_ids(Timeline.decode(data, path), tail)))
    except SegmentGoneError:
        return None


def is_given_up(instant: InstantTime, known: Timeline) -> Steps[bool]:
    """Whether an instant that was pending in `known` is rolled back or cancelled by now.

    One whose commit may have been dropped counts as given up as well: nobody needs its files, whichever it was.
    """
    tail = yield from find_tail(known)
    return (yield from is_given_up_in(instant, tail))


def is_given_up_in(instant: InstantTime, tail: Timeline) -> Steps[bool]:
    """Whether an instant that was pending once is rolled back or cancelled, as the newest value says.

    So is one that the value does not know any more: of a commit that it has forgotten nobody needs any file.
    """
    if tail.find_pending(instant) is not None or tail.find_plan(instant) is not None:
        return False
    if tail.find_rolled_back(instant) is not None:
        return True
    completion = yield from find_completion(instant, tail)
    return completion is None


def may_be_dropped(requested: InstantTime, tail: Timeline) -> bool:
    """Whether an instant that `tail` does not have may have been a commit that the value has dropped."""
    return requested < tail.retention.dropped


def find_completion(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of an instant, in the value or in its segments."""
    return (yield from _find_after(requested, lambda completion: completion.requested == requested, tail))


def find_rollback(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of the rollback that undid a write, once its files were known to be gone."""
    return (yield from _find_after(requested, lambda completion: completion.undone == requested, tail))


def find_completion_by_nonce(nonce: str, since: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of the write that a begin with this nonce made, which was not before `since`."""
    return (yield from _find_after(since, lambda completion: completion.nonce == nonce, tail))


def find_overwrite(write: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of the overwrite that a write has become; None where it has become none."""

    def became(completion: Completion) -> bool:
        return completion.overwriting is not None and completion.overwriting.write == write

    return (yield from _find_after(write, became, tail))


def find_taken(post: PostName, since: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of the commit that took a post, which was made when the table's clock was at `since`."""
    return (yield from _find_after(since, lambda completion: completion.find_member(post) is not None, tail))


def _find_after(since: InstantTime, wanted: Callable[[Completion], bool], tail: Timeline) -> Steps[Completion | None]:
    """A completion after `since`, in the value or in its segments."""
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
    """Every completion of a value, those of its segments included, but for those that have been dropped since."""
    completions = {c.requested: c for c in value.completions}
    tail = value
    while True:
        try:
            for segment in tail.segments:
                completions |= {c.requested: c for c in (yield from read_segment(segment))}
        except SegmentGoneError:
            tail = yield from newer_value(tail)
            continue
        # Those of a later value include all of an earlier one, and more.
        if tail is not value:
            completions |= {c.requested: c for c in tail.completions}
        own = {c.requested for c in value.completions}
        return [c for c in completions.values() if tail is value or c.version <= value.version or c.requested in own]


def newer_value(value: Timeline) -> Steps[Tail]:
    """The tail, where a segment of `value` was swept since that is no longer kept; raises where the tail lacks it."""
    tail = yield from find_tail(value)
    if tail.version == value.version:
        for segment in value.segments:
            yield from read_segment(segment)
    return tail
