"""Commit a single statement in one event, or else with a begin.

A statement is a value. The newest known version checks its rows before anything is published. If that version refuses
the rows, the newest version of all decides. After the begin, changed columns or rules cause another check.

An update is tried again after one lost race. Beside a pending write that may touch its rows it begins at once: that
fixes its place, and later updates wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from crdt_mor.api.scan import Scan
from crdt_mor.api.statements import KeysStatement, check_token_form
from crdt_mor.api.transaction import Commit, Transaction, commit_of, commit_of_member
from crdt_mor.events.group import GroupCommit
from crdt_mor.events.one_event import LoneCommit, may_be_alone
from crdt_mor.events.session import Session
from crdt_mor.ground.late_imports import Late
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.model.authors import Info, application_of, check_info
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.way import CLOSED, OVERWRITE, REFUSED, Way, Write, way
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.maintain_inline import upkeep_after
from crdt_mor.write.declaring import Declare
from crdt_mor.write.named import NamedStatements, Prepared
from crdt_mor.write.one_event import TriedWrite
from crdt_mor.write.reading import Read, Reading
from crdt_mor.write.refusals import require_writable
from crdt_mor.write.spilling import SpilledStatement
from crdt_mor.write.statements import RowsStatement, Statements, means_alike

if TYPE_CHECKING:
    from crdt_mor.write import overwrite as overwriting
else:
    overwriting = Late("crdt_mor.write.overwrite")

T = TypeVar("T")

Given = RowsStatement | KeysStatement | SpilledStatement


def prepared_by(given: Given, statements: Statements) -> Prepared:
    """Check a statement by the version of `statements`."""
    if isinstance(given, SpilledStatement):
        return given.prepared_by(statements)
    named = NamedStatements(statements)
    return named.prepared(given.rows(named.config, named.schema) if isinstance(given, KeysStatement) else given)


def commit_rows(
    session: Session,
    read: Callable[[], Given],
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
) -> Commit:
    """Commit a statement of rows. read: called once, and not for a repeated token."""
    check_token_form(token)
    info, given = check_info(commit_info), cache(read)
    tried, prepared = TriedWrite.begin(session, token, info, lambda: given().size, Write()), None
    chosen = tried if isinstance(tried, Way) else REFUSED

    def check(statements: Statements) -> Prepared:
        return prepared_by(given(), statements)

    if isinstance(tried, TriedWrite):
        prepared = _checked(session, tried.statements, check, token, info)
        if prepared is not None and prepared.value is tried.followed.value:
            committed = tried.commit_rows(prepared)
            if not isinstance(committed, Way):
                return _ended(session, committed)
            chosen = committed
    if prepared is None or not means_alike(prepared.value, session.known_tail()):
        prepared = _before_begin(session, check, token, info, given)
    with Transaction(session, token, commit_info, way=chosen) as tx:
        if tx.commit is None:
            tx._add(prepared, check)  # noqa: SLF001  its other user
    assert tx.commit is not None
    return tx.commit


def commit_overwrite(
    session: Session,
    read: Callable[[], Given],
    partitions: overwriting.Partitions,
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
) -> Commit:
    """Commit an overwrite by rows. read: as in `commit_rows`."""
    given = cache(read)

    def prepare(statements: Statements) -> Prepared:
        return prepared_by(given(), statements)

    def check(statements: Statements) -> Prepared:
        write = overwriting.rehearsal(session, statements.value)
        return overwriting.replacement(write, prepare, partitions)[0]

    def overwrite(tx: Transaction, prepared: Prepared | None) -> None:
        tx._replace(prepare, partitions, prepared)

    return _begun(session, token, commit_info, check, overwrite, given)


def commit_without_rows(
    session: Session,
    partitions: Collection[object] | None,
    token: tuple[str, int] | None,
    info: Mapping[str, str] | None,
) -> Commit:
    """Commit the deletion of all rows in these partitions; None: in all."""

    def check(statements: Statements) -> object:
        return overwriting.scope_of(overwriting.rehearsal(session, statements.value), partitions)

    def delete(tx: Transaction, _: object) -> None:
        if partitions is None:
            tx.truncate()
        else:
            tx.delete_partitions(partitions)

    return _begun(session, token, info, check, delete)


def _begun(
    session: Session,
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    check: Callable[[Statements], T],
    statement: Callable[[Transaction, T | None], None],
    given: Callable[[], object] = lambda: None,
) -> Commit:
    """Commit a statement of two instants. statement: adds to the block, with the result of the check before."""
    check_token_form(token)
    checked = _before_begin(session, check, token, check_info(commit_info), given)
    with Transaction(session, token, commit_info, way=OVERWRITE) as tx:
        if tx.commit is None:
            statement(tx, checked)
    assert tx.commit is not None
    return tx.commit


def _before_begin(
    session: Session,
    check: Callable[[Statements], T],
    token: tuple[str, int] | None,
    info: Info,
    given: Callable[[], object],
) -> T | None:
    """Check a statement before the begin; None if the begin must come first. given: reads the rows."""
    if not session.config.ours or session.views.has_foreign:
        return None  # columns of Hudi's writers are adopted first
    known = session.known_tail()
    if not _may_commit(session, known, token, info):
        return None
    require_writable(session, as_read=True)
    given()
    return _checked(session, Statements(session.config, known, EPOCH), check, token, info)


def _checked(
    session: Session,
    statements: Statements,
    check: Callable[[Statements], T],
    token: tuple[str, int] | None,
    info: Info,
) -> T | None:
    """Check a statement by a known version, and after a refusal by the newest version if the two differ.

    Returns None if the begin itself would be refused there, or would find a repeated token.
    """
    while True:
        try:
            return check(statements)
        except Exception:
            newest = _newest(session, token, info)
            if newest is None:
                return None
            if means_alike(statements.value, newest):
                raise
            statements = Statements(session.config, newest, statements.requested)


def _newest(session: Session, token: tuple[str, int] | None, info: Info) -> Timeline | None:
    """Return the newest version; None for changed properties, a repeated token or a refused begin."""
    newest = session.tail()
    if not _may_commit(session, newest, token, info):
        return None
    return newest if session.store.stat(PROPERTIES) == session.settings_stat else None


def _may_commit(session: Session, value: Timeline, token: tuple[str, int] | None, info: Info) -> bool:
    return may_be_alone(value, token, session.author(application_of(info, token), info))


def commit_computed(
    session: Session,
    statement: Callable[[NamedStatements], Reading[T]],
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    wait_ms: int,
    declare: Declare,
    size: Callable[[], int] = lambda: 0,
) -> tuple[Commit, T | None]:
    """Commit a statement that reads the table; a repeated token does nothing.

    Args:
        wait_ms, declare: as in `Transaction`.
        size: the bytes of the statement's own rows.
    """
    check_token_form(token)
    done = _in_one_event(session, statement, token, check_info(commit_info), size)
    if not isinstance(done, Way):
        return done
    result: T | None = None
    with Transaction(session, token, commit_info, wait_ms, declare, done) as tx:
        if tx.commit is None:
            result = tx._compute(statement)  # noqa: SLF001  its other user
    assert tx.commit is not None
    return tx.commit, result


def _in_one_event(
    session: Session,
    statement: Callable[[NamedStatements], Reading[T]],
    token: tuple[str, int] | None,
    info: Info,
    size: Callable[[], int],
) -> tuple[Commit, T] | Way:
    write = Write(is_computed=True)
    while True:
        done = _tried(session, statement, token, info, size, write)
        if not isinstance(done, Write):
            return done
        write = done


def _tried(
    session: Session,
    statement: Callable[[NamedStatements], Reading[T]],
    token: tuple[str, int] | None,
    info: Info,
    size: Callable[[], int],
    write: Write,
) -> tuple[Commit, T] | Way | Write:
    """Compute and commit in one event; or return the way with a begin, or the write for another try."""
    tried = TriedWrite.begin(session, token, info, size, write)
    if isinstance(tried, Way):
        return tried
    try:
        result = tried.compute(statement, _scanned)
    except Exception:
        newest = _newest(session, token, info)
        if newest is None:
            return CLOSED
        if newest.version == tried.followed.value.version:
            raise
        refused = replace(tried.write, refused=tried.write.refused + 1)
        chosen = way(tried.followed.seen, refused)
        return chosen if chosen.step == "begin" else refused
    if isinstance(result, Way):
        return result
    committed = tried.commit_computed()
    if not isinstance(committed, Way):
        return _ended(session, committed), result
    return committed if committed.step == "begin" else tried.write


def _scanned(view: Snapshot, asked: Read) -> pa.Table:
    return Scan(view, asked.columns, asked.filter, meta=False).to_arrow()


def _ended(session: Session, committed: LoneCommit | GroupCommit) -> Commit:
    upkeep_after(session, committed.value, committed.completion)
    if isinstance(committed, GroupCommit):
        return commit_of_member(committed.completion, committed.member)
    return commit_of(session, committed.completion, committed.value, repeated=False)
