"""Roll back a write or cancel a plan by its instant.

The files are removed once the event's version is confirmed (rule 3 of `log.publish`). A live writer gets
`WriterExpiredError` at its commit, and a live executor removes its outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from crdt_mor.errors import InvalidInputError, StorageUnavailableError
from crdt_mor.events import plan as plans
from crdt_mor.events import rollback
from crdt_mor.events.session import Session
from crdt_mor.hudi.adoption_pending import begun_files, claimed
from crdt_mor.log.outcome import find_completion, find_rollback
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.store.protocol import Stat

WRITE = "write"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A rolled-back write or cancelled plan, which readers never see.

    Attributes:
        instant: Its requested time, 17 digits.
        kind: `write`, or the service of a plan: `compaction`, `clean`, …
        application, host, pid: The author; None if unknown, as for plans.
        repeated: True if it was given up before.
        left: Number of its data files that could not be removed.
    """

    instant: InstantTime
    kind: str
    application: str | None = None
    host: str | None = None
    pid: int | None = None
    repeated: bool = False
    left: int = 0

    def __str__(self) -> str:
        what = f"write {self.instant}" if self.kind == WRITE else f"plan of {self.kind} {self.instant}"
        if self.repeated:
            return f"the {what} was already given up"
        by = f" of {self.application} (process {self.pid} on {self.host})" if self.application is not None else ""
        done = "rolled back the" if self.kind == WRITE else "cancelled the"
        files = (
            f"{self.left:,} of its files could not be removed; the next sweep tries again"
            if self.left
            else "its files are removed"
        )
        return f"{done} {what}{by}: readers never saw any of it, and {files}"


def roll_back(session: Session, instant: InstantTime) -> GivenUp:
    value = session.tail()
    pending, plan, is_claimed = value.find_pending(instant), value.find_plan(instant), False
    if pending is not None:
        value = session.run(rollback.give_up(session.publisher, value, instant, None, others=True))
    elif plan is not None:
        value = session.run(plans.cancel(session.publisher, value, instant))
    elif is_claimed := instant in {write.requested for write in claims(session, value)}:
        value = session.run(rollback.give_up_claim(session.publisher, value, instant))
    session.remember(value)
    gone = value.find_rolled_back(instant)
    if gone is not None:
        repeated = pending is None and plan is None
        author = pending.author if pending is not None else None
        found = _given_up(instant, gone.action if gone.is_plan else WRITE, author, repeated)
        return replace(found, left=_count_left(session, instant))
    if (session.run(find_rollback(instant, value))) is not None:
        return _given_up(instant, WRITE, None, repeated=True)
    completion = session.run(find_completion(instant, value))
    if completion is None and is_claimed:
        return replace(_given_up(instant, WRITE, None, repeated=False), left=_count_left(session, instant))
    if completion is None:
        _refuse_unknown(instant)
    raise InvalidInputError(
        "this instant is committed, and readers have seen it: only pending writes can be rolled back. To undo a "
        "commit, write its earlier rows again, read with as_of a moment before it. "
        f"instant={instant} operation={completion.operation} completed={completion.completed} "
        f"version={completion.version}"
    )


def claims(session: Session, value: Timeline, listed: Sequence[Stat] | None = None) -> list[Pending]:
    """Return writes with a claimed time in Hudi's timeline, unknown to the value."""
    listed = session.store.list(session.publisher.projector.folder) if listed is None else listed
    found = session.run(claimed(begun_files(value, listed)))
    known_from = max(value.archive.watermark, value.retention.dropped)  # the value does not know earlier instants
    return [write for write in found if write.requested > known_from]


def _count_left(session: Session, instant: InstantTime) -> int:
    with suppress(StorageUnavailableError):
        names = (data_file_name(stat.path) for stat in session.store.walk(""))
        return sum(name is not None and name.instant == instant for name in names)
    return 0


def _given_up(instant: InstantTime, kind: str, author: Author | None, repeated: bool) -> GivenUp:
    if author is None:
        return GivenUp(instant, kind, repeated=repeated)
    return GivenUp(instant, kind, author.application, author.host, author.pid, repeated)


def _refuse_unknown(instant: InstantTime) -> NoReturn:
    raise InvalidInputError(
        "the table knows no write or plan of this instant: table.inspect.pending() lists pending writes, "
        "table.inspect.timeline() lists open plans. "
        f"Only Hudi can roll back a pending write of Hudi. instant={instant}"
    )
