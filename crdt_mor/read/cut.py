"""From a point that a user names to a cut of this very table.

A point (see model/points.py) knows no table. Here it is held against the timeline of one table: its versions, its
clock, the history that it still answers for, and the id that a checkpoint carries.
"""

from __future__ import annotations

from dataclasses import replace

from crdt_mor.errors import (
    CheckpointExpiredError,
    FutureSnapshotError,
    InvalidInputError,
    SnapshotExpiredError,
    TableReplacedError,
)
from crdt_mor.events.session import Session
from crdt_mor.model.cut import By, Cut
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.points import MOMENTS, NOW, Point, check_point, is_checkpoint
from crdt_mor.model.restore import restore_hiding
from crdt_mor.model.savepoint import Savepoint, is_savepoint_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.clean import shows_the_same
from crdt_mor.planners.restore import refuse_cut_off


def sealed_at(session: Session, **points: Point | None) -> Timeline:
    """The newest value, in which those of the points that are moments are decided: now, if they were not yet.

    points: by what the user calls them, for errors. A checkpoint was decided when it was handed out: maybe by a clock
        that is ahead of this machine's, which then takes for come what had come by that clock.

    Raises `FutureSnapshotError` where a moment lies in the future, or this process may not write what decides it.
    """
    handed_out = [Cut.parse(point)[0] for point in points.values() if is_checkpoint(point)]
    value = session.views.sealed(decided=True, handed_out=handed_out)
    given = {name: point for name, point in points.items() if point is not None and not is_checkpoint(point)}
    local = session.config.local_times
    named = [check_point(point, name, local=local) for name, point in given.items() if not is_savepoint_name(point)]
    undecided = [moment for moment in named if not isinstance(moment, int) and moment != NOW and moment > value.clock]
    if undecided:
        session.views.decide(max(undecided))
        value = session.views.sealed(decided=True, handed_out=handed_out)
    return value


def cut_at(session: Session, value: Timeline, point: Point, name: str = "as_of") -> Cut:
    """The cut that shows what was completed at a version or by a moment; "now": all that `value` shows.

    name: what the user calls this point, for errors. Raises `FutureSnapshotError` where that is not decided yet,
    `SnapshotExpiredError` where a clean has given that history up, or a restore has cut it off, and `InvalidInputError`
    where there is no savepoint of this name.
    """
    if is_savepoint_name(point):
        return Cut("completed", saved_under(value, str(point), name, moments=True).at)
    cut = _cut_at(session, value, point, name)
    refuse_cut_off(value, cut, name)
    return cut


def saved_under(value: Timeline, text: str, name: str = "as_of", *, moments: bool = False) -> Savepoint:
    """The savepoint of this name; raises `InvalidInputError` where there is none.

    moments: whether the text might name another moment as well, for the message.
    """
    found = value.find_savepoint(text)
    if found is None:
        raise InvalidInputError(
            f"the table has no savepoint of this name; table.savepoints() lists those that it has"
            f"{f'. Any other moment is {MOMENTS}, or now' if moments else ''}. {name}={text!r} "
            f"savepoints={[s.name for s in value.savepoints]}"
        )
    return found


def _cut_at(session: Session, value: Timeline, point: Point, name: str) -> Cut:
    checked = check_point(point, name, local=session.config.local_times)
    if checked == NOW:
        return Cut.latest(value, "completed")
    if isinstance(checked, int):
        return _version(session, value, checked, name)
    if checked > value.clock:
        raise FutureSnapshotError(
            "what this moment will show is not decided yet; ask for one that is not after the table's clock. "
            f"{name}={checked} clock={value.clock}"
        )
    if checked < value.retention.since and all(s.at != checked for s in value.savepoints):
        raise _expired(value, checked, name)
    return Cut("completed", checked)


def _version(session: Session, value: Timeline, version: int, name: str) -> Cut:
    """The cut that shows what was completed at a version."""
    if version > value.version:
        raise FutureSnapshotError(
            "no such version yet. A whole number is a version of the timeline, which history() has as `version`; what "
            f"it has as `ordinal` counts commits, and names no moment. {name}={version} newest={value.version}"
        )
    cut_off = next((r for r in value.restores if r.hides_version(version)), None)
    if cut_off is not None:
        raise SnapshotExpiredError(
            "history was cut here: the table was restored to an earlier moment, and what this version showed is gone. "
            "Ask for a version before that, or from the restore on. "
            f"{name}={version} gone_from={cut_off.first_version} restored_in={cut_off.version}"
        )
    completions = session.views.completions(value)
    completed = max((c.completed for c in completions if c.version <= version), default=EPOCH)
    oldest = value.retention.since
    if completed >= oldest:
        return Cut("completed", completed)
    # What the mark has passed without a commit in between is what the mark shows.
    if not shows_the_same(value, completions, Cut("completed", completed), oldest):
        raise _expired(value, version, name)
    return Cut("completed", oldest)


def _expired(value: Timeline, point: Point, name: str) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        "the table no longer keeps history from so long ago, a clean has given it up: ask for the oldest snapshot that "
        f"there is, or a later one. {name}={point} oldest={value.retention.since}"
    )


def window_end(session: Session, value: Timeline, point: Point, by: By, name: str) -> Cut:
    """The cut at which a window of changes begins or ends: that of a checkpoint, else as `kept_cut_at`.

    by: how the window's commits are ordered. name: what the user calls this end of the window, for errors.
    """
    if is_checkpoint(point):
        return _checkpoint(session, value, point, by, name)
    if by == "requested":
        raise InvalidInputError(
            f"stable changes go on from the checkpoint of stable changes, or from None. {name}={point!r}"
        )
    return kept_cut_at(session, value, point, name)


def kept_cut_at(session: Session, value: Timeline, point: Point, name: str) -> Cut:
    """As `cut_at`, of a point since which all is kept: a savepoint keeps what it shows, and not what came after it."""
    cut = cut_at(session, value, point, name)
    if cut.time < value.retention.since:
        raise _expired(value, point, name)
    return cut


def _checkpoint(session: Session, value: Timeline, text: str, by: By, name: str) -> Cut:
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
    restore = restore_hiding(value.restores, cut)
    if restore is not None:
        raise CheckpointExpiredError(
            "history was cut: the table was restored to an earlier moment, and commits that this checkpoint has passed "
            "are gone, so that what has changed since then cannot be told: scan the table, and go on from the scan's "
            "checkpoint (a Spark stream: start it with a new checkpointLocation, from the scan's checkpoint as the "
            f"option since). {name}={text!r} restored_to={restore.to} restored_at={restore.at}"
        )
    return _retained(session, value, cut, text, name)


def _retained(session: Session, value: Timeline, cut: Cut, text: str, name: str) -> Cut:
    """The cut of a checkpoint, as the table still answers for it; raises `CheckpointExpiredError` where it does not."""
    retention = value.retention
    oldest = retention.since if cut.by == "completed" else retention.stable_since
    if cut.time >= oldest or cut.time == EPOCH:
        return cut
    # A follower of a table that rests keeps a checkpoint from before the mark, and has missed nothing.
    if shows_the_same(value, session.views.completions(value), cut, oldest):
        return replace(cut, time=oldest)
    raise CheckpointExpiredError(
        "what commits after this checkpoint wrote is gone, a clean has given that history up: scan the table, and go "
        "on from the scan's checkpoint (a Spark stream: start it with a new checkpointLocation, from the scan's "
        f"checkpoint as the option since). {name}={text!r} oldest={oldest}"
    )
