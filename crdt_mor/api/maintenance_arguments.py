"""Check the arguments of `Maintenance`'s methods; errors use the callers' names."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict

from crdt_mor.api.maintenance_results import CompactionPlan
from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.model.instant import InstantTime, from_datetime, parse
from crdt_mor.model.policies import Policies, milliseconds
from crdt_mor.planners import compaction as engine


def plan_of(plan: object) -> engine.CompactionPlan:
    if not isinstance(plan, CompactionPlan):
        raise InvalidInputError(
            "pass a plan from plans.open() or plans.schedule(), or call compact() without one. "
            f"got={type(plan).__name__}"
        )
    return plan._plan  # noqa: SLF001  of this room


def session_of(copy: object) -> Session:
    session = getattr(copy, "_session", None)
    if not isinstance(session, Session):
        raise InvalidInputError(
            f"pass the copy as a table, repair(crdt_mor.Table(address)). type={type(copy).__name__} copy={copy!r}"
        )
    return session


def instant_of(instant: object) -> InstantTime:
    if isinstance(instant, datetime) and instant == instant:  # excludes pandas' NaT
        return from_datetime(instant)
    if isinstance(instant, str):
        return parse(instant)
    raise InvalidInputError(
        f"pass the instant to roll back: 17 digits, the requested_at of inspect.pending(). got={type(instant).__name__}"
    )


def with_retention(policies: Policies, keep: timedelta | None, commits: int | None) -> Policies:
    if keep is not None or commits is not None:
        keep_ms = None if keep is None else milliseconds("keep", keep)
        return replace(policies, keep_ms=keep_ms, keep_commits=_commits(commits))
    # A policy of "forever" overrides any number of commits.
    return replace(policies, keep_commits=None) if policies.keep_ms is None else policies


def _commits(count: object) -> int | None:
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 1):
        return count
    raise InvalidInputError(f"commits must be the number of last commits to keep, at least 1. commits={count!r}")


def commits_to_keep(count: object) -> int:
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        return count
    raise InvalidInputError(
        f"keep_commits must be the number of newest commits to keep, at least 1. keep_commits={count!r}"
    )


class CompactionOptions(TypedDict):
    log_files_min: int
    logs_only: bool
    reorder: bool


def compaction_options(log_files_min: object, logs_only: bool, rewrite: object) -> CompactionOptions:
    return {
        "log_files_min": _log_files(log_files_min),
        "logs_only": _flag(logs_only),
        "reorder": _reorders(rewrite, logs_only),
    }


def _log_files(count: object) -> int:
    if isinstance(count, int) and count >= 1:
        return count
    raise InvalidInputError(f"log_files_min must be a number, at least 1. log_files_min={count!r}")


def _flag(logs_only: object) -> bool:
    if isinstance(logs_only, bool):
        return logs_only
    raise InvalidInputError(f"logs_only must be True for a log compaction, or False. logs_only={logs_only!r:.200}")


def _reorders(rewrite: object, logs_only: bool) -> bool:
    if rewrite is not None and not (isinstance(rewrite, str) and rewrite == "order"):
        raise InvalidInputError(
            f'rewrite must be "order", to rewrite base files in another order, or None. rewrite={rewrite!r:.200}'
        )
    if rewrite is not None and logs_only:
        raise InvalidInputError(
            "a log compaction does not rewrite base files: omit logs_only or rewrite. "
            f"rewrite={rewrite!r} logs_only={logs_only}"
        )
    return rewrite is not None
