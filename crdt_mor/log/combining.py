"""Combining: where many write, one version publishes the events of many writers.

    post        a writer that has lost two races puts its event as an *intent*, an object for whose name nobody races
    take        the next publisher of a posted event lists the intents, *after* the version that it follows was put, and
                publishes all of them with its own
    withdraw    a writer that sees the outcome of its event removes its intent, before its next event

No writer leads, and none waits for another: a writer that has posted goes on trying to publish. A writer that is alone
neither posts nor lists.

*Why the list comes last.* An intent that is there when version n stands has an owner that has not seen its outcome, or
has not gone on. So its event is not in version n, or n itself shows the outcome: the write is pending, or given up. A
list from before n may hold a begin that was taken, completed and forgotten since, which would begin once more.

*Why the intent goes before the next event*, and why a write that was given up is forgotten only once its intent is gone
(`sweep_intents`): for the same reason. An intent whose put lands later than all that makes at worst a write begin that
no process has. Such a write is invisible, and expires; an end that is taken late finds nothing pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.log import giving_way
from crdt_mor.log.intents import (
    BYTES_MAX,
    CompleteIntent,
    Intent,
    combine,
    decode_intent,
    encode_intent,
)
from crdt_mor.log.paths import INTENTS, intent_path
from crdt_mor.log.steps import PUTS_MAX, Delete, GetStat, List, Pause, Put, Read, Steps, StoreNow, Together
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_claims
from crdt_mor.model.timeline_parts import RolledBack
from crdt_mor.store.protocol import Stat

LOST_MAX: Final = 1
"""How many races an event has lost, at most, before its writer posts it."""

EVENTS_MAX: Final = 256
"""Events of other writers that one version publishes, at most."""

BYTES_TAKEN: Final = 1 << 15
"""Bytes of the intents that one version publishes, about: it carries their completions itself."""

FRESH_MS: Final = 60_000
"""The age of an intent, by the store's clock, up to which a process that looks for others takes its owner for alive."""

ABANDONED_MS: Final = 600_000
"""The age of an intent, by the store's clock, from which on a sweep takes its writer for dead. A writer that is not has
lost nothing: it goes on trying to publish."""

PAUSED: Final = 8
"""The attempt after which a pause is about as long as some round trips to a bucket."""

_RACING = 8
"""About how many of the writers that have posted try to publish the next version; the others look for their outcome."""


@dataclass(slots=True)
class Crowd:
    """Whether other writers were in the way of a process's last event: then it posts the next one at once.

    others: how many intents of others it has seen when it last looked. is_asked: whether it has seen that somebody asks
    for a turn, see `log.giving_way`. commit_ms: how long a commit of posts on a disk took lately; 0: it has
    made none.
    """

    is_crowded: bool = False
    others: int = 0
    is_asked: bool = False
    commit_ms: int = 0

    def note_commit(self, took_ms: int) -> None:
        """Note how long a commit has taken; one that was slow by chance is soon forgotten."""
        self.commit_ms = (self.commit_ms + took_ms) // 2 if self.commit_ms else took_ms


@dataclass(slots=True)
class Posting:
    """One event that is being published, and what is known of those of others. Not thread-safe.

    intent: what its writer may post; None, or no `crowd`: it is published by its writer alone.
    attempt: how often its writer has put a version with it.
    others: how many events of others that version would have published.
    has_asked: whether its writer has asked for a turn, as it has lost several races.
    """

    intent: Intent | None = None
    crowd: Crowd | None = None
    attempt: int = 0
    is_posted: bool = False
    others: int = 0
    has_asked: bool = False
    _known: dict[str, tuple[Intent | None, int]] = field(default_factory=dict)
    _looked_at: int = -1
    _looks: int = 0

    def is_turn(self, tail: Timeline) -> Steps[bool]:
        """Post the event, if it is time; returns whether to try now to publish it as what follows a version.

        In a crowd a few do, see `draw`; the others look again for their outcome.
        """
        table_id, intent = tail.table_id, self.intent
        if intent is None or self.crowd is None or table_id is None or not knows_claims(tail.format):
            return True  # its first event gives a table its id; older releases know of no intents
        if not self.is_posted:
            is_due = self.crowd.is_crowded or self.attempt > LOST_MAX
            data = encode_intent(intent, table_id) if is_due else b""
            if not 0 < len(data) <= BYTES_MAX:
                return True
            yield Put(intent_path(intent.nonce), data)
            self.is_posted = True  # or not, if the put was lost: that only costs the help of others
        return self.draw(tail)

    def draw(self, tail: Timeline) -> bool:
        """Whether to do now what others could do as well, for a version: a few of a crowd, and more at each look.

        A writer without a crowd is drawn at once, and so is every writer after a while, as the drawn ones may be dead.
        """
        if not self.is_posted or self.intent is None or self.crowd is None:
            return True
        self._looks = self._looks + 1 if tail.version == self._looked_at else 0
        self._looked_at = tail.version
        drawn = crc32(f"{tail.version} {self.intent.nonce}".encode()) % max(1, self.crowd.others)
        return drawn < _RACING * (1 + self._looks // 4)

    def with_others(self, tail: Timeline, event: Timeline, wall_ms: int) -> Steps[Timeline]:
        """The next value: `event`, which is this event alone, or with it those that others have posted by now."""
        intent = self.intent
        if not self.is_posted or intent is None or self.crowd is None or tail.table_id is None:
            return event
        listed: list[Stat] = yield List(INTENTS)
        others = yield from self._read(
            [stat for stat in listed if stat.path != intent_path(intent.nonce)], tail.table_id
        )
        self.crowd.others = len(others)
        value, possible = combine(tail, wall_ms, [intent, *others])
        self.others = possible - 1
        return value if self.others else event

    def _read(self, listed: Sequence[Stat], table_id: str) -> Steps[list[Intent]]:
        """The intents of others, the oldest first, as many as one version takes."""
        oldest = sorted(listed, key=lambda stat: (stat.modified_ms, stat.path))
        new = [stat.path for stat in oldest[:EVENTS_MAX] if stat.path not in self._known]
        contents = (yield Together(tuple(map(Read, new)))) if new else ()
        for path, data in zip(new, contents, strict=True):
            self._known[path] = (decode_intent(data, table_id), len(data)) if data is not None else (None, 0)
        taken: list[Intent] = []
        size = 0
        for stat in oldest[:EVENTS_MAX]:
            intent, more = self._known[stat.path]
            size += more
            if size > BYTES_TAKEN:
                break
            if intent is not None:
                taken.append(intent)
        return taken

    def pause(self) -> Steps[None]:
        """After a race that was lost. With an intent that others see there is no hurry.

        Those that commit alone or in groups publish no intents: from them a turn is asked for with an intent as well.
        """
        if self.attempt >= giving_way.LOST_MAX:
            yield from giving_way.ask()
            self.has_asked = True
        yield Pause(PAUSED if self.is_posted else self.attempt - 1)

    def end(self, *, published: bool) -> Steps[None]:
        """The outcome is seen: note whether there was a crowd, and withdraw. published: by its writer itself."""
        if self.crowd is not None:
            self.crowd.is_crowded = self.is_posted and (not published or self.attempt > 1 or self.others > 0)
        if self.has_asked:
            yield from giving_way.end()
        yield from self.withdraw()

    def withdraw(self) -> Steps[None]:
        """Remove the intent. That of a begin is gone then; a writer that cannot remove it must not go on.

        An end that is taken once more does nothing, so that its intent may be left to a sweep.
        """
        if not self.is_posted or self.intent is None:
            return
        path = intent_path(self.intent.nonce)
        for attempt in range(PUTS_MAX):
            if (yield Delete(path)) or isinstance(self.intent, CompleteIntent):
                return
            yield Pause(attempt)
        raise StorageUnavailableError(
            f"the store does not remove the intent of a write that has begun, which could begin twice. path={path}"
        )


def look_for_others(crowd: Crowd) -> Steps[bool]:
    """Whether there are new intents, for which a process that has posted none looks once in a while.

    Then its next commits go the long way, in which they publish what others have posted. Where somebody asks for a
    turn, the next commit gives way.
    """
    listed, turn = yield Together((List(INTENTS), GetStat(giving_way.TURN)))
    now_ms: int = (yield StoreNow()) if listed else 0
    crowd.is_asked = turn is not None
    posted = any(now_ms - stat.modified_ms <= FRESH_MS for stat in listed)
    crowd.is_crowded |= posted
    return posted


def sweep_intents(known: Timeline, now_ms: int) -> Steps[set[InstantTime]]:
    """Delete the intents of writes that were given up, and those that nobody has removed for long.

    Returns the writes that were given up and whose intents are not known to be gone: they are not to be forgotten yet.
    """
    left: set[InstantTime] = set()
    for stat in (yield List(INTENTS)):
        begun = known.find_by_nonce(stat.path.rpartition("/")[2].removesuffix(".json"))
        given_up = isinstance(begun, RolledBack)
        if not given_up and abs(now_ms - stat.modified_ms) <= ABANDONED_MS:
            continue
        if not (yield Delete(stat.path)) and begun is not None and given_up:
            left.add(begun.requested)
    return left
