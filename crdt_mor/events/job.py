"""The write of a job: many processes make it together, and a single driver completes it."""

from __future__ import annotations

from dataclasses import replace

from crdt_mor.errors import StorageUnavailableError, WriterExpiredError
from crdt_mor.events.rollback import give_up, remove_staged_files
from crdt_mor.events.sweep import name_base_files, timed_upkeep
from crdt_mor.events.ticket import last_begin_time, read_ticket
from crdt_mor.events.write import DroppedHistoryError, WriteOutcome, ended_error, expired_error, expired_or_unknown
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.outcome import ValueOf, find_completion_by_nonce, may_be_dropped, value_of
from crdt_mor.log.paths import note_path, ticket_path
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import GetStat, Nonce, Put, Steps, Walk, delete_for_good
from crdt_mor.log.stopping import require_open
from crdt_mor.log.tail import Tail, find_tail
from crdt_mor.model.authors import Author
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.file_ids import Unread
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import data_file_name, driver_of_token
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending


def join(
    publisher: TablePublisher,
    known_tail: Timeline,
    expiry_ms: int,
    job: str,
    planned: InstantTime,
    author: Author | None = None,
    declared: Declared = ANYTHING,
) -> Steps[tuple[ValueOf, Pending] | WriteOutcome]:
    """Begin or join the write of a job. All processes hold the value that the write began from: the ticket.

    A job begins once. After a commit, the result is that commit; after a rollback, an error. planned: the table's clock
    at planning.
    """
    ticket = yield from read_ticket(job)
    if ticket is None:
        tail = yield from _begin_once(publisher, known_tail, expiry_ms, job, planned, author, declared)
    else:
        tail = yield from find_tail(known_tail)
    pending = tail.find_by_nonce(job)
    if not isinstance(pending, Pending):
        completion = yield from find_completion_by_nonce(job, planned, tail)
        if completion is None:
            raise expired_or_unknown(pending.requested if pending else None, tail, planned)
        return WriteOutcome(completion, tail, repeated=True)
    if ticket is not None:
        return _with_parts(ticket, tail)
    value = yield from value_of(pending, tail)
    if value is not None:
        whole = replace(value, schema_object=None)  # the begin's object may be deleted before the job ends
        yield Put(ticket_path(job), whole.encode(), durable=False)
    ticket = yield from read_ticket(job)
    if ticket is None:  # the first process died, and the version of the begin is deleted
        yield from give_up(publisher, tail, pending.requested, None, others=True)
        raise expired_error(pending.requested)
    return _with_parts(ticket, tail)


def _with_parts(ticket: tuple[ValueOf, Pending], tail: Timeline) -> tuple[ValueOf, Pending]:
    """Return a ticket with the newest file ids and tokens, if its own are unread and perhaps deleted.

    The job's end checks them again and stages moved files anew.
    """
    value, begun = ticket
    file_ids = tail.file_ids if isinstance(value.file_ids, Unread) else value.file_ids
    tokens = tail.tokens if value.tokens.is_unread else value.tokens
    return ValueOf(replace(value, file_ids=file_ids, tokens=tokens)), begun


def _begin_once(
    publisher: TablePublisher,
    known_tail: Timeline,
    expiry_ms: int,
    job: str,
    planned: InstantTime,
    author: Author | None,
    declared: Declared,
) -> Steps[Tail]:
    """Return a value in which a job's write has begun, unless already ended.

    A note of a rolled-back write stays as long as the job could begin.
    """
    tail, store_ms = yield from timed_upkeep(publisher, known_tail, expiry_ms)

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        if tail.find_by_nonce(job) is not None or (yield from find_completion_by_nonce(job, planned, tail)) is not None:
            return None
        if may_be_dropped(planned, tail):
            raise DroppedHistoryError(
                "whether this job's write was committed is unknown: the table dropped the history since the job was "
                f"planned, so the write does not begin again. Check the table, then plan the write again. job={job} "
                f"planned_at={planned} dropped_until={tail.retention.dropped}"
            )
        last = last_begin_time(job)
        if last is None or tail.clock > last:
            raise WriterExpiredError(
                "this job was planned too long ago to begin, and was never committed. Plan the write again. "
                f"job={job} planned_at={planned} clock={tail.clock}"
            )
        if (yield GetStat(note_path(job))) is not None:
            return None
        require_open(tail, author)
        return tail.begin(job, wall_ms, store_ms, author, declared)

    return (yield from publisher.publish(derive, tail, Shortcuts(store_ms=store_ms)))


def take_over(publisher: TablePublisher, known_tail: Timeline, claimed: Pending) -> Steps[Pending]:
    """Make `claimed.driver` the only driver that may complete the write."""
    nonce = yield Nonce()
    requested, driver = claimed.requested, claimed.driver

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        pending = tail.find_pending(requested)
        if pending is None or pending.driver == driver:
            return None
        return tail.hand_over(nonce, wall_ms, requested, driver, claimed.author)

    value = yield from publisher.publish(derive, known_tail)
    taken = value.find_pending(requested)
    if taken is None:
        raise (yield from ended_error(requested, value))
    return taken


def remove_files_of_earlier_drivers(requested: InstantTime, drivers: int) -> Steps[None]:
    """Remove final files of drivers before number `drivers`, which can no longer complete the write."""
    earlier = []
    for file in (yield Walk()):
        name = data_file_name(file.path)
        driver = driver_of_token(name.token) if name is not None and name.instant == requested else None
        if driver is not None and driver < drivers:
            earlier.append(file.path)
    if not (yield from delete_for_good(earlier)):
        raise StorageUnavailableError(
            "files that an earlier driver of this job placed cannot all be removed, and Hudi's readers would show "
            f"them. Nothing was published. Remove these files, or plan the write again. files={earlier}"
        )


def clear_staged(publisher: TablePublisher, known_tail: Timeline, requested: InstantTime, job: str) -> Steps[None]:
    """Remove the staged files of a job's ended write. First give an overwrite's base files their names."""
    tail = yield from find_tail(known_tail)
    if tail.find_pending(requested) is None:
        yield from name_base_files(publisher, tail)
        yield from remove_staged_files(requested, job)
