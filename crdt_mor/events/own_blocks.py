"""The transaction blocks that are open in this thread: a statement that waits for one of them would wait for itself.

A thread that sleeps ends none of its blocks. So what would wait for one is refused at once. A block belongs to the
thread that used it last. It is noted only where a sleep is one: a test's environment may let others act meanwhile.
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
"""The process and the thread of each open block, by its table's id and its requested time."""


def note(session: Session, table_id: str | None, requested: InstantTime) -> None:
    """Note that this thread uses an open block."""
    if type(session.environment) is SystemEnvironment:
        _OPEN[table_id, requested] = _this_thread()


def forget(table_id: str | None, requested: InstantTime) -> None:
    """Note that a block is over."""
    _OPEN.pop((table_id, requested), None)


def require_not_own(session: Session, value: Timeline, awaited: Iterable[Pending]) -> None:
    """Raise `InvalidInputError` where one of the writes of `value` that are waited for is a block of this thread."""
    if type(session.environment) is not SystemEnvironment:
        return
    table_id = value.table_id
    own = [pending.requested for pending in awaited if _OPEN.get((table_id, pending.requested)) == _this_thread()]
    if own:
        raise InvalidInputError(
            "this statement would wait for a transaction block that is open in the same thread, and so for itself. "
            "Call it on the block, tx.update(...), tx.merge(...), tx.move(...) or tx.delete(where=...) of transaction("
            f'isolation="serializable"), or end the block first. Nothing was written. block={own[0]}'
        )


def _this_thread() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()
