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
from typing import Final

from crdt_mor.log.paths import POSTS
from crdt_mor.log.steps import Delete, GetStat, Pause, Steps, StoreNow, Touch
from crdt_mor.store.protocol import Stat

TURN: Final = f"{POSTS}/turn"
"""What is touched: one object for all processes that ask. It lies with the posts, so that one list finds both, and a
sweep takes it where no process is left to remove it."""

LOST_MAX: Final = 3
"""How many races an event has lost before its process asks."""

FRESH_MS: Final = 2_000
"""The age of the object, by the store's clock, up to which its process is taken for one that still tries."""

_LOOKS_MAX: Final = 64
_PAUSED: Final = 5
"""The attempt after which a pause takes 16 milliseconds, on average."""


def ask() -> Steps[None]:
    """Ask for a turn, after a race that was lost."""
    yield Touch(TURN)


def end() -> Steps[None]:
    """The turn was had. Others that have asked, too, ask again when they lose."""
    yield Delete(TURN)


def is_asked(turn: Stat | None, now_ms: int) -> bool:
    """Whether somebody asks for a turn, as the object says at a time of the store's clock."""
    return turn is not None and abs(now_ms - turn.modified_ms) <= FRESH_MS


def is_asked_in(listed: Sequence[Stat], now_ms: int) -> bool:
    """Whether somebody asks for a turn, as what lies with the posts shows."""
    return is_asked(next((stat for stat in listed if stat.path == TURN), None), now_ms)


def give_way() -> Steps[None]:
    """Wait while somebody asks for a turn."""
    for attempt in range(_LOOKS_MAX):
        asked: Stat | None = yield GetStat(TURN)
        if asked is None:
            return
        if not is_asked(asked, (yield StoreNow())):
            return
        yield Pause(min(attempt, _PAUSED))
