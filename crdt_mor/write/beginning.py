"""Begin writes in three phases and jobs, and refuse tables that cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from crdt_mor.errors import CommitUnknownError, CrdtMorError, StorageUnavailableError
from crdt_mor.events import rollback
from crdt_mor.events import write as events
from crdt_mor.events.session import Session
from crdt_mor.log.outcome import ValueOf
from crdt_mor.model.authors import Author
from crdt_mor.model.declared import Declared
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.store.protocol import side_by_side
from crdt_mor.write.adopted_keys import require_placed_keys
from crdt_mor.write.refusals import require_own_groups, require_writable


def begin_writable(session: Session, author: Author, declared: Declared) -> tuple[ValueOf, Pending]:
    """Begin a write after checking the table, in parallel on far stores; a failed check rolls the begin back."""
    if not session.is_far:
        require_writable(session)
        return begin(session, author, declared)
    begun: list[tuple[ValueOf, Pending]] = []

    def start() -> None:
        begun.append(begin(session, author, declared))

    try:
        calls: list[Callable[[], None]] = [start, partial(require_writable, session)]
        side_by_side(session.store, calls)
    except BaseException:
        for value, pending in begun:
            with suppress(Exception):
                _give_up(session, value, pending)
        raise
    return begun[0]


def begin(session: Session, author: Author, declared: Declared) -> tuple[ValueOf, Pending]:
    with _nothing_published():
        value, begun = session.begin(author, declared)
    _refuse_what_hudi_wrote(session, value, begun)
    return value, begun


def join(
    session: Session, job: str, planned: InstantTime, author: Author, declared: Declared
) -> tuple[ValueOf, Pending] | events.WriteOutcome:
    """Begin a job's write, join it, or return its commit; raise like `begin`."""
    with _nothing_published():
        joined = session.join(job, planned, author, declared)
    if not isinstance(joined, events.WriteOutcome):
        _refuse_what_hudi_wrote(session, *joined)
    return joined


@contextmanager
def _nothing_published() -> Iterator[None]:
    """Turn an unknown outcome of a begin into a failure of the store: at most an empty write stays, and expires."""
    try:
        yield
    except events.DroppedHistoryError:
        raise  # an old job may have committed
    except CommitUnknownError as error:
        cause = error.__cause__ or error
        raise StorageUnavailableError(
            f"the store failed while the write began; nothing was published. Try again. cause={cause}"
        ) from error


def _refuse_what_hudi_wrote(session: Session, value: Timeline, begun: Pending) -> None:
    try:
        require_placed_keys(session, value)
        require_own_groups(value)
    except CrdtMorError:
        _give_up(session, value, begun)
        raise


def _give_up(session: Session, value: Timeline, begun: Pending) -> None:
    session.run(rollback.give_up(session.publisher, value, begun.requested, [], begun.driver))
