"""What stops a write, by the newest value: a table that moves or is handed over, or a token that was used before."""

from __future__ import annotations

from crdt_mor.errors import TokenOrderError
from crdt_mor.model.authors import Author
from crdt_mor.model.handover import require_not_handed_over
from crdt_mor.model.migration import require_arrived, require_not_moved
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Token
from crdt_mor.planners.restore import UNKNOWN


def require_present(tail: Timeline) -> None:
    """Raise where nothing must begin: the table has moved, or is handed over."""
    require_not_moved(tail.moving)
    require_not_handed_over(tail.handed_over)


def require_open(tail: Timeline, author: Author | None) -> None:
    """Raise where a write of this author must not begin: as `require_present`, or the table is still being filled."""
    require_present(tail)
    require_arrived(tail.origin, author.application if author is not None else "")


def blocking_token(value: Timeline, token: tuple[str, int] | None) -> Token | None:
    """The last token of the application, if its number is not below that of `token`: then a write must not complete."""
    last = value.find_token(token[0]) if token else None
    return last if last is not None and token is not None and token[1] <= last.number else None


def repeated_token(value: Timeline, token: tuple[str, int] | None) -> Token:
    """The last token of the application, where a write with `token` repeats it; raises `TokenOrderError` otherwise."""
    last = blocking_token(value, token)
    assert last is not None
    assert token is not None
    if last.requested == UNKNOWN:
        raise TokenOrderError(
            "the table was restored to an earlier moment, and with what number those commits of this application end "
            "that were kept is not known any more, so that this write may repeat one of them: look whether its rows "
            "are there, and go on with a number above the last one. "
            f"application={last.application!r} number={token[1]} last={last.number}"
        )
    if token[1] < last.number:
        raise TokenOrderError(
            "this token's number is below the last one of its application, so it is either a repeat of an older write "
            "or out of order; number writes of one application in the order in which they are made. "
            f"application={last.application!r} number={token[1]} last={last.number}"
        )
    return last
