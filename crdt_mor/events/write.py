"""The life of a write, as protocol steps: begin, complete; and the growth of the table's schema.

A pending write is invisible, so no process *needs* to roll it back. A writer that begins, and a service that plans,
gives up the writes whose heartbeat has expired; one put decides the race with a writer that was merely slow (rule 1).
Files are deleted only once the rollback is known to be genuine (rule 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, WriterExpiredError
from crdt_mor.events.rollback import give_up
from crdt_mor.events.sweep import timed_upkeep
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.deciding import deciding
from crdt_mor.log.intents import BeginIntent, CompleteIntent
from crdt_mor.log.outcome import ValueOf, find_completion, may_be_dropped, value_of
from crdt_mor.log.paths import heartbeat_path
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import Delete, Nonce, Steps, Touch, delete_for_good
from crdt_mor.log.stopping import repeated_token, require_present
from crdt_mor.model import layout
from crdt_mor.model.alteration_event import require_meant
from crdt_mor.model.authors import Author
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.overwrite import void_files
from crdt_mor.model.table_properties import changed
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending, Retention, Token


class DroppedHistoryError(CommitUnknownError):
    """A write that began, or was planned, before the history that the table has dropped, may have been committed."""


class TakenOverError(CommitUnknownError):
    """Another driver of a job has taken the write over, and may have committed it."""


class GroupsMovedError(Exception):
    """Files that a pending write has staged lie in file groups that Hudi's commits have put others in the place of.

    Its writer removes what it has staged, and stages it again by the file ids of `value`.
    """

    def __init__(self, value: Timeline) -> None:
        super().__init__(value.version)
        self.value = value


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The commit that a write became, and the value that holds it.

    `repeated`: the commit was there before. Its token was used already, or another driver of the job has completed it.
    """

    completion: Completion | Token
    value: Timeline
    repeated: bool = False


def begin(
    publisher: TablePublisher,
    known: Timeline,
    expiry_ms: int,
    author: Author | None = None,
    shortcuts: Shortcuts = NO_SHORTCUTS,
    declared: Declared = ANYTHING,
) -> Steps[tuple[ValueOf, Pending]]:
    """Begin a pending write; returns the value in which it began. Upkeep comes before it.

    Where that version is gone, as many have followed before this process saw its begin, the write begins again.
    """
    tail: Timeline = known
    while True:
        tail, store_ms = yield from timed_upkeep(publisher, tail, expiry_ms)
        intent = BeginIntent((yield Nonce()), store_ms, author, declared)
        newest = yield from publisher.publish(intent.derive, tail, shortcuts.after_a_look(store_ms), intent)
        pending = newest.find_by_nonce(intent.nonce)
        if not isinstance(pending, Pending):
            raise expired_error(pending.requested if pending else None)
        value = yield from value_of(pending, newest)
        if value is not None:
            break
        tail = yield from give_up(publisher, newest, pending.requested, [])
    if not shortcuts.is_far:  # else the first one comes when it is due: until then the age of the begin counts
        yield Touch(heartbeat_path(pending.requested))
    return value, pending


def complete(
    publisher: TablePublisher,
    known: Timeline,
    begun: Pending,
    operation: str,
    files: Sequence[DataFile],
    token: tuple[str, int] | None,
    shortcuts: Shortcuts = NO_SHORTCUTS,
) -> Steps[WriteOutcome]:
    """Make the write visible in one put; or find that its token was used, or that it was given up.

    Files that an overwrite of a later barrier has voided are removed before, as Hudi's readers would show them. The
    write completes with the rest, which may be no file at all. Raises `GroupsMovedError` where the rest is misplaced.
    """
    requested = begun.requested
    value = known
    while True:
        intent = CompleteIntent((yield Nonce()), requested, begun.driver, operation, tuple(files), token)
        value = yield from publisher.publish(intent.derive, value, shortcuts, intent)
        void = void_files(value, requested, files) if intent.may_end(value) else []
        if not void and intent.may_end(value) and value.file_ids.misplaced(files):
            raise GroupsMovedError(value)
        if not void:
            break
        yield from _remove_void(requested, void)
        files = [file for file in files if file not in void]
        shortcuts = replace(shortcuts, looked=False, helped=-1)
    with deciding(is_made=True):
        completion = yield from find_completion(requested, value)
        if completion is not None:
            others = completion.driver != begun.driver
            yield from delete_for_good([file.path for file in files] if others else [])  # Hudi's readers go by names
            if not shortcuts.is_far or begun.driver:  # else it is left to a sweep: most writes end before they have one
                yield Delete(heartbeat_path(requested))
            return WriteOutcome(completion, value, repeated=others)
    pending = value.find_pending(requested)
    if pending is None:
        raise expired_or_unknown(requested, value)
    if pending.driver != begun.driver:
        raise taken_over_error(requested)
    yield from give_up(publisher, value, requested, [file.path for file in files], begun.driver)
    return WriteOutcome(repeated_token(value, token), value, repeated=True)


def _remove_void(requested: InstantTime, void: Sequence[DataFile]) -> Steps[None]:
    """Remove files of a pending write that an overwrite has voided, for good, before the write is completed."""
    if not (yield from delete_for_good([file.path for file in void])):
        raise StorageUnavailableError(
            "files of this write lie in what an overwrite has replaced meanwhile, and some cannot be removed, so that "
            f"Hudi's readers would show them: write again. requested={requested} files={[file.path for file in void]}"
        )


def grow(
    publisher: TablePublisher,
    known: Timeline,
    batch: pa.Schema,
    check: Callable[[TableSchema], None],
    author: Author | None = None,
    new: Mapping[str, str] = MappingProxyType({}),
) -> Steps[Timeline]:
    """The table's schema grows to hold `batch`; raises `SchemaMismatchError` where their types do not join.

    new: of columns that the batch adds, the names that people are to see, by their stored names.

    check: raises for a schema that the table must not have. It gets the joined one, with the columns of other writers.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        before = TableSchema.from_json(tail.schema)
        require_meant(tail, new)
        joined = before.grow(batch)
        check(joined)
        return None if joined == before else tail.grow(nonce, wall_ms, joined.to_json(), author, new)

    return (yield from publisher.publish(derive, known))


def set_properties(publisher: TablePublisher, known: Timeline, changes: Mapping[str, str | None]) -> Steps[Timeline]:
    """Some of the table's properties are set, or taken away.

    Raises `InvalidInputError` where that would be too many, and where the table has no such order of rows.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        properties = changed(tail.properties, changes)
        if not changes.keys().isdisjoint(layout.NAMES):
            layout.Layout.of(properties).require_columns(TableSchema.from_json(tail.schema))
        if properties == tail.properties:
            return None
        require_present(tail)
        return tail.set_properties(nonce, wall_ms, properties)

    return (yield from publisher.publish(derive, known))


def retain(
    publisher: TablePublisher, known: Timeline, retention_from: Callable[[Timeline], Retention]
) -> Steps[Timeline]:
    """The marks of the history that is kept move to where they follow from the tail, unless they stand there."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        retention = retention_from(tail)
        return None if retention == tail.retention else tail.retain(nonce, wall_ms, retention)

    return (yield from publisher.publish(derive, known))


def forget_tokens(publisher: TablePublisher, known: Timeline, since: InstantTime) -> Steps[Timeline]:
    """Applications whose last commit completed before `since` are forgotten, if there are any.

    A write that repeats a token of theirs later would be taken for a new one.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        old = any(token.completed < since for token in tail.tokens)
        return tail.forget_tokens(nonce, wall_ms, since) if old and tail.tokens_since <= since <= tail.clock else None

    return (yield from publisher.publish(derive, known))


def expired_error(requested: InstantTime | None) -> WriterExpiredError:
    """The error of a writer whose write was given up: the newest value has it neither pending nor completed."""
    return WriterExpiredError(
        "this write was given up: it was silent for longer than the expiry and another job rolled it back, or one of "
        "its own processes abandoned it, or a user rolled it back by hand or restored the table to an earlier moment. "
        f"Nothing of it is visible. Write again. requested={requested}"
    )


def expired_or_unknown(
    requested: InstantTime | None, tail: Timeline, since: InstantTime | None = None
) -> WriterExpiredError | DroppedHistoryError:
    """The error of a writer whose write `tail` has neither pending nor completed.

    It was given up, unless it may have been a commit that the value has dropped since. since: a time before which it
    cannot have completed; by default its requested time.
    """
    before = since or requested
    if before is None or not may_be_dropped(before, tail):
        return expired_error(requested)
    return DroppedHistoryError(
        "whether this write was committed is not known any more: it began before the history that the table has "
        "dropped. Look at the table before writing again, or write with a token, which may be repeated. "
        f"requested={requested} dropped_until={tail.retention.dropped}"
    )


def ended_error(requested: InstantTime, tail: Timeline) -> Steps[WriterExpiredError | DroppedHistoryError]:
    """The error of a process whose write is not pending any more: it was given up, or another has completed it."""
    completion = yield from find_completion(requested, tail)
    if completion is None:
        return expired_or_unknown(requested, tail)
    return WriterExpiredError(
        "another process of this job has completed the write meanwhile: it is visible, so do not write it again. "
        "Table.complete_write, called with this job, returns its commit. "
        f"requested={requested} completed={completion.completed} version={completion.version}"
    )


def taken_over_error(requested: InstantTime) -> TakenOverError:
    """The error of a driver that finds another one in its place."""
    return TakenOverError(
        "another driver of this job has taken the write over while this one was at it, and may have committed it: call "
        "complete_write again, which returns that commit, or else takes over in turn. "
        f"requested={requested}"
    )
