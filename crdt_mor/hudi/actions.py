"""The table of actions: for each, what Hudi's timeline directory is told of it, and what its plans are.

    action       when it begins                        when it is completed                    what begins it
    write        T.deltacommit.requested, .inflight    T_C.deltacommit                         a writer
    compaction   b.compaction.requested                b_C.commit, b.compaction.inflight       a frozen plan
    clean        b.clean.requested, with the rest      b_C.clean, first; b.clean.inflight      a frozen plan
    restore      T.restore.requested, with the rest    T_C.restore, first; T.restore.inflight  a frozen plan
    rollback     T.rollback.requested, with the rest   T_C.rollback, first; T.rollback.inflight  a sweep
    overwrite    b.compaction.requested, with the rest b_C.commit, first; b.compaction.inflight  a writer

A write is pending from its begin on. A rollback begins and ends in the one event that forgets a write which was given
up. So does an overwrite, beside the write that has staged it, and Hudi is told of it as of a compaction at its barrier:
Hudi's own word for it, a replacecommit, would hide all later writes to the file groups, whose ids are fixed. A restore,
too, begins and ends in one event; the process that projects it carries it out from its frozen plan. Every other action
is one of a service (`services.service`): it begins with a plan that is frozen whole, an object of ours, and
ends when the plan is completed or cancelled. The code that schedules, projects, completes, cancels and sweeps knows
no action by name; it asks this table.

Every file of an instant that may still be given up bears our key, so that a sweep recognises it even where it is the
only one left. (Hudi leaves `deltacommit.requested` empty, and none of its readers looks into it.) Hudi's readers open
the record of a plan, `compaction.requested`, wherever they see another file of its instant, and fail if there is none.
So the record is the only file until the plan is completed: a helper that puts a file of a plan after its cancel, and
dies before it looks again, cannot make the table unreadable.

Hudi's readers need to know of an open compaction, as its barrier opens file slices. No reader of Hudi's asks for open
cleans, but its writers execute each that they find, and fail at paths that do not begin with the table's own. So Hudi
is told of a clean when it is completed: a clean whose process died is in nobody's way until another process finishes
it.

Hudi's writers roll back or execute what they find begun, and fail at some of it. So an instant that is completed in one
event has its completed file first: whenever the process dies between the puts, Hudi finds an instant that has ended.

To add a service: a row here, with the type of its plan and the records that Hudi is told; a `Service` that plans and
executes; and the next `FORMAT` of the timeline value, since releases that read this one take every plan for a
compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from crdt_mor.errors import FormatError, UnsupportedVersionError
from crdt_mor.format.rollback import rollback_notes
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What Hudi's timeline directory is told of an instant.

    name: Hudi's word in the names of the files until the instant is completed. The timeline value uses it as well.
    completed: Hudi's word in the name of the completed file.
    begun: the files that are put when the instant begins, in this order. If it is given up they are removed in the
        reverse order. Each holds the record of what has begun.
    ending: the files that are put when the instant is completed, after the completed file. They are empty.
    extra: decodes the extra metadata, where our key stands, from (the bytes of that record, its path).
    encode_completed: encodes the completed file from (the completion, the table's Avro schema).
    completed_extra: as `extra`, of the completed file.
    """

    name: str
    completed: str
    begun: tuple[TimelineState, ...] = ("requested",)
    ending: tuple[TimelineState, ...] = ("inflight",)
    extra: Callable[[bytes, str], Mapping[str, str]]
    encode_completed: Callable[[Completion, str], bytes]
    completed_extra: Callable[[bytes, str], Mapping[str, str]] = commit_extra


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction(Action, Generic[P]):
    """An action of a service, which begins with a plan.

    operation: Hudi's operation type of the completed instant.
    operation_of: the same of one plan, where it differs; the value alone says it, Hudi is told `operation`.
    decode: decodes a frozen plan from (the bytes of its object, its path); the plan has encoded itself.
    encode_record: encodes the record that Hudi is told of the plan.
    encode_outcome: encodes the completed file from (the completion, its plan), where the completion does not say it
        all; None: `encode_completed` does it.
    retention: the marks of the history that is kept which the plan moves; None where it moves none.
    deletion: once the plan is executed, no view before this time is kept any more, so that commits that only such views
        need may be dropped from the value; None where it removes none.
    told_open: whether Hudi is told of a plan that is open; else all of its files are put when it is completed.
    """

    operation: str
    decode: Callable[[bytes, str], P]
    encode_record: Callable[[P], bytes]
    encode_outcome: Callable[[Completion, P], bytes] | None = None
    retention: Callable[[P], Retention | None] = lambda _: None
    operation_of: Callable[[P], str | None] = lambda _: None
    deletion: Callable[[P], InstantTime | None] = lambda _: None
    told_open: bool = True

    def __post_init__(self) -> None:
        assert len(self.begun) == 1, "until a plan is completed its record is the only file of it"
        assert self.told_open or self.encode_outcome is not None, "its plan is read again when it is completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentaryAction(Action):
    """An action that begins and ends in one event, so that its completion says everything.

    encode_record: encodes the record of what has begun.
    """

    encode_record: Callable[[Completion], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledAction(Action, Generic[D]):
    """An action that begins and ends in one event, whose frozen plan says what its completion does not.

    decode: decodes the frozen plan from (the bytes of its object, its path).
    encode_record: encodes the record of what has begun. encode_outcome: encodes the completed file.
    """

    decode: Callable[[bytes, str], D]
    encode_record: Callable[[D], bytes]
    encode_outcome: Callable[[Completion, D], bytes]


WRITE = Action(
    name=DELTA_COMMIT,
    completed=DELTA_COMMIT,
    begun=("requested", "inflight"),
    ending=(),
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
    extra=rollback_notes,
    completed_extra=rollback_notes,
    encode_completed=encode_completed_rollback,
    encode_record=encode_rollback_record,
)


def _said_by_the_plan(completion: Completion, avro_schema: str) -> bytes:  # noqa: ARG001
    raise AssertionError(f"the completion alone does not say what it did. instant={completion.requested}")


CLEAN = PlannedAction(
    name=CLEANING,
    completed=CLEANING,
    extra=clean_plan_extra,
    encode_completed=_said_by_the_plan,
    completed_extra=clean_extra,
    operation="CLEAN",
    decode=CleanPlan.decode,
    encode_record=encode_clean_record,
    encode_outcome=encode_completed_clean,
    told_open=False,
    retention=lambda plan: plan.retention,
    deletion=lambda plan: plan.deletion,
)

RESTORE = SettledAction(
    name=RESTORING,
    completed=RESTORING,
    extra=notes,
    completed_extra=notes,
    encode_completed=_said_by_the_plan,
    decode=RestorePlan.decode,
    encode_record=encode_restore_record,
    encode_outcome=encode_completed_restore,
)

ACTIONS: dict[str, Action] = {action.name: action for action in (WRITE, COMPACT, CLEAN, ROLL_BACK, RESTORE)}
"""Every action that this release knows, by its name."""


def action_named(name: str) -> Action:
    """The action of this name, as a timeline value has it."""
    if name not in ACTIONS:
        raise _unknown(name)
    return ACTIONS[name]


def planned_action(name: str) -> PlannedAction[Any]:
    """The action of this name, which is a service's."""
    action = action_named(name)
    assert isinstance(action, PlannedAction), "only a service has plans"
    return action


def action_ending_as(word: str) -> Action:
    """The action whose completed files have this word of Hudi's in their names.

    Several actions may end in one word; Hudi is told the same of their completion.
    """
    for action in ACTIONS.values():
        if action.completed == word:
            return action
    raise _unknown(word)


def _unknown(word: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"this table has an instant of a service that this release does not know; upgrade crdt-mor. action={word}"
    )


def when_put(name: TimelineFileName) -> int:
    """The position of a file among those of its instant, in the order in which they are put."""
    action = ACTIONS.get(name.action)
    pending = ("requested", "inflight") if action is None else (*action.begun, *action.ending)
    return [*pending, "completed"].index(name.state)


def bears_our_key(name: TimelineFileName, data: bytes, path: str) -> bool:
    """Whether a file in Hudi's directory has our key in it.

    A file that is empty has not: `.compaction.inflight` for one, and a `.deltacommit.requested` of older releases.
    """
    ended = (action for action in ACTIONS.values() if action.completed == name.action)
    action = next(ended, None) if name.state == "completed" else ACTIONS.get(name.action)
    if action is None or not data:
        return False
    extra = action.extra if name.state in action.begun else action.completed_extra
    try:
        return OWN_KEY in extra(data, path)
    except FormatError:  # we put files whole, so a damaged one is not ours
        return False
