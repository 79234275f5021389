"""How one process publishes beside others: in one event or the long way, alone or posting, at once or giving way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from crdt_mor.errors import CrdtMorError
from crdt_mor.events import one_event
from crdt_mor.events.one_event import Expected, Followed, LoneCommit, LoneWrite, Turns
from crdt_mor.events.sweep import is_sweep_due
from crdt_mor.log import giving_way
from crdt_mor.log.combining import Crowd, look_for_others
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.projection import Projected
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import Put
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import claim_after
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.protocol import afterwards

if TYPE_CHECKING:
    from crdt_mor.events.session import Session

_PARTITIONS_NOTED: Final = 4096


class Pace:
    """What a session remembers of its races, of other writers, and of what is there already. Thread-safe.

    crowd: whether others were in the way; None where a look is no round trip, and so nothing is posted.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._turns = Turns()
        self._projected = -1
        self._partitions: dict[str, None] = {}
        self.crowd = Crowd() if session.is_far else None

    def before_long_way(self) -> Shortcuts:
        """Before a write begins in an event of its own: services get their turn, and upkeep is done."""
        self.give_way()
        self._turns.upkeep(self._session.environment.now_ms())
        return self.shortcuts(self._projected)

    def give_way(self) -> None:
        """Before a write: wait while a service asks for a turn. In a bucket only where that was seen in passing."""
        if self.crowd is None or self.crowd.is_asked:
            with suppress(CrdtMorError):  # it is only a hint
                self._session.run(giving_way.give_way())
            if self.crowd is not None:
                self.crowd.is_asked = False

    def shortcuts(self, helped: int) -> Shortcuts:
        """How this process publishes: in a bucket it looks again in the background, and posts events in a crowd."""
        return Shortcuts(helped=helped, late=[] if self._session.is_far else None, crowd=self.crowd)

    def published(self, value: Timeline, shortcuts: Shortcuts = NO_SHORTCUTS) -> Timeline:
        """Note a value that this process has published, or found published, and that is projected.

        What is still to be looked at, `shortcuts.late`, is so before the process ends, and nobody waits for it.
        """
        self._session.remember(value)
        with self._lock:
            self._projected = max(self._projected, value.version)
        if shortcuts.late:
            afterwards(self._session.store, partial(self._look_again, tuple(shortcuts.late)))
        return value

    def _look_again(self, late: Sequence[Projected]) -> None:
        with suppress(CrdtMorError):  # what is left is a sweep's
            self._session.run(self._session.publisher.look_again(late))

    def follow_alone(self, author: Author, token: tuple[str, int] | None) -> Followed | None:
        """The version that a small write may follow in one event, see `events.one_event`; None: it goes the long way.

        So it does where the last ones have lost their races, where upkeep is due, and where nothing is known yet.
        """
        self.give_way()
        value = self._session.known()
        if not self._session.is_far:  # else a look is a round trip, and the put tells as well
            value = self._session.tail()
        now_ms = self._session.environment.now_ms()
        if self._session.views.has_foreign or (self.crowd is not None and self.crowd.is_crowded):
            return None
        if not self._turns.is_alone(now_ms, value, self._session.expiry_ms):
            return None
        if is_sweep_due(value, now_ms) or not one_event.may_be_alone(value, token, author):
            return None
        return Followed(value, claim_after(value.clock, now_ms), Expected(PROPERTIES, self._session.settings_stat))

    def seen(self, partitions: Sequence[Put]) -> frozenset[str]:
        """Of the metadata of partitions, the paths of that which this session has seen after a data file was there."""
        return frozenset(put.path for put in partitions) & self._partitions.keys()

    def note_seen(self, partitions: Sequence[Put]) -> None:
        """Note that partitions have their metadata, and a data file."""
        with self._lock:
            self._partitions.update(dict.fromkeys(put.path for put in partitions))
            while len(self._partitions) > _PARTITIONS_NOTED:
                del self._partitions[next(iter(self._partitions))]

    def commit_alone(self, followed: Followed, write: LoneWrite) -> LoneCommit | None:
        """Commit a write in one event; None where somebody else was faster, and the write is to go the long way."""
        value = followed.value
        shortcuts = self.shortcuts(self._projected)
        steps = one_event.commit(self._session.publisher, value, write, followed.expected, shortcuts)
        outcome = self._session.run(steps)
        if isinstance(outcome, Timeline):
            self.published(outcome)
        committed = outcome if isinstance(outcome, LoneCommit) else None
        self._turns.note(committed=committed is not None)
        if committed is not None:
            self.published(committed.value, shortcuts)
            self.look_for_others()
        return committed

    def look_for_others(self) -> None:
        """Now and then, while nobody waits for it: whether others cannot publish for the commits of this process."""
        crowd = self.crowd
        if crowd is None or not self._turns.is_look_due:
            return

        def look() -> None:
            with suppress(CrdtMorError):
                if self._session.run(look_for_others(crowd)):
                    self._turns.note(committed=False)

        afterwards(self._session.store, look)
