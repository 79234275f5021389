"""What stops a write, by the newest value: a table that moves or is handed over, or a used token."""

from __future__ import annotations

from crdt_mor.errors import TokenOrderError
from crdt_mor.model.authors import Author
from crdt_mor.model.handover import require_not_handed_over
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.migration import require_arrived, require_not_moved
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Token
from crdt_mor.planners.restore import UNKNOWN


def require_present(tail: Timeline) -> None:
    """Raise if the table has moved or is handed over."""
    if tail.moving is not None:
        require_not_moved(tail.moving)
    if tail.handed_over != EPOCH:
        require_not_handed_over(tail.handed_over)


def require_open(tail: Timeline, author: Author | None) -> None:
    require_present(tail)
    if tail.origin is not None:
        require_arrived(tail.origin, author.application if author is not None else "")


def blocking_token(value: Timeline, token: tuple[str, int] | None) -> Token | None:
    """Return the application's last token if its number is not below `token`: then the write must not complete."""
    last = value.find_token(token[0]) if token else None
    return last if last is not None and token is not None and token[1] <= last.number else None


def repeated_token(value: Timeline, token: tuple[str, int] | None) -> Token:
    """Return the last token that a write with `token` repeats. Raises `TokenOrderError` otherwise."""
    last = blocking_token(value, token)
    assert last is not None
    assert token is not None
    if last.requested == UNKNOWN:
        raise TokenOrderError(
            "the table was restored to an earlier moment, so the application's last token number is unknown. Check "
            f"whether the rows are in the table, then use a number above the last. application={last.application!r} "
            f"number={token[1]} last={last.number}"
        )
    if token[1] < last.number:
        raise TokenOrderError(
            "the token's number is below the last number of its application: a repeat of an older write, or out of "
            f"order. Number the writes of an application in order. application={last.application!r} "
            f"number={token[1]} last={last.number}"
        )
    return last
