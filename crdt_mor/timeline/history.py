"""What has become of an instant: looked up in a value, and where the value does not carry it, in its segments."""

from __future__ import annotations

from collections.abc import Callable

from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.timeline.segments import read_segment
from crdt_mor.timeline.steps import Steps
from crdt_mor.timeline.tail import find_tail


def is_given_up(instant: InstantTime, known: Timeline) -> Steps[bool]:
    """Whether an instant that was pending in `known` is rolled back or cancelled by now."""
    tail = yield from find_tail(known)
    if tail.find_pending(instant) is not None or tail.find_plan(instant) is not None:
        return False
    if tail.find_rolled_back(instant) is not None:
        return True
    completion = yield from find_completion(instant, tail)
    return completion is None


def find_completion(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of an instant, in the value or in its segments."""
    return (yield from _find_after(requested, lambda completion: completion.requested == requested, tail))


def find_rollback(requested: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of the rollback that undid a write, once its files were known to be gone."""
    return (yield from _find_after(requested, lambda completion: completion.undone == requested, tail))


def find_completion_by_nonce(nonce: str, since: InstantTime, tail: Timeline) -> Steps[Completion | None]:
    """The completion of the write that a begin with this nonce made, which was not before `since`."""
    return (yield from _find_after(since, lambda completion: completion.nonce == nonce, tail))


def _find_after(since: InstantTime, wanted: Callable[[Completion], bool], tail: Timeline) -> Steps[Completion | None]:
    """A completion after `since`, in the value or in its segments."""
    for completion in reversed(tail.completions):
        if wanted(completion):
            return completion
    for segment in reversed(tail.segments):
        if segment.last > since:
            for completion in (yield from read_segment(segment)):
                if wanted(completion):
                    return completion
    return None


def all_completions(value: Timeline) -> Steps[list[Completion]]:
    """Every completion of a value, those of its segments included."""
    completions = list(value.completions)
    for segment in value.segments:
        completions += yield from read_segment(segment)
    return completions
