"""Carry posts: a process commits whole writes of others that have waited too long (`planners.way`).

The version is a group without a member of its publisher. Every event may carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crdt_mor.events import group, one_event
from crdt_mor.events.handle import Handle
from crdt_mor.events.one_event import ExpectedObject, LoneWrite
from crdt_mor.events.views import Views
from crdt_mor.log.combining import Load
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.posts import Post
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Steps
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline

MakeGroup = Callable[[Handle, Timeline, InstantTime, Sequence[Post]], LoneWrite | None]
"""(handle, tail, claimed time, posts) -> the commit of the fitting posts, or None."""

_makers: list[MakeGroup] = []


def set_maker(make: MakeGroup) -> MakeGroup:
    """Register how posts become a commit: `write` knows, and `events` may not import it."""
    _makers[:] = [make]
    return make


def carry(handle: Handle, views: Views, tail: Timeline, load: Load, shortcuts: Shortcuts) -> Steps[Timeline | None]:
    """Commit posts of others; see `log.publish.Carry`."""
    if not _makers or not handle.config.ours or views.has_foreign:
        return tail  # Hudi's own writers may be active: their commits are adopted first
    if handle.settings_stat is None:
        handle.settings()
    if not one_event.may_be_alone(tail, None, handle.author()):
        return tail

    def make(following: Timeline, requested: InstantTime, posts: Sequence[Post]) -> LoneWrite | None:
        return _makers[0](handle, following, requested, posts)

    expected = ExpectedObject(PROPERTIES, handle.settings_stat)
    return (yield from group.carry(handle.publisher, tail, load, make, expected, shortcuts))
