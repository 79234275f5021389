"""Updates and deletes by many processes, each for some file groups. See `Table.update`.

def elsewhere(parts):                                 # parts and results can be pickled
    return [part.execute() for part in parts]         # anywhere, in any order, as often as needed

table.update({"price": "price * 1.1"}, execute_parts=elsewhere)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from crdt_mor.api.job import completed
from crdt_mor.api.merge_into import Merged
from crdt_mor.api.scan import Scan
from crdt_mor.api.statements import check_token_form
from crdt_mor.api.transaction import Commit
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.texts import no_rows
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.ground.late_imports import Late
from crdt_mor.model.authors import check_info
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.conditions import checked
from crdt_mor.read.reads import Reads
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write.declaring import Declare
from crdt_mor.write.job_values import Job, Receipt
from crdt_mor.write.named import NamedStatements, shown_config, shown_rules, shown_table
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import Operation, Statements
from crdt_mor.write.update import Change, ChangeStatement

if TYPE_CHECKING:
    from crdt_mor.write import update_parts as in_parts
else:
    in_parts = Late("crdt_mor.write.update_parts")


@dataclass(frozen=True, slots=True)
class PartDone:
    """The result of a part, for the process that completes the write.

    Attributes:
        receipt: for the staged files.
        operation: Hudi's name of the operation; None if nothing was written.
        merged: counts of a merge's clauses.
    """

    receipt: Receipt
    operation: Literal["INSERT", "UPSERT", "DELETE"] | None
    merged: Merged | None = None


@operations
@dataclass(frozen=True, slots=True)
class UpdatePart:
    """Some file groups of an update or a delete, for any process to compute.

    It includes the rows to read, their change and the table's columns.
    """

    number: int
    _session: Session = field(repr=False)
    _job: Job = field(repr=False)
    _rows: Scan
    _change: Change
    _columns: Timeline = field(repr=False)

    def execute(self) -> PartDone:
        """Read the rows, compute the change and stage it as invisible files.

        May be called any number of times, anywhere; only the results of `execute_parts` count.
        """

        def change(write: OpenWrite) -> None:
            self._change.add(self._rows.to_arrow(), NamedStatements(write.statements))

        return executed(self._session, self._job, self._columns, self.number, change)


class Part(Protocol):
    """A part computed elsewhere."""

    @property
    def number(self) -> int:
        """Its position among the parts."""


P = TypeVar("P", bound=Part)
ExecuteParts = Callable[[Sequence[P]], Iterable[PartDone | CrdtMorError]]
"""Executes parts elsewhere and returns for each, in order, its result or error."""


def executed(
    session: Session, job: Job, columns: Timeline, number: int, change: Callable[[OpenWrite], None]
) -> PartDone:
    receipt, made = in_parts.stage(session, job, columns, number, change)
    return PartDone(receipt, made.operation if made is not None and made.collected else None)


def change_in_parts(
    session: Session,
    statement: ChangeStatement,
    execute_parts: ExecuteParts[UpdatePart],
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    wait_ms: int,
    declare: Declare,
) -> Commit:
    """Commit an update or a delete, each part for some file groups that may contain matching rows."""

    def rehearse(statements: Statements) -> None:
        named = NamedStatements(statements)
        schema, config = named.schema, named.config
        if statement.where is not None:
            checked(statement.where, schema)
        change = statement.change(schema, config)
        change.add(no_rows(schema.select(change.columns(schema, config, named.rules)).declared), named)

    def reads(begun: Timeline) -> Reads:
        config, schema = shown_table(session.config, begun)
        columns = statement.change(schema, config).columns(schema, config, shown_rules(begun))
        return Reads.of(columns, statement.where, TableSchema.from_json(begun.schema), begun.names)

    def parts_of(view: Snapshot, job: Job) -> list[UpdatePart]:
        config, columns = shown_config(session.config, view.names), in_parts.columns_of(view)
        change = statement.change(view.shown, config)
        rows = Scan(view, change.columns(view.shown, config, shown_rules(view.value)), statement.where, meta=False)
        return [UpdatePart(number, session, job, part, change, columns) for number, part in enumerate(rows.parts())]

    distributed = DistributedStatement(rehearse, declare, reads, parts_of, execute_parts)
    return commit_in_parts(session, distributed, token, commit_info, wait_ms)[0]


@dataclass(frozen=True, slots=True)
class DistributedStatement(Generic[P]):
    """A statement computed elsewhere.

    Attributes:
        rehearse: adds the statement for no rows, to check it.
        declare: the declaration of the write; None for anything.
        reads: the write's reads, by the value in which it began.
        parts: parts of the rows before the write.
    """

    rehearse: Callable[[Statements], None]
    declare: Declare | None
    reads: Callable[[Timeline], Reads]
    parts: Callable[[Snapshot, Job], Sequence[P]]
    execute: ExecuteParts[P]


def commit_in_parts(
    session: Session,
    statement: DistributedStatement[P],
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    wait_ms: int,
) -> tuple[Commit, list[PartDone]]:
    """Commit a statement, and return its parts' results; no parts for a repeated token."""
    check_token_form(token)
    job, write = in_parts.begin(session, token, check_info(commit_info), statement.declare, statement.rehearse)
    if write is None:
        return completed(session, job, []), []
    with in_parts.settled(job, write, statement.reads, wait_ms) as view:
        done = _all_done(statement.parts(view, job), statement.execute)
    job = replace(job, operation=_operation(done, job.operation))
    return completed(session, job, [one.receipt for one in done]), done


def _all_done(parts: Sequence[P], execute_parts: ExecuteParts[P]) -> list[PartDone]:
    outcomes = list(execute_parts(parts)) if parts else []
    for outcome in outcomes:
        if isinstance(outcome, CrdtMorError):
            raise outcome
    done = [outcome for outcome in outcomes if isinstance(outcome, PartDone)]
    if [one.receipt.task for one in done] != [part.number for part in parts]:
        raise InvalidInputError(
            "execute_parts must return, for each part in order, the result of part.execute(...) or its error. "
            f"parts={len(parts)} given={[type(outcome).__name__ for outcome in outcomes]}"
        )
    return done


def _operation(done: Sequence[PartDone], default: Operation) -> Operation:
    """Return the operation name for Hudi's commit; different operations together are an UPSERT."""
    operations = {one.operation for one in done if one.operation is not None}
    return "UPSERT" if len(operations) > 1 else next(iter(operations), default)
