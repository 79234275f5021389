"""Upkeep by writers: after its commit a writer compacts what is due in the file groups that it has written.

The commit is complete and visible by then, whatever becomes of the upkeep: what fails is told as an `UpkeepEvent`, with
its error, and raises nothing. Other services are left to `maintain`, as their cost has nothing to do with what one
writer wrote. Most writers do no upkeep, and import nothing of it.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Final

from crdt_mor.errors import CrdtMorError, UpkeepWarning
from crdt_mor.events.session import Session
from crdt_mor.ground.callers import callers_level
from crdt_mor.ground.observing_events import UpkeepEvent
from crdt_mor.model.policies import Policies
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion

MANY_COMMITS: Final = 10_000
"""Commits that no `maintain` has archived: with that many, reads and opens take times as long."""

_warned: Final[set[str | None]] = set()
"""The tables of which this process has said that nobody maintains them."""


def upkeep_after(session: Session, value: Timeline, completion: Completion) -> None:
    """Compact what is due in the file groups of a commit that `value` shows, if this session's writers are to do so.

    Raises no `Exception`.
    """
    try:
        policies = Policies.of(value.properties)
        if policies.archive is not None:
            _warn_of_many(value)
        if policies.inline if session.inline is None else session.inline:
            from crdt_mor.services.maintain_written import compact_written

            compact_written(session, value, {file.group for file in completion.files}, policies)
    except Exception as error:  # noqa: BLE001  the commit stands, and its writer must learn that it does
        from crdt_mor.services.maintain import state_of

        failed = state_of(error) if isinstance(error, CrdtMorError) else "failed"
        session.publisher.tell(
            UpkeepEvent(
                service="compaction", state=failed, why="a commit was made", inline=True,
                error=str(error) or type(error).__name__,
            )
        )  # fmt: skip


def _warn_of_many(value: Timeline) -> None:
    """Warn once of a table that nobody maintains, from what a writer holds anyway."""
    commits = value.standing + len(value.completions)
    if commits < MANY_COMMITS or value.table_id in _warned:
        return
    _warned.add(value.table_id)
    with suppress(UserWarning):  # where warnings are errors; the commit stands
        warnings.warn(
            "this table has many commits that no upkeep has folded, so that reads and writes get slower: run "
            "table.maintenance.maintain(), for example each hour. If it finds nothing due, run "
            f"table.maintenance.compact() once. commits={commits}",
            UpkeepWarning,
            stacklevel=callers_level(),
        )
