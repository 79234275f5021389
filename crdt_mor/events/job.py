"""The write of a job, which many processes make together: it begins once, and one driver alone completes it."""

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
    known: Timeline,
    expiry_ms: int,
    job: str,
    planned: InstantTime,
    author: Author | None = None,
    declared: Declared = ANYTHING,
) -> Steps[tuple[ValueOf, Pending] | WriteOutcome]:
    """Begin the write of a job, or join it: the first process begins, and all hold the value that it began from.

    A job begins once. When its write has ended in a commit, that commit is the answer; when it was given up, an error.

    The ticket is the value that the write began from. A process that dies before it has put the ticket leaves the
    version that published the begin, and the ticket is made from it.

    job: its name. planned: the table's clock at that time. declared: all that it may touch.
    """
    ticket = yield from read_ticket(job)
    if ticket is None:
        tail = yield from _begin_once(publisher, known, expiry_ms, job, planned, author, declared)
    else:
        tail = yield from find_tail(known)
    pending = tail.find_by_nonce(job)
    if not isinstance(pending, Pending):
        completion = yield from find_completion_by_nonce(job, planned, tail)
        if completion is None:
            raise expired_or_unknown(pending.requested if pending else None, tail, planned)
        return WriteOutcome(completion, tail, repeated=True)
    if ticket is not None:
        return _with_file_ids(ticket, tail)
    value = yield from value_of(pending, tail)
    if value is not None:
        yield Put(ticket_path(job), value.encode(), durable=False)
    ticket = yield from read_ticket(job)
    if ticket is None:  # the process that began it has died, and the version that others need to join is deleted
        yield from give_up(publisher, tail, pending.requested, None, others=True)
        raise expired_error(pending.requested)
    return _with_file_ids(ticket, tail)


def _with_file_ids(ticket: tuple[ValueOf, Pending], tail: Timeline) -> tuple[ValueOf, Pending]:
    """A ticket with the newest file ids, where the object of its own is to be read and may be gone.

    Tasks of a job may stage by others: whichever they are, the job's end asks again, and stages anew what was moved.
    """
    value, begun = ticket
    read = replace(value, file_ids=tail.file_ids) if isinstance(value.file_ids, Unread) else value
    return ValueOf(read), begun


def _begin_once(
    publisher: TablePublisher,
    known: Timeline,
    expiry_ms: int,
    job: str,
    planned: InstantTime,
    author: Author | None,
    declared: Declared,
) -> Steps[Tail]:
    """A value in which the write of a job has begun, unless it had ended before.

    A write that has ended is found in the value or among the completions. Where the value has forgotten a write that
    was given up, a note says so, which is put before the value forgets and stays as long as the job could begin.
    """
    tail, store_ms = yield from timed_upkeep(publisher, known, expiry_ms)

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        if tail.find_by_nonce(job) is not None or (yield from find_completion_by_nonce(job, planned, tail)) is not None:
            return None
        if may_be_dropped(planned, tail):
            raise DroppedHistoryError(
                "this job was planned before the history that the table has dropped, so that whether its write was "
                "committed is not known, and it does not begin again: look at the table, then plan the write anew. "
                f"job={job} planned_at={planned} dropped_until={tail.retention.dropped}"
            )
        last = last_begin_time(job)
        if last is None or tail.clock > last:
            raise WriterExpiredError(
                "this job was planned too long ago to begin, or to know whether it had begun before and was given up; "
                f"it was never committed. Plan the write again. job={job} planned_at={planned} clock={tail.clock}"
            )
        if (yield GetStat(note_path(job))) is not None:
            return None
        require_open(tail, author)
        return tail.begin(job, wall_ms, store_ms, author, declared)

    return (yield from publisher.publish(derive, tail, Shortcuts(store_ms=store_ms)))


def take_over(publisher: TablePublisher, known: Timeline, claimed: Pending) -> Steps[Pending]:
    """Make `claimed.driver` the one driver that may complete the write; the write with that driver and its author."""
    nonce = yield Nonce()
    requested, driver = claimed.requested, claimed.driver

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        pending = tail.find_pending(requested)
        if pending is None or pending.driver == driver:
            return None
        return tail.hand_over(nonce, wall_ms, requested, driver, claimed.author)

    value = yield from publisher.publish(derive, known)
    taken = value.find_pending(requested)
    if taken is None:
        raise (yield from ended_error(requested, value))
    return taken


def remove_files_of_earlier_drivers(requested: InstantTime, drivers: int) -> Steps[None]:
    """Remove files that drivers before number `drivers` gave final names. They can no longer complete the write."""
    earlier = []
    for file in (yield Walk()):
        name = data_file_name(file.path)
        driver = driver_of_token(name.token) if name is not None and name.instant == requested else None
        if driver is not None and driver < drivers:
            earlier.append(file.path)
    if not (yield from delete_for_good(earlier)):
        raise StorageUnavailableError(
            "files that an earlier driver of this job placed cannot all be removed, and Hudi's readers would show "
            f"them; nothing was published. Remove them, or plan the write again. files={earlier}"
        )


def clear_staged(publisher: TablePublisher, known: Timeline, requested: InstantTime, job: str) -> Steps[None]:
    """Remove what was staged for the write of a job, unless it goes on.

    Its driver calls this, and so does a task that finds the write over: that may be just after the event of an
    overwrite, which needs what was staged until the base files have their names.
    """
    tail = yield from find_tail(known)
    if tail.find_pending(requested) is None:
        yield from name_base_files(publisher, tail)
        yield from remove_staged_files(requested, job)
