"""What files of ours tell Hudi's readers, compared with the bytes that this release would write.

    T_C.deltacommit, T_C.commit     all bytes, as the value's commit gives them; for the schema see `Schemas`
    T_C.savepoint                   its author and comment, and the files that its moment shows
    T_C.clean, T_C.restore          all bytes, as the frozen plan gives them
    T_C.rollback                    all bytes
    *.requested                     the record of a service's plan, as its frozen plan gives it

All releases write equal bytes for equal values, and `tests/tables` holds the next one to that; only the sizes in the
plan of a compaction differ. Without its frozen plan a file is held to its own sync marker, which is a hash of its first
64 KiB, and a clean to the record of its plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import pyarrow as pa

from crdt_mor.columns.avro import parse_record, record_json
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.columns.types import join_types
from crdt_mor.errors import CrdtMorError
from crdt_mor.format.avro import is_as_encoded
from crdt_mor.format.clean import decode_clean, decode_clean_plan, encode_clean, encode_clean_plan
from crdt_mor.format.commit import CommitMetadata, decode_commit
from crdt_mor.format.savepoint import SavepointRecord, decode_savepoint_record, encode_savepoint
from crdt_mor.hudi.actions import (
    CLEAN,
    COMPACT,
    Action,
    MomentaryAction,
    PlannedAction,
    SettledAction,
    action_ending_as,
    bears_our_key,
)
from crdt_mor.hudi.records import is_same_plan, overwrite_record
from crdt_mor.hudi.restore_records import savepoint_record
from crdt_mor.model.instant import to_ms
from crdt_mor.model.names import OWN_KEY, join_path
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline_parts import Completion, completed_name

_OTHER = "it has other bytes than a writer gives"
_SCHEMA = "schema"


@dataclass
class Schemas:
    """The Avro schemas that files of a table may name, spelt as its writers spell them.

    table: its name. stored: all columns that any file has, the hidden ones of payloads among them, in their newest
    types. An older schema has some of these columns, each in a type that has grown into its newest one.
    """

    table: str
    stored: pa.Schema
    _faults: dict[str, str | None] = field(default_factory=dict)

    def fault(self, text: str) -> str | None:
        """Return what is wrong with a schema, None for one that a writer may have given."""
        if text not in self._faults:
            try:
                self._faults[text] = self._wrong(text)
            except CrdtMorError as error:
                self._faults[text] = f"its schema cannot be read: {error}"
        return self._faults[text]

    def _wrong(self, text: str) -> str | None:
        columns = parse_record(text)
        own = [column for column in columns if column.name not in META_COLUMNS]
        unknown = sorted({column.name for column in own} - set(self.stored.names))
        if unknown:
            return f"its schema has columns that the table lacks. columns={unknown}"
        for column in own:
            newest = self.stored.field(column.name).type
            if join_types(newest, column.type, column.name) != newest:
                return f"its schema has a type that the table lacks. column={column.name} type={column.type}"
        meta = META_COLUMNS if len(own) < len(columns) else ()
        spelt = record_json(TableSchema(pa.schema(own)).stored, self.table, meta)
        return None if spelt == text else "its schema is spelt as no writer spells it"


# --- completed files --------------------------------------------------------------------------------------------------


def needs_plan(completion: Completion) -> bool:
    """Return whether the completed file says more than the commit, so that its frozen plan is to be read."""
    action = action_ending_as(completion.action)
    return isinstance(action, PlannedAction | SettledAction) and action.encode_outcome is not None


def completed_fault(
    completion: Completion, plan: bytes | None, record: bytes | None, data: bytes, path: str, schemas: Schemas
) -> str | None:
    """Return how the completed file of an instant differs from what a writer puts; None for no difference.

    plan: its frozen plan, if one is needed and kept. record: the record of that plan in Hudi's timeline, if any.
    """
    action = action_ending_as(completion.action)
    if completion.undone is not None:
        return None if data == action.encode_completed(completion, "") else _OTHER
    if not needs_plan(completion):
        return commit_fault(completion, data, path, schemas)
    if plan is not None:
        assert isinstance(action, PlannedAction | SettledAction)
        assert action.encode_outcome is not None
        return None if data == action.encode_outcome(completion, action.decode(plan, path)) else _OTHER
    if action is CLEAN:
        return _clean_fault(completion, record, data, path)
    action.completed_extra(data, path)
    is_ours = is_as_encoded(data) and bears_our_key(completed_name(completion), data, path)
    return None if is_ours else _OTHER


def commit_fault(completion: Completion, data: bytes, path: str, schemas: Schemas) -> str | None:
    """Return how the completed file of a write or a compaction differs from the bytes that its commit gives."""
    said = decode_commit(data, path)
    schema = said.extra.get(_SCHEMA, "")
    expected = action_ending_as(completion.action).encode_completed(completion, schema)
    if data != expected:
        return f"{_OTHER}. field={_first_difference(decode_commit(expected, path), said)}"
    return schemas.fault(schema)


def _first_difference(expected: CommitMetadata, said: CommitMetadata) -> str:
    names = (item.name for item in fields(CommitMetadata))
    return next((name for name in names if getattr(expected, name) != getattr(said, name)), "header")


def _clean_fault(completion: Completion, record: bytes | None, data: bytes, path: str) -> str | None:
    """Compare a clean with its commit and with the record of its plan, which have the same facts."""
    said = decode_clean(data, path)
    took = to_ms(completion.completed) - to_ms(completion.requested)
    if encode_clean(said) != data:
        return _OTHER
    facts = said.started, said.milliseconds, said.extra
    if facts != (completion.requested, took, {OWN_KEY: str(completion.version)}):
        return f"{_OTHER}. started={said.started} milliseconds={said.milliseconds} extra={dict(said.extra)}"
    if record is None:
        return None
    plan = decode_clean_plan(record, path)
    if encode_clean_plan(plan) != record:
        return "the record of its plan has other bytes than a writer gives"
    earliest = plan.earliest_to_retain.requested if plan.earliest_to_retain is not None else ""
    planned = (earliest, plan.last_completed, {name: tuple(files) for name, files in plan.files.items()})
    done = {name: tuple(cleaned.removed) for name, cleaned in said.partitions.items()}
    policies = {plan.policy, said.policy} if said.partitions else {plan.policy}
    if planned != (said.earliest_to_retain, said.last_completed, done) or len(policies) > 1:
        return "it and the record of its plan name different files or instants"
    return None


# --- the records of what has begun ------------------------------------------------------------------------------------


def record_fault(
    action: Action, completion: Completion | None, plan: bytes | None, data: bytes, path: str
) -> str | None:
    """Return how the record of a plan, or of what begins and ends in one event, differs from what a writer puts.

    completion: None for an open plan. plan: the frozen plan, if it is kept.
    """
    if completion is not None and completion.overwriting is not None:
        return None if data == overwrite_record() else _OTHER
    if isinstance(action, MomentaryAction) and completion is not None:
        return None if data == action.encode_record(completion) else _OTHER
    if plan is None or not isinstance(action, PlannedAction | SettledAction):
        return None if is_as_encoded(data) else _OTHER
    expected = action.encode_record(action.decode(plan, path))
    is_same = is_same_plan(data, expected, path) if action is COMPACT else data == expected
    return None if is_same else _OTHER


# --- savepoints -------------------------------------------------------------------------------------------------------


def savepoint_fault(savepoint: Savepoint, shown: Sequence[Completion], data: bytes, path: str) -> str | None:
    """Return how the file of a savepoint differs from its record. shown: the commits that its moment shows."""
    said = decode_savepoint_record(data, path)
    if encode_savepoint(said) != data:
        return _OTHER
    expected = savepoint_record(savepoint, fold_slices(shown))
    for name in ("by", "saved_ms", "comment"):
        if getattr(said, name) != getattr(expected, name):
            return f"it differs from the savepoint. field={name}"
    return _difference_of_files(_paths(said), _paths(expected), shown)


def _difference_of_files(said: set[str], expected: set[str], shown: Sequence[Completion]) -> str | None:
    """Beside Hudi's commits any file of a commit does, as the value may have learned of one of them later."""
    if any(commit.adopted for commit in shown):
        said, expected = said - {file.path for commit in shown for file in commit.files}, set()
    wrong = sorted(said ^ expected)
    return f"it names other files than the savepoint shows. file={wrong[0]}" if wrong else None


def _paths(record: SavepointRecord) -> set[str]:
    return {join_path(partition, name) for partition, names in record.files.items() for name in names}
