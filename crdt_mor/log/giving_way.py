"""Giving way: a process that keeps losing races with its event asks for a turn.

    ask     after several lost races (a plan, the begin of a transaction block), touch an object, repeatedly
    wait    a writer that sees the object delays its next write until the object is gone or old
    end     remove the object once the event is published

Otherwise a writer of many small commits, or a crowd, would publish each next version before the process has derived
its event. The object is a hint, not a lock: no protocol rule depends on it. A writer waits for about a second at most,
and for a dead process until the object is old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crdt_mor.log.paths import POSTS
from crdt_mor.log.steps import Delete, List, Nonce, Now, Pause, Steps, StoreNow, Touch
from crdt_mor.store.protocol import Stat

TURN: Final = f"{POSTS}/turn"
"""Name prefix of requests, one per event: stores limit how often a name is put. They lie with the posts, so one listing
finds both and a sweep removes old ones. Older releases touch this very name."""

LOST_MAX: Final = 3
"""Lost races before a process asks."""

FRESH_MS: Final = 2_000
"""Age up to which a request counts, by the store's clock."""

ASK_EVERY_MS: Final = 1_200
"""Time between repeated requests: the object stays fresh."""

_LOOKS_MAX: Final = 64
_PAUSED: Final = 5
"""The attempt with a mean pause of 16 milliseconds."""


@dataclass(slots=True)
class Request:
    """An event's request for a turn. asked_ms: by this machine's clock."""

    path: str = ""
    asked_ms: int = 0

    def ask(self) -> Steps[None]:
        now_ms: int = yield Now()
        if self.path and abs(now_ms - self.asked_ms) < ASK_EVERY_MS:
            return
        self.path = self.path or f"{TURN}-{(yield Nonce())}"
        self.asked_ms = now_ms
        yield Touch(self.path)

    def end(self) -> Steps[None]:
        if self.path:
            yield Delete(self.path)


def is_request(path: str) -> bool:
    return path.startswith(TURN)


def is_asked_in(listed: Sequence[Stat], now_ms: int) -> bool:
    return any(is_request(stat.path) and abs(now_ms - stat.modified_ms) <= FRESH_MS for stat in listed)


def give_way() -> Steps[None]:
    for attempt in range(_LOOKS_MAX):
        listed: list[Stat] = yield List(POSTS)
        if not any(is_request(stat.path) for stat in listed) or not is_asked_in(listed, (yield StoreNow())):
            return
        yield Pause(min(attempt, _PAUSED))
