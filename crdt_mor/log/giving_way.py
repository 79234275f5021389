"""Giving way: a process that loses one race after another with an event asks for a turn.

    ask     one that has lost several races (a plan, the begin of a transaction block) touches an object, each time anew
    wait    a writer that sees the object waits before it begins its next write, until the object is gone or is old
    end     the process removes the object once its event is published

One writer that commits small writes without a pause, or a crowd of them in groups, would otherwise keep it from
publishing for as long as they go on: they publish the next version before it has derived its event, and take along no
plans, nor begins and ends that are not posted.

The object is a hint and no lock. No rule of the protocol rests on it. A writer waits for about a second at most, and
for a process that died after it had asked only until the object is old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crdt_mor.log.paths import POSTS
from crdt_mor.log.steps import Delete, List, Nonce, Now, Pause, Steps, StoreNow, Touch
from crdt_mor.store.protocol import Stat

TURN: Final = f"{POSTS}/turn"
"""How the names of the objects begin that are touched, one for each event: stores limit how often one name is put.
They lie with the posts, so that one list finds both, and a sweep takes those of dead processes. Older releases touch
this very name."""

LOST_MAX: Final = 3
"""How many races an event has lost before its process asks."""

FRESH_MS: Final = 2_000
"""The age of the object, by the store's clock, up to which its process is taken for one that still tries."""

ASK_EVERY_MS: Final = 1_200
"""How long after it has asked a process asks again: its object is still fresh then."""

_LOOKS_MAX: Final = 64
_PAUSED: Final = 5
"""The attempt after which a pause takes 16 milliseconds, on average."""


@dataclass(slots=True)
class Request:
    """One event's request for a turn: its object, once it was touched, and when that was, by this machine's clock."""

    path: str = ""
    asked_ms: int = 0

    def ask(self) -> Steps[None]:
        """Ask for a turn, after a race that was lost; nothing where that was done a moment ago."""
        now_ms: int = yield Now()
        if self.path and abs(now_ms - self.asked_ms) < ASK_EVERY_MS:
            return
        self.path = self.path or f"{TURN}-{(yield Nonce())}"
        self.asked_ms = now_ms
        yield Touch(self.path)

    def end(self) -> Steps[None]:
        """The turn was had. Others that have asked, too, ask again when they lose."""
        if self.path:
            yield Delete(self.path)


def is_request(path: str) -> bool:
    """Whether an object among the posts asks for a turn."""
    return path.startswith(TURN)


def is_asked_in(listed: Sequence[Stat], now_ms: int) -> bool:
    """Whether somebody asks for a turn at a time of the store's clock, as a listing of the posts shows."""
    return any(is_request(stat.path) and abs(now_ms - stat.modified_ms) <= FRESH_MS for stat in listed)


def give_way() -> Steps[None]:
    """Wait while somebody asks for a turn."""
    for attempt in range(_LOOKS_MAX):
        listed: list[Stat] = yield List(POSTS)
        if not any(is_request(stat.path) for stat in listed) or not is_asked_in(listed, (yield StoreNow())):
            return
        yield Pause(min(attempt, _PAUSED))
