"""Transactions: several writes that become one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import Data, read_data
from crdt_mor.api.early_read import EarlyRead
from crdt_mor.api.merge_into import Merged, MergeInto, merge_of, merge_rows, nothing_of
from crdt_mor.api.moving import keys_to_move, move_plan
from crdt_mor.api.scan import Scan
from crdt_mor.api.statements import (
    KeysStatement,
    check_mode,
    check_token_form,
    names_of,
    require_delete,
    require_partitions,
)
from crdt_mor.errors import InvalidInputError
from crdt_mor.events import own_blocks
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.ground.late_imports import Late
from crdt_mor.log import stopping
from crdt_mor.log.outcome import find_completion
from crdt_mor.model.authors import application_of, check_info
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.overwrite import DELETE_PARTITION, OVERWRITE, OVERWRITE_TABLE
from crdt_mor.model.overwrite import EVERYTHING as EVERYTHING_REPLACED
from crdt_mor.model.posts import Member
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Token
from crdt_mor.planners.overwrite import covered_by
from crdt_mor.planners.way import BLOCK, Way
from crdt_mor.read.reads import EVERYTHING, Reads
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.maintain_inline import upkeep_after
from crdt_mor.write.declaring import Declare, begin
from crdt_mor.write.held import hold_scope
from crdt_mor.write.merge_into_plan import MergePlan
from crdt_mor.write.named import NamedStatements, Prepared, shown_table
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.reading import Read, Reading, Wait, computed
from crdt_mor.write.refusals import require_bucketed_now
from crdt_mor.write.statements import RowsStatement, SchemaMode, Statements, means_alike
from crdt_mor.write.update import DeleteStatement, UpdateStatement, changing

if TYPE_CHECKING:
    from crdt_mor.write import overwrite as overwriting
else:
    overwriting = Late("crdt_mor.write.overwrite")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Commit:
    """A completed write.

    Attributes:
        version: the timeline version that first shows it.
        requested_at: its place among the writes of a key.
        completed_at: the time when it became visible.
        rows, deletes: numbers of keys written and deleted; both 0 for a repeated token without its commit in the kept
            history.
        repeated: the token was used before; this is that commit, and nothing was written now.
        covered: paths of the partitions that an overwrite replaced, or ("*",) for the whole table; else None.
    """

    version: int
    requested_at: InstantTime
    completed_at: InstantTime
    rows: int
    deletes: int
    repeated: bool = False
    covered: tuple[str, ...] | None = None


@operations
class Transaction:
    """Several statements that become one commit, or none; reads see the snapshot of its begin.

    The end of the block commits, and sets `commit`; an exception rolls back. With a repeated token, `commit` is set
    from the start, and statements do nothing.
    """

    def __init__(
        self,
        session: Session,
        token: tuple[str, int] | None,
        commit_info: Mapping[str, str] | None = None,
        wait_ms: int | None = None,
        declare: Declare | None = None,
        way: Way = BLOCK,
    ) -> None:
        """Make a transaction; `Table.transaction` is the public way.

        Args:
            wait_ms: how long reads of a serializable block wait for earlier writes; None for a snapshot.
            declare: the declaration of the block's effects; None for anything.
            way: why a single statement needs a begin.
        """
        check_token_form(token)
        self._info = check_info(commit_info)
        self._session = session
        self._token = token
        self._wait_ms = wait_ms
        self._declare = declare
        self._way = way
        self._early: EarlyRead | None = None
        self._own: tuple[Snapshot, int, Snapshot] | None = None  # a view, number of statements, view with them
        self._value: Timeline | None = None
        self._write: OpenWrite | None = None
        self._overwrite: overwriting.OverwriteStatement | None = None
        self._state: Literal["new", "open", "over"] = "new"
        self.commit: Commit | None = None

    def __repr__(self) -> str:
        application = self._session.author(application_of(self._info, self._token), self._info).application
        count = 0 if self._write is None else len(self._write.statements.collected)
        return f"Transaction({self._session.uri!r}, application={application!r}, statements={count}, {self._state})"

    def __enter__(self) -> Self:
        if self._state != "new":
            raise InvalidInputError("a transaction can be used only once: make a new one, table.transaction()")
        require_bucketed_now(self._session)
        if self._token is not None:
            tail = self._session.tail()
            if stopping.blocking_token(tail, self._token) is not None:
                tail = self._session.durable_tail()
            if stopping.blocking_token(tail, self._token) is not None:  # unless a restore dropped it meanwhile
                self.commit = commit_of(self._session, stopping.repeated_token(tail, self._token), tail, repeated=True)
                self._value, self._state = tail, "open"
                return self
        if self._wait_ms is not None:
            self._session.views.sealed(look=True)  # the begin adopts Hudi's commits
        write = begin(self._session, self._token, self._info, self._declare)
        write.way = self._way
        self._write, self._value, self._state = write, write.value, "open"
        own_blocks.note(self._session, write.value.table_id, write.begun.requested)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        write, self._write = self._write, None
        self._state = "over"
        if write is None:
            return
        own_blocks.forget(write.value.table_id, write.begun.requested)
        if kind is not None:
            write.abandon()
            return
        committed = write.commit() if self._overwrite is None else overwriting.commit_overwrite(write, self._overwrite)
        self.commit = commit_of(self._session, committed.completion, committed.value, committed.repeated)
        if isinstance(committed.completion, Completion) and not committed.repeated:
            upkeep_after(self._session, committed.value, committed.completion)

    @property
    def requested_at(self) -> InstantTime | None:
        """The block's place among the writes of a key, from its begin on; None for a repeated token."""
        return None if self._write is None else self._write.begun.requested

    def append(self, data: Data, *, schema_mode: SchemaMode = "strict") -> None:
        """Append rows in this commit; see `Table.append`."""
        if (write := self._open_for_more("append")) is not None:
            statements = NamedStatements(write.statements)
            rows = read_data(data, statements.text_types)
            statements.add(RowsStatement("INSERT", rows, check_mode(schema_mode)))

    def upsert(self, data: Data, *, schema_mode: SchemaMode = "strict", nulls: str | Collection[str] = ()) -> None:
        """Upsert rows in this commit; see `Table.upsert`. For one key, the later statement counts."""
        if (write := self._open_for_more("upsert")) is not None:
            statements = NamedStatements(write.statements)
            rows = read_data(data, statements.text_types)
            statements.add(RowsStatement("UPSERT", rows, check_mode(schema_mode), nulls=names_of(nulls)))

    def delete(
        self,
        data: Data | None = None,
        *,
        keys: object = None,
        where: pl.Expr | str | None = None,
        plain: bool = False,
    ) -> None:
        """Delete rows in this commit; see `Table.delete`."""
        if (write := self._open_for_more("delete")) is None:
            return
        require_delete(data, keys, where)
        statements = NamedStatements(write.statements)
        if data is not None:
            statements.add(RowsStatement("DELETE", read_data(data, statements.text_types), plain=plain))
        elif keys is not None:
            statements.add(KeysStatement(keys, plain).rows(statements.config, statements.schema))
        else:
            self._computed(partial(changing, DeleteStatement(where, plain)), write)

    def overwrite(
        self,
        data: Data,
        *,
        partitions: Literal["dynamic"] | Collection[object] | None = None,
        schema_mode: SchemaMode = "strict",
    ) -> None:
        """Overwrite as the only statement of this commit; see `Table.overwrite`."""
        if (write := self._open_alone("overwrite")) is not None:
            mode = check_mode(schema_mode)
            rows = read_data(data, NamedStatements(write.statements).text_types)
            statement = RowsStatement("UPSERT", rows, mode, are_new=True)
            self._replace(lambda statements: NamedStatements(statements).prepared(statement), partitions, None)

    def delete_partitions(self, partitions: Collection[object]) -> None:
        """Delete partitions as the only statement of this commit; see `Table.delete_partitions`."""
        if (write := self._open_alone("delete_partitions")) is not None:
            scope = overwriting.scope_of(write, require_partitions(partitions))
            hold_scope(write.begun.declared, scope)
            self._overwrite = overwriting.OverwriteStatement(scope, DELETE_PARTITION)

    def truncate(self) -> None:
        """Truncate as the only statement of this commit; see `Table.truncate`."""
        if (write := self._open_alone("truncate")) is not None:
            hold_scope(write.begun.declared, EVERYTHING_REPLACED)
            self._overwrite = overwriting.OverwriteStatement(EVERYTHING_REPLACED, OVERWRITE_TABLE)

    def update(self, set: Mapping[str, object], where: pl.Expr | str | None = None) -> None:
        """Update rows in this serializable block, after its earlier statements; see `Table.update`."""
        write = self._open_for_more("update")
        self._require_serializable("update")
        if write is not None:
            self._computed(partial(changing, UpdateStatement(set, where)), write)

    def merge(
        self,
        source: Data,
        on: str | Sequence[str] | None = None,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
    ) -> MergeInto:
        """Merge rows in this serializable block, after its earlier statements; see `Table.merge`.

        `execute` returns the expected counts and version 0, because the block commits later.
        """
        self._require_serializable("merge")

        aliases = (source_alias, target_alias)
        write = self._open_for_more("merge")
        value = self._session.known_tail() if write is None else write.statements.value
        return merge_of(source, on, aliases, self._session.config, value, self._merge)

    def move(self, keys: object, *, partition: Mapping[str, object]) -> Merged:
        """Move rows in this serializable block, after its earlier statements; see `Table.move`.

        Returns the expected counts and version 0, because the block commits later.
        """
        self._require_serializable("move")
        write = self._open_for_more("move")
        value = self._session.known_tail() if write is None else write.statements.value
        config, schema = shown_table(self._session.config, value)
        return self._merge(move_plan(keys_to_move(keys, config, schema), partition, config, schema))

    def _require_serializable(self, statement: str) -> None:
        if self._wait_ms is None:
            raise InvalidInputError(
                f"{statement} reads rows that other writers may change meanwhile: begin the block "
                f'with transaction(isolation="serializable"), or call table.{statement}(...)'
            )

    def scan(
        self, *, columns: str | Sequence[str] | None = None, filter: pl.Expr | str | None = None, meta: bool = False
    ) -> Scan:
        """Scan the transaction's snapshot, without its own writes.

        A serializable block scans all writes that began before it, and its own statements so far.
        """
        if self._wait_ms is None:
            self._open()
        else:
            self._open_for_more("scan")
        return Scan(self._snapshot(None if meta else columns, filter), columns, filter, meta)

    def _snapshot(self, columns: str | Sequence[str] | None, filter: pl.Expr | str | None) -> Snapshot:
        """Return the snapshot for a read of these columns and rows, after a wait for earlier writes that may change
        them.
        """
        assert self._value is not None
        write = self._write
        if write is None or self._wait_ms is None:
            begun = None if write is None else write.begun.requested
            return Snapshot.seal(self._session, self._value, moment=begun)
        reads = Reads.of(columns, filter, write.statements.schema, NamedStatements(write.statements).names)
        view, count = write.settle(reads, self._wait_ms), len(write.statements.collected)
        if not count:
            return view
        if self._own is None or self._own[:2] != (view, count):
            self._own = view, count, write.shown(view)
        return self._own[2]

    # --- inside ---------------------------------------------------------------------------------------------------

    def _open(self) -> OpenWrite | None:
        """Return the open write, or None for a repeated token; raise outside the block."""
        if self._state != "open":
            raise InvalidInputError("use the transaction inside its block: with table.transaction() as tx: ...")
        self._session.require_own_process()
        if self._write is not None:
            own_blocks.note(self._session, self._write.value.table_id, self._write.begun.requested)
        return self._write

    def _open_for_more(self, statement: str) -> OpenWrite | None:
        """Return `_open()`; raise after a statement that must be the only one of its block."""
        write = self._open()
        if self._overwrite is not None:
            raise _not_alone(statement, self._overwrite.operation)
        if write is not None and self._wait_ms is not None and write.statements.merging.asks_what_was_seen:
            write.settle(EVERYTHING, self._wait_ms)  # statements refer to the writes before the block
        return write

    def _open_alone(self, statement: str) -> OpenWrite | None:
        write = self._open_for_more(statement)
        if write is not None and write.statements.collected:
            raise _not_alone(statement, write.statements.operation)
        return write

    def _replace(
        self,
        prepare: Callable[[Statements], Prepared],
        partitions: overwriting.Partitions,
        prepared: Prepared | None,
    ) -> None:
        """Add the rows of an overwrite, and note the replaced partitions. prepare, prepared: as in `_add`."""
        write = self._open_alone("overwrite")
        if write is None:
            return
        with write.statements.whole():
            prepared, scope = overwriting.replacement(write, prepare, partitions, prepared)
            hold_scope(write.begun.declared, scope)
            NamedStatements(write.statements).collect(prepared)
        operation = OVERWRITE_TABLE if scope == EVERYTHING_REPLACED else OVERWRITE
        self._overwrite = overwriting.OverwriteStatement(scope, operation)

    def _add(self, prepared: Prepared | None, prepare: Callable[[Statements], Prepared]) -> None:
        """Add a statement of rows. prepared: its check by an earlier version, which counts if the two are alike."""
        write = self._open_for_more("write")
        if write is not None:
            if prepared is None or not means_alike(prepared.value, write.value):
                prepared = prepare(write.statements)
            NamedStatements(write.statements).collect(prepared)

    def _compute(self, statement: Callable[[NamedStatements], Reading[T]]) -> T | None:
        write = self._open_for_more("write")
        return None if write is None else self._computed(statement, write)

    def _computed(self, statement: Callable[[NamedStatements], Reading[T]], write: OpenWrite) -> T:
        self._early = None
        return computed(statement(NamedStatements(write.statements)), self._answer)

    def _answer(self, asked: Wait | Read) -> pa.Table | None:
        early, self._early = self._early or self._read_early(asked), None
        if isinstance(asked, Wait):
            self._snapshot(asked.columns, asked.filter)
            self._early = early
            return None
        view = self._snapshot(asked.columns, asked.filter)
        rows = None if early is None else early.final_rows(view, asked)
        return Scan(view, asked.columns, asked.filter, meta=False).to_arrow() if rows is None else rows

    def _read_early(self, asked: Wait | Read) -> EarlyRead | None:
        """Read before a wait for earlier writes, if there is one."""
        write = self._write
        if write is None or not self._wait_ms:
            return None
        names = NamedStatements(write.statements).names
        view = write.early(Reads.of(asked.columns, asked.filter, write.statements.schema, names))
        return None if view is None else EarlyRead.of(view, asked)

    def _merge(self, plan: MergePlan) -> Merged:
        write = self._open_for_more("merge")
        if write is None:
            return nothing_of(plan)
        with write.statements.whole():
            return self._computed(partial(merge_rows, plan), write)


def commit_of(session: Session, source: Completion | Token, value: Timeline, repeated: bool) -> Commit:
    completion = session.run(find_completion(source.requested, value)) if isinstance(source, Token) else source
    if completion is None:
        return Commit(source.version, source.requested, source.completed, 0, 0, repeated)
    if isinstance(source, Token) and completion.members:
        carried = (source.application, source.number)
        return commit_of_member(completion, next(m for m in completion.members if m.token == carried), repeated)
    return Commit(
        completion.version,
        completion.requested,
        completion.completed,
        completion.rows,
        completion.deletes,
        repeated,
        covered_by(completion),
    )


def commit_of_member(completion: Completion, member: Member, repeated: bool = False) -> Commit:
    return Commit(completion.version, completion.requested, completion.completed, member.rows, member.deletes, repeated)


def _not_alone(statement: str, other: str) -> InvalidInputError:
    return InvalidInputError(
        "an overwrite must be the only statement of its transaction, because it replaces the rows of others: "
        f"make two commits, or overwrite with all of the rows. statement={statement} beside={other}"
    )


def merged_in(commit: Commit, merged: Merged) -> Merged:
    return replace(
        merged,
        version=commit.version,
        requested_at=commit.requested_at,
        completed_at=commit.completed_at,
        repeated=commit.repeated,
        covered=commit.covered,
    )
