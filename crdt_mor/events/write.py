"""Begin and complete writes, grow the schema and set table properties, as protocol steps.

A pending write is invisible, so no process *needs* to roll it back. Writers that begin, and services that plan, give up
writes with an expired heartbeat; one put decides the race with a writer that was merely slow (rule 1). Files are
deleted only after the rollback is known to be genuine (rule 3).
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
from crdt_mor.model.table_properties import changed
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending, Retention, Token


class DroppedHistoryError(CommitUnknownError):
    """The table dropped the history since a write began: the write may have been committed."""


class TakenOverError(CommitUnknownError):
    """Another driver of the job took the write over."""


class GroupsMovedError(Exception):
    """Hudi's commits have replaced file groups of staged files: stage again with the file ids of `value`."""

    def __init__(self, value: Timeline) -> None:
        super().__init__(value.version)
        self.value = value


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The commit of a write. repeated: it existed before, by the same token or another driver of the job."""

    completion: Completion | Token
    value: Timeline
    repeated: bool = False


def begin(
    publisher: TablePublisher,
    known_tail: Timeline,
    expiry_ms: int,
    author: Author | None = None,
    shortcuts: Shortcuts = NO_SHORTCUTS,
    declared: Declared = ANYTHING,
) -> Steps[tuple[ValueOf, Pending]]:
    """Do upkeep, then begin a pending write. Returns the value in which it began.

    If that version is gone, because many versions followed before this process saw its begin, the write begins again.
    """
    tail: Timeline = known_tail
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
    if not shortcuts.is_far:  # in a bucket the age of the begin counts at first
        yield Touch(heartbeat_path(pending.requested))
    return value, pending


def complete(
    publisher: TablePublisher,
    known_tail: Timeline,
    begun: Pending,
    operation: str,
    files: Sequence[DataFile],
    token: tuple[str, int] | None,
    shortcuts: Shortcuts = NO_SHORTCUTS,
) -> Steps[WriteOutcome]:
    """Make the write visible in one put, unless its token was used or the write was given up.

    Files that a later overwrite voided are removed first, as Hudi's readers would show them. Raises
    `GroupsMovedError` if the rest is misplaced.
    """
    requested = begun.requested
    value = known_tail
    while True:
        intent = CompleteIntent((yield Nonce()), requested, begun.driver, operation, tuple(files), token)
        value = yield from publisher.publish(intent.derive, value, shortcuts, intent)
        void = value.void_files(requested, files) if intent.may_end(value) else []
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
            if not shortcuts.is_far or begun.driver:  # in a bucket a sweep does this: most writes have no heartbeat
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
    if not (yield from delete_for_good([file.path for file in void])):
        raise StorageUnavailableError(
            "an overwrite replaced partitions of this write, and some staged files cannot be removed. Hudi's "
            f"readers would show them, so nothing was published. Write again. requested={requested} "
            f"files={[file.path for file in void]}"
        )


def grow(
    publisher: TablePublisher,
    known_tail: Timeline,
    batch: pa.Schema,
    check: Callable[[TableSchema], None],
    author: Author | None = None,
    new: Mapping[str, str] = MappingProxyType({}),
) -> Steps[Timeline]:
    """Grow the table's schema to hold `batch`. Raises `SchemaMismatchError` if the types do not join.

    check: raises if the joined schema is not allowed.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        before = TableSchema.from_json(tail.schema)
        require_meant(tail, new)
        joined = before.grow(batch)
        check(joined)
        return None if joined == before else tail.grow(nonce, wall_ms, joined.to_json(), author, new)

    return (yield from publisher.publish(derive, known_tail))


def set_properties(
    publisher: TablePublisher, known_tail: Timeline, changes: Mapping[str, str | None]
) -> Steps[Timeline]:
    """Set or remove table properties. Raises `InvalidInputError` for too many, or an unknown column of the row
    order.
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

    return (yield from publisher.publish(derive, known_tail))


def retain(
    publisher: TablePublisher, known_tail: Timeline, retention_from: Callable[[Timeline], Retention]
) -> Steps[Timeline]:
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        retention = retention_from(tail)
        return None if retention == tail.retention else tail.retain(nonce, wall_ms, retention)

    return (yield from publisher.publish(derive, known_tail))


def forget_tokens(publisher: TablePublisher, known_tail: Timeline, since: InstantTime) -> Steps[Timeline]:
    """Forget applications with a last commit before `since`. Their repeated tokens then count as new."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        old = any(token.completed < since for token in tail.tokens)
        return tail.forget_tokens(nonce, wall_ms, since) if old and tail.tokens_since <= since <= tail.clock else None

    return (yield from publisher.publish(derive, known_tail))


def expired_error(requested: InstantTime | None) -> WriterExpiredError:
    return WriterExpiredError(
        "this write was given up: its process was silent for longer than the expiry, or a process, a user or a "
        f"restore rolled the write back. Nothing of the write is visible. Write again. requested={requested}"
    )


def expired_or_unknown(
    requested: InstantTime | None, tail: Timeline, since: InstantTime | None = None
) -> WriterExpiredError | DroppedHistoryError:
    """Return the error for a write that is missing from `tail`: given up, or a dropped commit."""
    before = since or requested
    if before is None or not may_be_dropped(before, tail):
        return expired_error(requested)
    return DroppedHistoryError(
        "whether this write was committed is unknown: the table dropped the history of that time. Check whether the "
        f"rows are in the table before you write again; a write with a token may be repeated. requested={requested} "
        f"dropped_until={tail.retention.dropped}"
    )


def ended_error(requested: InstantTime, tail: Timeline) -> Steps[WriterExpiredError | DroppedHistoryError]:
    completion = yield from find_completion(requested, tail)
    if completion is None:
        return expired_or_unknown(requested, tail)
    return WriterExpiredError(
        "another process of this job completed the write: do not write again. The commit is visible. "
        f"Table.jobs.complete with this job returns the commit. requested={requested} "
        f"completed={completion.completed} version={completion.version}"
    )


def taken_over_error(requested: InstantTime) -> TakenOverError:
    return TakenOverError(
        "another driver of this job took the write over and may have committed. Call complete() again, to get "
        f"that commit or to take over in turn. requested={requested}"
    )
