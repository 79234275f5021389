"""The open transaction blocks of each thread. A statement that waits for a block of its own thread is refused.

A block belongs to the thread that used it last. Only blocks under the system clock count: a test's environment may let
others act during a sleep.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending

if TYPE_CHECKING:
    from crdt_mor.events.session import Session

_OPEN: dict[tuple[str | None, InstantTime], tuple[int, int]] = {}
"""Process and thread of each open block, by table id and requested time."""


def note(session: Session, table_id: str | None, requested: InstantTime) -> None:
    if type(session.environment) is SystemEnvironment:
        _OPEN[table_id, requested] = _this_thread()


def forget(table_id: str | None, requested: InstantTime) -> None:
    _OPEN.pop((table_id, requested), None)


def require_not_own(session: Session, value: Timeline, awaited: Iterable[Pending]) -> None:
    if type(session.environment) is not SystemEnvironment:
        return
    table_id = value.table_id
    own = [pending.requested for pending in awaited if _OPEN.get((table_id, pending.requested)) == _this_thread()]
    if own:
        raise InvalidInputError(
            "this statement would wait for a transaction block that is open in the same thread, and so for itself. "
            "Nothing was written. Call the statement on the block, tx.update(...), tx.merge(...), tx.move(...) or "
            f'tx.delete(where=...) of transaction(isolation="serializable"), or end the block first. block={own[0]}'
        )


def _this_thread() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()
