"""What the calls of `Maintenance` take, checked: what is refused is named as its caller knows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.instant import InstantTime, from_datetime, parse
from crdt_mor.model.policies import Policies, milliseconds
from crdt_mor.planners.compaction import CompactionPlan


def plan_of(plan: object) -> CompactionPlan:
    """The plan that `compact` is to execute."""
    if not isinstance(plan, CompactionPlan):
        raise InvalidInputError(
            "a compaction executes a plan, one of open_plans() or what plan_compaction() gives; compact() alone makes "
            f"one. got={type(plan).__name__}"
        )
    return plan


def instant_of(instant: object) -> InstantTime:
    """The instant that `roll_back` is to give up, as text or as a moment."""
    if isinstance(instant, datetime) and instant == instant:  # pandas' NaT is none
        return from_datetime(instant)
    if isinstance(instant, str):
        return parse(instant)
    raise InvalidInputError(
        "what is rolled back is named by its instant, 17 digits as inspect.pending() has them under requested_at. "
        f"got={type(instant).__name__}"
    )


def keeping(policies: Policies, keep: timedelta | None, commits: int | None) -> Policies:
    """The policies, with what a call says of the history that is kept, if it says anything."""
    if keep is not None or commits is not None:
        keep_ms = None if keep is None else milliseconds("keep", keep)
        return replace(policies, keep_ms=keep_ms, keep_commits=_commits(commits))
    # For ever is longer than any number of commits.
    return replace(policies, keep_commits=None) if policies.keep_ms is None else policies


def _commits(count: object) -> int | None:
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 1):
        return count
    raise InvalidInputError(f"commits is how many of the last commits to keep, at least 1. commits={count!r}")


def kept(count: object) -> int:
    """How many of the newest commits `archive` leaves in the active timeline."""
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        return count
    raise InvalidInputError(f"keep_commits is how many of the newest stay, at least 1. keep_commits={count!r}")


class CompactionOptions(TypedDict):
    """What a new compaction is told, by the names that `services.compaction` knows."""

    log_files_min: int
    logs_only: bool
    reorder: bool


def compaction_options(log_files_min: object, logs_only: bool, rewrite: object) -> CompactionOptions:
    """The options of `plan_compaction` and `compact`."""
    return {
        "log_files_min": _log_files(log_files_min),
        "logs_only": _flag(logs_only),
        "reorder": _reorders(rewrite, logs_only),
    }


def _log_files(count: object) -> int:
    if isinstance(count, int) and count >= 1:
        return count
    raise InvalidInputError(f"log_files_min is a number, at least 1. log_files_min={count!r}")


def _flag(logs_only: object) -> bool:
    if isinstance(logs_only, bool):
        return logs_only
    raise InvalidInputError(f"logs_only is True for a log compaction, or False. logs_only={logs_only!r:.200}")


def _reorders(rewrite: object, logs_only: bool) -> bool:
    if rewrite is not None and not (isinstance(rewrite, str) and rewrite == "order"):
        raise InvalidInputError(
            f'rewrite is "order", for base files whose rows are in another order, or None. rewrite={rewrite!r:.200}'
        )
    if rewrite is not None and logs_only:
        raise InvalidInputError(
            "a log compaction leaves base files as they are: leave logs_only out to rewrite them. "
            f"rewrite={rewrite!r} logs_only={logs_only}"
        )
    return rewrite is not None
