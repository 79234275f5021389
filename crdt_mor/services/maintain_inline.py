"""Upkeep by writers: after its commit, a writer compacts due file groups that it wrote, and refreshes mirrors.

The commit is already visible, so a failure of the upkeep becomes an `UpkeepEvent` and raises nothing. A mirror that
lags is also a warning.
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
"""Commits without archiving after which reads and opens take several times as long."""

_warned: Final[set[str | None]] = set()
"""Ids of tables for which this process has warned."""


def upkeep_after(session: Session, value: Timeline, completion: Completion, *, is_job: bool = False) -> None:
    """Do the upkeep that a table's properties ask of writers after a commit. Raises no `Exception`."""
    mirrors: tuple[str, ...] = ()
    try:
        policies = Policies.of(value.properties)
        if policies.mirrors_commits and session.maintain != "off":
            mirrors = policies.mirrors
        if policies.archive is not None:
            _warn_of_many(value)
        mode = session.maintain or policies.inline
        if mode == "inline" or (mode == "auto" and not is_job and session.budget.may_look):
            from crdt_mor.services.maintain_written import compact_written, keep_up

            upkeep = compact_written if mode == "inline" else keep_up
            upkeep(session, value, {file.group for file in completion.files}, policies)
    except Exception as error:  # noqa: BLE001  the commit is complete, so the writer must not see an error
        _tell_failure(session, "compaction", error)
    for name in mirrors:
        _refresh(session, name)


def _refresh(session: Session, format: str) -> None:
    from crdt_mor.services.maintain import refreshed, tell

    try:
        for action in refreshed(session, format):
            tell(session, action, inline=True)
    except Exception as error:  # noqa: BLE001  the commit is complete, so the writer must not see an error
        cause = _tell_failure(session, "mirror", error)
        _warn(
            f"the commit is complete, but the {format} mirror shows an older version: the next commit or maintain() "
            f"refreshes it. cause={cause}"
        )


def _tell_failure(session: Session, service: str, error: Exception) -> str:
    from crdt_mor.services.maintain import state_of

    state = state_of(error) if isinstance(error, CrdtMorError) else "failed"
    told = str(error) or type(error).__name__
    session.publisher.tell(UpkeepEvent(service=service, state=state, why="a commit was made", inline=True, error=told))
    return told


def _warn_of_many(value: Timeline) -> None:
    commits = value.standing + len(value.completions)
    if commits < MANY_COMMITS or value.table_id in _warned:
        return
    _warned.add(value.table_id)
    _warn(
        "this table has many commits without upkeep, so reads and writes get slower: run table.maintenance.maintain() "
        "regularly, for example hourly. If it finds nothing due, run table.maintenance.compact() once. "
        f"commits={commits}"
    )


def _warn(text: str) -> None:
    with suppress(UserWarning):  # raised if warnings are errors; the commit is complete
        warnings.warn(text, UpkeepWarning, stacklevel=callers_level())
