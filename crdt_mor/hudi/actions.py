"""The table of actions: the files of each in Hudi's timeline, and the type of its plans.

    action       when it begins                        when it is completed                    what begins it
    write        T.deltacommit.requested, .inflight    T_C.deltacommit                         a writer
    compaction   b.compaction.requested                b_C.commit, b.compaction.inflight       a frozen plan
    clean        b.clean.requested, with the rest      b_C.clean, first; b.clean.inflight      a frozen plan
    restore      T.restore.requested, with the rest    T_C.restore, first; T.restore.inflight  a frozen plan
    rollback     T.rollback.requested, with the rest   T_C.rollback, first; T.rollback.inflight  a sweep
    overwrite    b.compaction.requested, with the rest b_C.commit, first; b.compaction.inflight  a writer

An overwrite appears to Hudi as a compaction at its barrier: Hudi's replacecommit would hide all later writes to the
file groups, whose ids are fixed. Other code asks this table and knows no action by name.

Each file of an instant that may be given up bears our key, so a sweep recognises even the last. Hudi's readers fail
without `compaction.requested` if they see another file of its instant. So this record is the only file until
completion: a late helper of a cancelled plan cannot make the table unreadable.

Hudi's readers must know open compactions, since a barrier opens file slices. Hudi's writers execute open cleans, and
fail at foreign paths, so a clean appears when completed. Hudi's writers also roll back or execute unfinished instants.
So an instant of one event puts its completed file first, and appears ended wherever the process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from crdt_mor.errors import FormatError, UnsupportedVersionError
from crdt_mor.format.savepoint import notes
from crdt_mor.hudi.records import (
    clean_extra,
    clean_plan_extra,
    commit_extra,
    encode_clean_record,
    encode_completed_clean,
    encode_completed_compaction,
    encode_completed_rollback,
    encode_completed_write,
    encode_plan_record,
    encode_rollback_record,
    plan_record_extra,
)
from crdt_mor.hudi.restore_records import encode_completed_restore, encode_restore_record
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import CLEAN as CLEANING
from crdt_mor.model.names import (
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    LOG_COMPACT,
    OWN_KEY,
    ROLLBACK,
    TimelineFileName,
    TimelineState,
)
from crdt_mor.model.timeline_parts import Completion, Retention
from crdt_mor.planners.clean import CleanPlan
from crdt_mor.planners.compaction import CompactionPlan, FrozenPlan
from crdt_mor.planners.restore import RESTORE as RESTORING
from crdt_mor.planners.restore import RestorePlan

P = TypeVar("P", bound=FrozenPlan)
D = TypeVar("D")


def _said_by_the_plan(completion: Completion, avro_schema: str) -> bytes:  # noqa: ARG001
    raise AssertionError(f"the completed file needs the plan. instant={completion.requested}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The files of an instant in Hudi's timeline.

    name: Hudi's word before completion. completed: Hudi's word after completion.
    begin_states: files of the begin, in put order, with its record.
    end_states: empty files put after the completed file.
    extra: decodes the extra metadata, with our key, from (record bytes, path). completed_extra: of the completed file.
    encode_completed: encodes the completed file from (completion, Avro schema).
    """

    name: str
    completed: str
    begin_states: tuple[TimelineState, ...] = ("requested",)
    end_states: tuple[TimelineState, ...] = ("inflight",)
    extra: Callable[[bytes, str], Mapping[str, str]]
    encode_completed: Callable[[Completion, str], bytes] = _said_by_the_plan
    completed_extra: Callable[[bytes, str], Mapping[str, str]] = commit_extra


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenAction(Action, Generic[D]):
    """An action with a frozen plan.

    decode: decodes the plan from (bytes, path). encode_record: encodes Hudi's record of the plan.
    encode_outcome: encodes the completed file from (completion, plan); None: `encode_completed` does.
    shown_while_open: Hudi's timeline contains open plans.
    """

    decode: Callable[[bytes, str], D]
    encode_record: Callable[[D], bytes]
    encode_outcome: Callable[[Completion, D], bytes] | None = None
    shown_while_open: bool = True

    def __post_init__(self) -> None:
        assert len(self.begin_states) == 1, "until a plan is completed its record is the only file of it"
        assert self.shown_while_open or self.encode_outcome is not None, "its plan is read again when it is completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction(FrozenAction[P]):
    """An action of a service, which begins with a plan.

    operation: Hudi's operation type of the completed instant. operation_of: the value's, if different.
    retention: the retention marks that the plan moves, or None.
    deletion: views before this time end with the plan, so commits for them may be dropped; or None.
    """

    operation: str
    retention: Callable[[P], Retention | None] = lambda _: None
    operation_of: Callable[[P], str | None] = lambda _: None
    deletion: Callable[[P], InstantTime | None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentaryAction(Action):
    """An action of one event, described by its completion. encode_record: encodes the record of the begin."""

    encode_record: Callable[[Completion], bytes]


WRITE = Action(
    name=DELTA_COMMIT,
    completed=DELTA_COMMIT,
    begin_states=("requested", "inflight"),
    end_states=(),
    extra=commit_extra,
    encode_completed=encode_completed_write,
)

COMPACT = PlannedAction(
    name=COMPACTION,
    completed=COMMIT,
    extra=plan_record_extra,
    encode_completed=encode_completed_compaction,
    operation="COMPACT",
    operation_of=lambda plan: LOG_COMPACT if plan.copied else None,
    decode=CompactionPlan.decode,
    encode_record=encode_plan_record,
)

ROLL_BACK = MomentaryAction(
    name=ROLLBACK,
    completed=ROLLBACK,
    extra=notes,
    completed_extra=notes,
    encode_completed=encode_completed_rollback,
    encode_record=encode_rollback_record,
)

CLEAN = PlannedAction(
    name=CLEANING,
    completed=CLEANING,
    extra=clean_plan_extra,
    completed_extra=clean_extra,
    operation="CLEAN",
    decode=CleanPlan.decode,
    encode_record=encode_clean_record,
    encode_outcome=encode_completed_clean,
    shown_while_open=False,
    retention=lambda plan: plan.retention,
    deletion=lambda plan: plan.deletion,
)

RESTORE = FrozenAction(
    name=RESTORING,
    completed=RESTORING,
    extra=notes,
    completed_extra=notes,
    decode=RestorePlan.decode,
    encode_record=encode_restore_record,
    encode_outcome=encode_completed_restore,
    shown_while_open=False,
)

ACTIONS: dict[str, Action] = {action.name: action for action in (WRITE, COMPACT, CLEAN, ROLL_BACK, RESTORE)}
"""Every action that this release knows."""


def action_named(name: str) -> Action:
    if name not in ACTIONS:
        raise _unknown(name)
    return ACTIONS[name]


def planned_action(name: str) -> PlannedAction[Any]:
    action = action_named(name)
    assert isinstance(action, PlannedAction), "only a service has plans"
    return action


def action_ending_as(word: str) -> Action:
    for action in ACTIONS.values():
        if action.completed == word:
            return action
    raise _unknown(word)


def _unknown(word: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"the table contains an instant of a service that this release does not know. Upgrade crdt-mor. action={word}"
    )


def when_put(name: TimelineFileName) -> int:
    """Return a file's position in the put order of its instant."""
    action = ACTIONS.get(name.action)
    pending = ("requested", "inflight") if action is None else (*action.begin_states, *action.end_states)
    return [*pending, "completed"].index(name.state)


def bears_our_key(name: TimelineFileName, data: bytes, path: str) -> bool:
    """Return True if a file in Hudi's directory contains our key.

    Empty files do not: `.compaction.inflight`, and `.deltacommit.requested` of Hudi and of older releases.
    """
    ended = (action for action in ACTIONS.values() if action.completed == name.action)
    action = next(ended, None) if name.state == "completed" else ACTIONS.get(name.action)
    if action is None or not data:
        return False
    extra = action.extra if name.state in action.begin_states else action.completed_extra
    try:
        return OWN_KEY in extra(data, path)
    except FormatError:  # we put files whole, so a damaged file is not ours
        return False
