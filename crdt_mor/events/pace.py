"""Choose how a process publishes beside others: alone, posted or the long way, at once or after giving way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from crdt_mor.errors import CrdtMorError
from crdt_mor.events import group, one_event, sweep
from crdt_mor.events.group import Draft, GroupCommit
from crdt_mor.events.handle import Handle
from crdt_mor.events.one_event import ExpectedObject, FollowedVersion, LoneCommit, LoneWrite
from crdt_mor.events.sweep import is_sweep_due
from crdt_mor.events.views import Views
from crdt_mor.log import giving_way
from crdt_mor.log.combining import Crowd
from crdt_mor.log.opening import FirstLook
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.posts import FRESH_MS
from crdt_mor.log.projection import Projected
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import claim_after
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_posts
from crdt_mor.planners.way import BUSY_MS, STALE_MS, Seen
from crdt_mor.store.protocol import afterwards

V = TypeVar("V", bound=Timeline)

_PARTITIONS_NOTED: Final = 4096

UPKEEP_EVERY_MS: Final = 60_000
"""How often a process without begins looks for silent writers while other writes are pending."""


class Pace:
    """A session's memory of its races, other writers and known objects. Thread-safe."""

    def __init__(self, handle: Handle, views: Views, crowd: Crowd) -> None:
        self._handle = handle
        self._views = views
        self._lock = threading.Lock()
        self._upkept_ms = 0
        self._projected = -1
        self.has_published = False
        self._looked_ms = 0
        self._partitions: dict[str, None] = {}
        self.crowd = crowd

    def meet(self, first: FirstLook) -> None:
        """Note from the listings at opening whether other writers are active, as a hint by this machine's clock."""
        now_ms = self._looked_ms = self._handle.environment.now_ms()
        posted = any(abs(now_ms - stat.modified_ms) <= FRESH_MS for stat in first.posts)
        published = any(abs(now_ms - stat.modified_ms) <= BUSY_MS for stat in first.versions[-1:])
        self.crowd.is_crowded = posted or published

    def before_long_way(self) -> Shortcuts:
        self.give_way()
        self._upkept_ms = self._handle.environment.now_ms()
        return self.shortcuts(self._projected)

    def give_way(self) -> None:
        """Let a process that asks for a turn publish first. In a bucket, only if its request was noticed before."""
        if not self._handle.is_far or self.crowd.is_asked:
            with suppress(CrdtMorError):  # only a hint
                self._handle.run(giving_way.give_way())
            self.crowd.is_asked = False

    def shortcuts(self, helped: int) -> Shortcuts:
        is_far = self._handle.is_far
        return Shortcuts(helped=helped, late=[] if is_far else None, crowd=self.crowd)

    def of_service(self, *, looked: bool) -> Shortcuts:
        """Return the shortcuts of an event without posts, after the known tail."""
        return replace(self.shortcuts(self._projected), looked=looked, crowd=None)

    def published(self, value: V, shortcuts: Shortcuts = NO_SHORTCUTS) -> V:
        self.projected(value, shortcuts)
        self.has_published = True
        self._looked_ms = self._handle.environment.now_ms()
        return value

    def projected(self, value: V, shortcuts: Shortcuts = NO_SHORTCUTS) -> V:
        """Remember a projected value, and check its late files in the background, at the latest before the process
        ends.
        """
        self._handle.remember(value)
        with self._lock:
            self._projected = max(self._projected, value.version)
        if shortcuts.late:
            afterwards(self._handle.store, partial(self._look_again, tuple(shortcuts.late)))
        return value

    def _look_again(self, late: Sequence[Projected]) -> None:
        with suppress(CrdtMorError):  # a sweep does the rest
            self._handle.run(self._handle.publisher.look_again(late))

    def follow(self, author: Author, token: tuple[str, int] | None, *, reads: bool = False) -> FollowedVersion | None:
        """Return the version that a small write may follow in one event, or None for the long way.

        reads: the write reads the table, so it looks for the newest version and for Hudi's commits before it.
        """
        self.give_way()
        value, newest = self._handle.known_tail(), None
        is_crowded = self.crowd.is_crowded and knows_posts(value.format)
        if reads or (not self._handle.is_far and (self.is_stale or not is_crowded)):
            value = newest = self._handle.tail()  # in a bucket the put tells, and a post looks anyway
        self._views.look_before_write(newest, always=reads)
        now_ms = self._handle.environment.now_ms()
        if self._views.has_foreign or not one_event.may_be_alone(value, token, author):
            return None
        expected = ExpectedObject(PROPERTIES, self._handle.settings_stat)
        seen = Seen(is_crowded=is_crowded, is_far=self._handle.is_far)
        return FollowedVersion(value, claim_after(value.clock, now_ms), expected, seen)

    def seen(self, partitions: Iterable[str]) -> frozenset[str]:
        """Return the partitions in which this session saw a data file."""
        return frozenset(partitions) & self._partitions.keys()

    def note_seen(self, partitions: Iterable[str]) -> None:
        with self._lock:
            self._partitions.update(dict.fromkeys(partitions))
            while len(self._partitions) > _PARTITIONS_NOTED:
                del self._partitions[next(iter(self._partitions))]

    def commit_alone(
        self, followed: FollowedVersion, write: LoneWrite, draft: Callable[[], Draft | None]
    ) -> LoneCommit | GroupCommit | None:
        """Commit a write in one event, with posts of others; None if another process was faster."""
        handle, shortcuts = self._handle, self.shortcuts(self._projected)
        is_stale = handle.is_far and (self.is_stale or self.crowd.has_met)  # on a disk it has just looked
        steps = group.commit_alone(
            handle.publisher, followed.value, write, draft, self.crowd, followed.expected, shortcuts, is_stale=is_stale
        )
        outcome = handle.run(steps)
        if not isinstance(outcome, LoneCommit):
            if outcome is not None:
                self.published(outcome)
            self.crowd.is_crowded = True
            return None
        self.published(outcome.value, shortcuts)
        self._upkeep(outcome.value)
        return group.of_alone(outcome)

    @property
    def is_stale(self) -> bool:
        return abs(self._handle.environment.now_ms() - self._looked_ms) > STALE_MS

    def is_changed(self, followed: FollowedVersion) -> bool:
        """Return True if the properties changed after the write was made, so it must not be posted."""
        if self._handle.known_tail().version > followed.value.version:
            return False
        return self._handle.store.stat(followed.expected.path) != followed.expected.stat

    def commit_posted(self, expected: ExpectedObject, draft: Draft) -> GroupCommit | None:
        """Post a write and wait for its commit; None if the write must go the long way."""
        handle, left = self._handle, list[str]()
        shortcuts = self.shortcuts(self._projected)
        steps = group.commit(handle.publisher, handle.known_tail(), draft, self.crowd, expected, shortcuts, left)
        try:
            outcome = handle.run(steps)
        finally:
            afterwards(handle.store, partial(self._remove, tuple(left)))
        if not isinstance(outcome, GroupCommit):
            self.published(outcome)
            return None
        self.published(outcome.value, shortcuts)
        if outcome.is_own:
            self._upkeep(outcome.value)
        return outcome

    def _upkeep(self, value: Timeline) -> None:
        """Do upkeep after a commit in one event: no begin does it."""
        handle, now_ms = self._handle, self._handle.environment.now_ms()
        is_look_due = value.pending and abs(now_ms - self._upkept_ms) > min(UPKEEP_EVERY_MS, handle.expiry_ms)
        if not is_look_due and not is_sweep_due(value, now_ms):
            return
        self._upkept_ms = now_ms

        def upkeep() -> None:
            with suppress(Exception):  # the write is committed, whatever class the store raises
                handle.remember(handle.run(sweep.upkeep(handle.publisher, value, handle.expiry_ms)))

        afterwards(handle.store, upkeep)

    def _remove(self, paths: Sequence[str]) -> None:
        with suppress(Exception):  # must not replace the outcome of the write; a sweep removes closed posts
            for path in paths:
                self._handle.store.delete(path)
