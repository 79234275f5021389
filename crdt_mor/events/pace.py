"""How one process publishes beside others: in one event or the long way, alone or posting, at once or giving way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from crdt_mor.errors import CrdtMorError
from crdt_mor.events import group, one_event, sweep
from crdt_mor.events.group import Draft, GroupCommit
from crdt_mor.events.one_event import Expected, Followed, LoneCommit, LoneWrite
from crdt_mor.events.races import Races
from crdt_mor.events.sweep import is_sweep_due
from crdt_mor.log import giving_way
from crdt_mor.log.combining import Crowd
from crdt_mor.log.opening import First
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.posts import FRESH_MS
from crdt_mor.log.projection import Projected
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import Put
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import claim_after
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_posts
from crdt_mor.store.protocol import afterwards

if TYPE_CHECKING:
    from crdt_mor.events.session import Session

V = TypeVar("V", bound=Timeline)

_PARTITIONS_NOTED: Final = 4096

BUSY_MS: Final = 1_000
"""How young the newest version is, at most, of a table in which a process that opens it expects to race."""

STALE_MS: Final = 1_000
"""For how long a process takes what it has seen of a table for news: after that it looks beside its claim in a bucket,
and before it posts on a disk."""


class Pace:
    """What a session remembers of its races, of other writers, and of what is there already. Thread-safe.

    crowd: whether others were in the way; then small writes are posted whole. In a bucket, where a look is a round
        trip, the begins and ends of other writes are posted, too.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._races = Races()
        self._projected = -1
        self._looked_ms = 0
        self._partitions: dict[str, None] = {}
        self.crowd = Crowd()

    def meet(self, first: First) -> None:
        """Note, of what was seen as the table was opened, whether others are at work: they have posted, or published.

        By this machine's clock, as it is only a hint.
        """
        now_ms = self._looked_ms = self._session.environment.now_ms()
        posted = any(abs(now_ms - stat.modified_ms) <= FRESH_MS for stat in first.posts)
        published = any(abs(now_ms - stat.modified_ms) <= BUSY_MS for stat in first.versions[-1:])
        self.crowd.is_crowded = posted or published

    def before_long_way(self) -> Shortcuts:
        """Before a write begins in an event of its own: services get their turn, and upkeep is done."""
        self.give_way()
        self._races.upkeep(self._session.environment.now_ms())
        return self.shortcuts(self._projected)

    def give_way(self) -> None:
        """Before a write: wait while a process asks for a turn. In a bucket only where that was seen in passing."""
        if not self._session.is_far or self.crowd.is_asked:
            with suppress(CrdtMorError):  # it is only a hint
                self._session.run(giving_way.give_way())
            self.crowd.is_asked = False

    def shortcuts(self, helped: int) -> Shortcuts:
        """How this process publishes: in a bucket it looks again in the background, and posts events in a crowd."""
        is_far = self._session.is_far
        return Shortcuts(helped=helped, late=[] if is_far else None, crowd=self.crowd if is_far else None)

    def published(self, value: V, shortcuts: Shortcuts = NO_SHORTCUTS) -> V:
        """Note a value that this process has published, or found published, and that is projected.

        What is still to be looked at, `shortcuts.late`, is so before the process ends, and nobody waits for it.
        """
        self._session.remember(value)
        with self._lock:
            self._projected = max(self._projected, value.version)
            self._looked_ms = self._session.environment.now_ms()
        if shortcuts.late:
            afterwards(self._session.store, partial(self._look_again, tuple(shortcuts.late)))
        return value

    def _look_again(self, late: Sequence[Projected]) -> None:
        with suppress(CrdtMorError):  # what is left is a sweep's
            self._session.run(self._session.publisher.look_again(late))

    def follow(self, author: Author, token: tuple[str, int] | None) -> Followed | None:
        """The version that a small write may follow in one event, see `events.one_event`; None: it goes the long way.

        So it does where upkeep is due, and where nothing is known yet. Where the last ones have lost their races, it is
        not tried alone, but posted: `Followed.is_crowded`.
        """
        self.give_way()
        value = self._session.known()
        is_crowded = self.crowd.is_crowded and knows_posts(value.format)
        if not self._session.is_far and (self.is_stale or not is_crowded):
            value = self._session.tail()  # in a bucket the put tells as well, and a process that posts looks anyway
        self._session.views.look_before_write()
        now_ms = self._session.environment.now_ms()
        if self._session.views.has_foreign or not one_event.may_be_alone(value, token, author):
            return None
        is_due = is_sweep_due(value, now_ms) or not self._races.is_alone(now_ms, value, self._session.expiry_ms)
        if is_due and not is_crowded:
            return None
        expected = Expected(PROPERTIES, self._session.settings_stat)
        return Followed(value, claim_after(value.clock, now_ms), expected, is_crowded)

    @property
    def has_published(self) -> bool:
        """Whether this process has published something, or found it published, so that the table can be written."""
        return self._projected >= 0

    def seen(self, partitions: Sequence[Put]) -> frozenset[str]:
        """Of the metadata of partitions, the paths of that which this session has seen after a data file was there."""
        return frozenset(put.path for put in partitions) & self._partitions.keys()

    def note_seen(self, partitions: Sequence[Put]) -> None:
        """Note that partitions have their metadata, and a data file."""
        with self._lock:
            self._partitions.update(dict.fromkeys(put.path for put in partitions))
            while len(self._partitions) > _PARTITIONS_NOTED:
                del self._partitions[next(iter(self._partitions))]

    def commit_alone(self, followed: Followed, draft: Draft | LoneWrite) -> LoneCommit | GroupCommit | None:
        """Commit a write in one event; None where somebody else was faster.

        Once in a while it takes along what others have posted, where it is one that could be.
        """
        session, value = self._session, followed.value
        shortcuts = self.shortcuts(self._projected)
        if isinstance(draft, LoneWrite) and not (session.is_far and self.is_look_due):
            steps = one_event.commit(session.publisher, value, draft, followed.expected, shortcuts)
        else:
            steps = group.commit_alone(
                session.publisher, value, followed.requested, draft, self.crowd, followed.expected, shortcuts
            )
        outcome = session.run(steps)
        if isinstance(outcome, Timeline):
            self.published(outcome)
        committed = outcome if isinstance(outcome, LoneCommit) else None
        self._races.note(committed=committed is not None, has_met=self.crowd.has_met)
        if committed is not None:
            self.published(committed.value, shortcuts)
        else:
            self.crowd.is_crowded = True
        return group.of_alone(committed) if committed is not None else None

    @property
    def is_look_due(self) -> bool:
        """Whether a write that commits alone looks beside its claim whether others have published or posted."""
        return self._races.is_look_due or (self.is_stale and self._session.is_far)

    @property
    def is_stale(self) -> bool:
        """Whether what this process knows of the table is so old that others may well have published since."""
        return abs(self._session.environment.now_ms() - self._looked_ms) > STALE_MS

    def is_changed(self, followed: Followed) -> bool:
        """Whether a write that was not committed alone was made by an object that is another one by now.

        Then it must not be posted. One that has lost a race has looked beside its claim, and a post is looked at again.
        """
        if self._session.known().version > followed.value.version:
            return False
        return self._session.store.stat(followed.expected.path) != followed.expected.stat

    def commit_posted(self, expected: Expected, draft: Draft) -> GroupCommit | None:
        """Post a write, and see it committed by this process or another; None where it is to go the long way."""
        session, left = self._session, list[str]()
        shortcuts = self.shortcuts(self._projected)
        steps = group.commit(session.publisher, session.known(), draft, self.crowd, expected, shortcuts, left)
        try:
            outcome = session.run(steps)
        finally:
            afterwards(session.store, partial(self._remove, tuple(left)))
        if not isinstance(outcome, GroupCommit):
            self.published(outcome)
            return None
        self.published(outcome.value, shortcuts)
        self._races.grouped()
        if self.crowd.has_met:
            self._races.met()
        if outcome.is_own:
            self._upkeep(outcome.value)
        return outcome

    def _upkeep(self, value: Timeline) -> None:
        """What the long way does of upkeep, after a group that this process has published, since none goes that way."""
        session, now_ms = self._session, self._session.environment.now_ms()
        if not is_sweep_due(value, now_ms) and not self._races.is_upkeep_due(now_ms, value, session.expiry_ms):
            return
        self._races.upkeep(now_ms)

        def upkeep() -> None:
            with suppress(CrdtMorError):
                session.remember(session.run(sweep.upkeep(session.publisher, value, session.expiry_ms)))

        afterwards(session.store, upkeep)

    def _remove(self, paths: Sequence[str]) -> None:
        """Remove posts whose outcome is known; those that stay are a sweep's."""
        with suppress(CrdtMorError):
            for path in paths:
                self._session.store.delete(path)
