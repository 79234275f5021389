"""Compare our files for Hudi's readers with the bytes that this release would write.

    T_C.deltacommit, T_C.commit     all bytes, from the value's commit; for the schema see `Schemas`
    T_C.savepoint                   author, comment, and the visible files of its moment
    T_C.clean, T_C.restore          all bytes, from the frozen plan
    T_C.rollback                    all bytes
    *.requested                     the record of a service's plan, from its frozen plan

Only sizes in compaction plans differ between releases. Without its frozen plan, a file is checked against its sync
marker, a hash of its first 64 KiB, and a clean against its plan's record.
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
from crdt_mor.hudi.actions import CLEAN, COMPACT, Action, FrozenAction, MomentaryAction, action_ending_as, bears_our_key
from crdt_mor.hudi.records import is_same_plan, overwrite_record
from crdt_mor.hudi.restore_records import savepoint_record
from crdt_mor.model.field_ids import FieldIds
from crdt_mor.model.instant import to_ms
from crdt_mor.model.names import OWN_KEY, join_path
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline_parts import Completion, completed_name

_OTHER = "the bytes differ from a writer's"
_SCHEMA = "schema"


@dataclass
class Schemas:
    """The valid Avro schemas of a table's files, in the exact text of its writers.

    stored: with hidden columns, in their newest types. Older schemas have some of them, in narrower types.
    ids: of the newest columns. Older files have some of them.
    """

    table: str
    stored: pa.Schema
    ids: FieldIds = field(default_factory=dict)
    _faults: dict[str, str | None] = field(default_factory=dict)

    def fault(self, text: str) -> str | None:
        """Return the error in a schema's text; None if a writer of the table may have written it."""
        if text not in self._faults:
            try:
                self._faults[text] = self._wrong(text)
            except CrdtMorError as error:
                self._faults[text] = f"the schema is unreadable: {error}"
        return self._faults[text]

    def _wrong(self, text: str) -> str | None:
        columns = parse_record(text)
        own = [column for column in columns if column.name not in META_COLUMNS]
        unknown = sorted({column.name for column in own} - set(self.stored.names))
        if unknown:
            return f"the schema names columns that the table lacks. columns={unknown}"
        for column in own:
            newest = self.stored.field(column.name).type
            if join_types(newest, column.type, column.name) != newest:
                return f"the schema names a type that the table lacks. column={column.name} type={column.type}"
        meta = META_COLUMNS if len(own) < len(columns) else ()
        spelt = record_json(TableSchema(pa.schema(own)).stored, self.table, meta)
        return None if spelt == text else "no writer spells the schema this way"


# --- completed files --------------------------------------------------------------------------------------------------


def needs_plan(completion: Completion) -> bool:
    """Return True if checking the completed file needs its frozen plan."""
    action = action_ending_as(completion.action)
    return isinstance(action, FrozenAction) and action.encode_outcome is not None


def completed_fault(
    completion: Completion, plan: bytes | None, record: bytes | None, data: bytes, path: str, schemas: Schemas
) -> str | None:
    """Return how the completed file of an instant differs from a writer's; None if equal.

    Args:
        plan: Its frozen plan, if needed and retained.
        record: The record of that plan in Hudi's timeline.
    """
    action = action_ending_as(completion.action)
    if completion.undone is not None:
        return None if data == action.encode_completed(completion, "") else _OTHER
    if not needs_plan(completion):
        return commit_fault(completion, data, path, schemas)
    if plan is not None:
        assert isinstance(action, FrozenAction)
        assert action.encode_outcome is not None
        return None if data == action.encode_outcome(completion, action.decode(plan, path)) else _OTHER
    if action is CLEAN:
        return _clean_fault(completion, record, data, path)
    action.completed_extra(data, path)
    is_ours = is_as_encoded(data) and bears_our_key(completed_name(completion), data, path)
    return None if is_ours else _OTHER


def commit_fault(completion: Completion, data: bytes, path: str, schemas: Schemas) -> str | None:
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
        return "the bytes of the plan's record differ from a writer's"
    earliest = plan.earliest_to_retain.requested if plan.earliest_to_retain is not None else ""
    planned = (earliest, plan.last_completed, {name: tuple(files) for name, files in plan.files.items()})
    done = {name: tuple(cleaned.removed) for name, cleaned in said.partitions.items()}
    policies = {plan.policy, said.policy} if said.partitions else {plan.policy}
    if planned != (said.earliest_to_retain, said.last_completed, done) or len(policies) > 1:
        return "the clean and its plan's record name different files or instants"
    return None


# --- records of begun instants ----------------------------------------------------------------------------------------


def record_fault(
    action: Action, completion: Completion | None, plan: bytes | None, data: bytes, path: str
) -> str | None:
    """Return how the record of a plan or momentary action differs from a writer's.

    Args:
        completion: None for an open plan.
        plan: The frozen plan, if retained.
    """
    if completion is not None and completion.overwriting is not None:
        return None if data == overwrite_record() else _OTHER
    if isinstance(action, MomentaryAction) and completion is not None:
        return None if data == action.encode_record(completion) else _OTHER
    if plan is None or not isinstance(action, FrozenAction):
        return None if is_as_encoded(data) else _OTHER
    expected = action.encode_record(action.decode(plan, path))
    is_same = is_same_plan(data, expected, path) if action is COMPACT else data == expected
    return None if is_same else _OTHER


# --- savepoints -------------------------------------------------------------------------------------------------------


def savepoint_fault(savepoint: Savepoint, shown: Sequence[Completion], data: bytes, path: str) -> str | None:
    """Return how the file of a savepoint differs from its record. shown: commits of its moment."""
    said = decode_savepoint_record(data, path)
    if encode_savepoint(said) != data:
        return _OTHER
    expected = savepoint_record(savepoint, fold_slices(shown))
    for name in ("by", "saved_ms", "comment"):
        if getattr(said, name) != getattr(expected, name):
            return f"the file differs from the savepoint. field={name}"
    return _difference_of_files(_paths(said), _paths(expected), shown)


def _difference_of_files(said: set[str], expected: set[str], shown: Sequence[Completion]) -> str | None:
    """Compare the savepoint's files. Beside Hudi's commits, accept any committed file: adoption may come later."""
    if any(commit.adopted for commit in shown):
        said, expected = said - {file.path for commit in shown for file in commit.files}, set()
    wrong = sorted(said ^ expected)
    return f"the files differ from the savepoint's. file={wrong[0]}" if wrong else None


def _paths(record: SavepointRecord) -> set[str]:
    return {join_path(partition, name) for partition, names in record.files.items() for name in names}
