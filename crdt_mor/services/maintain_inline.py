"""Upkeep by writers: after its commit, a writer compacts due file groups that it wrote, and refreshes mirrors.

inline  compacts all of them
auto    compacts as many as the writer's budget affords, and cleans old history, if one machine writes

The commit is already visible, so a failure of the upkeep becomes an `UpkeepEvent` and raises nothing. A mirror that
lags is also a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

from crdt_mor.errors import CrdtMorError, UpkeepWarning
from crdt_mor.events.session import Session
from crdt_mor.ground.callers import callers_level
from crdt_mor.ground.observing_events import UpkeepEvent
from crdt_mor.model.policies import Policies
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, FileGroup
from crdt_mor.planners.compaction_due import due_compactions
from crdt_mor.planners.upkeep_budget import RESTS_MAX, TIDY_EVERY_MS, is_written_here, may_tidy

MANY_COMMITS: Final = 10_000
"""Commits without archiving after which reads and opens take several times as long."""

_policies: Final = lru_cache(maxsize=64)(Policies.of)

_warned: Final[set[str | None]] = set()
"""Ids of tables for which this process has warned."""


def upkeep_after(session: Session, value: Timeline, completion: Completion, *, is_job: bool = False) -> None:
    """Do the upkeep that a table's properties ask of writers after a commit. Raises no `Exception`."""
    mirrors: tuple[str, ...] = ()
    try:
        policies = _policies(value.properties)
        if policies.mirrors_commits and session.maintain != "off":
            mirrors = policies.mirrors
        if policies.archive is not None:
            _warn_of_many(value)
        mode = session.maintain or policies.inline
        if mode == "inline" or (mode == "auto" and not is_job and session.budget.may_look):
            upkeep = _compact if mode == "inline" else _keep_up
            upkeep(session, value, {file.group for file in completion.files}, policies)
    except Exception as error:  # noqa: BLE001  the commit is complete, so the writer must not see an error
        _tell_failure(session, "compaction", error)
    for name in mirrors:
        _refresh(session, name)


def _keep_up(session: Session, value: Timeline, groups: Collection[FileGroup], policies: Policies) -> None:
    now_ms = session.environment.now_ms()
    budget = session.budget
    has_logs = session.views.slices(value).with_logs()
    written = [slice_ for slice_ in has_logs if slice_.group in groups]
    due = due_compactions(value, written, session.config.merge, policies, now_ms)
    costs = {one.group: budget.cost_ms(one.bytes) for one in due}
    sizes = {one.group: one.bytes for one in due if costs[one.group] <= budget.credit_ms}
    tidies = now_ms - budget.tidied_ms >= TIDY_EVERY_MS and may_tidy(value, policies, now_ms)
    if not (sizes or tidies):
        most = max((len(slice_.logs) for slice_ in written), default=0)
        session.budget = budget.resting(costs.values(), (policies.log_files or RESTS_MAX) - most)
        return
    if not is_written_here(value, session.environment.process().host):
        session.budget = budget.resting((), RESTS_MAX)
        return
    afforded, size = set[FileGroup](), 0
    for group, bytes_ in sizes.items():
        if budget.cost_ms(size + bytes_) <= budget.credit_ms:
            afforded.add(group)
            size += bytes_
    if afforded:
        _compact(session, value, afforded, policies)
        session.budget = session.budget.spent(session.environment.now_ms() - now_ms, size)
    elif tidies:
        from crdt_mor.services.maintain import tidy

        tidy(session, policies)
        session.budget = replace(session.budget.spent(session.environment.now_ms() - now_ms), tidied_ms=now_ms)


def _compact(session: Session, value: Timeline, groups: Collection[FileGroup], policies: Policies) -> None:
    from crdt_mor.services.maintain_written import compact_written  # most commits need it not

    compact_written(session, value, groups, policies)


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
