"""From a point that a user names to a cut of this very table.

A point (see model/points.py) knows no table. Here it is held against the timeline of one table: its versions, its
clock, and the id that a checkpoint carries.
"""

from __future__ import annotations

from crdt_mor.errors import FutureSnapshotError, InvalidInputError, TableReplacedError
from crdt_mor.model.cut import By, Cut
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.points import NOW, Point, check_point, is_checkpoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.timeline.session import Session


def sealed_at(session: Session, **points: Point | None) -> Timeline:
    """The newest value, in which those of the points that are moments are decided: now, if they were not yet.

    points: by what the user calls them, for errors.

    Raises `FutureSnapshotError` where a moment lies in the future, or this process may not write what decides it.
    """
    value = session.sealed(decided=True)
    given = {name: point for name, point in points.items() if point is not None and not is_checkpoint(point)}
    named = [check_point(point, name) for name, point in given.items()]
    undecided = [moment for moment in named if not isinstance(moment, int) and moment != NOW and moment > value.clock]
    if undecided:
        session.decide(max(undecided))
        value = session.sealed(decided=True)
    return value


def cut_at(session: Session, value: Timeline, point: Point, name: str = "as_of") -> Cut:
    """The cut that shows what was completed at a version or by a moment; "now": all that `value` shows.

    name: what the user calls this point, for errors. Raises `FutureSnapshotError` where that is not decided yet.
    """
    checked = check_point(point, name)
    if checked == NOW:
        return Cut.latest(value, "completed")
    if isinstance(checked, int):
        if checked > value.version:
            raise FutureSnapshotError(f"no such version yet. {name}={checked} newest={value.version}")
        completed = (c.completed for c in session.completions(value) if c.version <= checked)
        return Cut("completed", max(completed, default=EPOCH))
    if checked > value.clock:
        raise FutureSnapshotError(
            "what this moment will show is not decided yet; ask for one that is not after the table's clock. "
            f"{name}={checked} clock={value.clock}"
        )
    return Cut("completed", checked)


def window_end(session: Session, value: Timeline, point: Point, by: By, name: str) -> Cut:
    """The cut at which a window of changes begins or ends: that of a checkpoint, else as `cut_at`.

    by: how the window's commits are ordered. name: what the user calls this end of the window, for errors.
    """
    if is_checkpoint(point):
        return _checkpoint(value, point, by, name)
    if by == "requested":
        raise InvalidInputError(
            f"stable changes go on from the checkpoint of stable changes, or from None. {name}={point!r}"
        )
    return cut_at(session, value, point, name)


def _checkpoint(value: Timeline, text: str, by: By, name: str) -> Cut:
    """The cut of a checkpoint; raises where it is not one of this table, or of changes ordered otherwise."""
    cut, table_id = Cut.parse(text)
    if table_id is not None and table_id != value.table_id:
        raise TableReplacedError(
            "this checkpoint is of another table, so that what has changed here since then cannot be told. If the "
            "table was made anew, begin anew: scan it, and go on from the scan's checkpoint (a Spark stream: with "
            "a new checkpointLocation). Else restore the table that it is of. "
            f"{name}={text!r} found={value.table_id}"
        )
    if cut.by != by:
        raise InvalidInputError(
            f"this checkpoint belongs to changes of another consistency: go on with that one. {name}={text!r}"
        )
    if cut.time > Cut.latest(value, by).time:
        raise InvalidInputError(
            "this checkpoint is ahead of the table: is it another table's, or was the table restored from a copy? "
            f"{name}={text!r} clock={value.clock}"
        )
    return cut
