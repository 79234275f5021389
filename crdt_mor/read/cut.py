"""Resolve a user's point in time (see model/points.py) to a cut of one table's commits."""

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
from crdt_mor.model.cut import By, Cut, restore_hiding
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.points import MOMENTS, NOW, Point, check_point, is_checkpoint
from crdt_mor.model.savepoint import Savepoint, is_savepoint_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.clean import shows_the_same
from crdt_mor.planners.restore import refuse_cut_off


def sealed_at(session: Session, **points: Point | None) -> Timeline:
    """Return the newest timeline value that decides all moments among the points (by argument name).

    Moments after the value's clock are decided now. A checkpoint counts as past: its issuer's clock may be ahead.

    Raises:
        FutureSnapshotError: a moment lies in the future, or this process may not write the deciding version.
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
    """Return the cut at a version, moment or savepoint; "now" is all that `value` shows.

    Args:
        name: the argument's name, for errors.

    Raises:
        FutureSnapshotError: the point is not decided yet.
        SnapshotExpiredError: a clean or a restore dropped that history.
        InvalidInputError: the savepoint does not exist.
    """
    if is_savepoint_name(point):
        return Cut("completed", saved_under(value, str(point), name, moments=True).at)
    cut = _cut_at(session, value, point, name)
    refuse_cut_off(value, cut, name)
    return cut


def saved_under(value: Timeline, text: str, name: str = "as_of", *, moments: bool = False) -> Savepoint:
    """Return the savepoint of this name, or raise `InvalidInputError`, with other `moments` in the message."""
    found = value.find_savepoint(text)
    if found is None:
        raise InvalidInputError(
            f"no savepoint of this name exists; table.maintenance.savepoints() lists all savepoints"
            f"{f'. Other moments: {MOMENTS}, or now' if moments else ''}. {name}={text!r} "
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
            "the snapshot at this moment is not decided yet; pass a moment up to the table's clock. "
            f"{name}={checked} clock={value.clock}"
        )
    if checked < value.retention.since and all(s.at != checked for s in value.savepoints):
        raise _expired(value, checked, name)
    return Cut("completed", checked)


def _version(session: Session, value: Timeline, version: int, name: str) -> Cut:
    if version > value.version:
        raise FutureSnapshotError(
            "this version does not exist yet. Use the `version` column of history(), not `ordinal`. "
            f"{name}={version} newest={value.version}"
        )
    cut_off = next((r for r in value.restores if r.hides_version(version)), None)
    if cut_off is not None:
        raise SnapshotExpiredError(
            "the table was restored to an earlier moment, and the snapshot of this version is gone. "
            "Pass a version before `gone_from`, or from `restored_in` on. "
            f"{name}={version} gone_from={cut_off.first_version} restored_in={cut_off.version}"
        )
    completions = session.views.completions(value)
    completed = max((c.completed for c in completions if c.version <= version), default=EPOCH)
    oldest = value.retention.since
    if completed >= oldest:
        return Cut("completed", completed)
    # Without a commit between the version and the oldest kept moment, both show the same rows, unless rows expire.
    if session.config.merge.expiry is not None or not shows_the_same(
        value, completions, Cut("completed", completed), oldest
    ):
        raise _expired(value, version, name)
    return Cut("completed", oldest)


def _expired(value: Timeline, point: Point, name: str) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        "a clean dropped the history of this moment: pass the oldest kept moment or a later one. "
        f"{name}={point} oldest={value.retention.since}"
    )


def window_end(session: Session, value: Timeline, point: Point, by: By, name: str, *, exact: bool = False) -> Cut:
    """exact: never return a later cut of the same commits."""
    if is_checkpoint(point):
        return _checkpoint(session, value, point, by, name, exact)
    if by == "requested":
        raise InvalidInputError(f"pass a checkpoint of stable changes, or None, for stable changes. {name}={point!r}")
    return kept_cut_at(session, value, point, name)


def kept_cut_at(session: Session, value: Timeline, point: Point, name: str) -> Cut:
    """Return `cut_at`, or raise if history after the point was dropped: a savepoint keeps only its snapshot."""
    cut = cut_at(session, value, point, name)
    if cut.time < value.retention.since:
        raise _expired(value, point, name)
    return cut


def _checkpoint(session: Session, value: Timeline, text: str, by: By, name: str, exact: bool) -> Cut:
    cut, table_id = Cut.parse(text)
    if table_id is not None and table_id != value.table_id:
        raise TableReplacedError(
            "this checkpoint belongs to another table. If the table was recreated, scan it and continue from the "
            "scan's checkpoint (a Spark stream: with a new checkpointLocation). Otherwise restore the checkpoint's "
            f"table. {name}={text!r} found={value.table_id}"
        )
    if cut.by != by:
        raise InvalidInputError(
            f"this checkpoint was made with another `consistency`: pass the same value. {name}={text!r}"
        )
    if cut.time > Cut.latest(value, by).time:
        raise InvalidInputError(
            "this checkpoint is ahead of the table: check whether it belongs to another table, or whether the table "
            "was restored from a copy. "
            f"{name}={text!r} clock={value.clock}"
        )
    restore = restore_hiding(value.restores, cut)
    if restore is not None:
        raise CheckpointExpiredError(
            "the table was restored to an earlier moment, and commits before this checkpoint are gone: scan the table "
            "and continue from the scan's checkpoint (a Spark stream: with a new checkpointLocation, and the scan's "
            f"checkpoint as the option since). {name}={text!r} restored_to={restore.to} restored_at={restore.at}"
        )
    return _retained(session, value, cut, text, name, exact)


def _retained(session: Session, value: Timeline, cut: Cut, text: str, name: str, exact: bool) -> Cut:
    retention = value.retention
    oldest = retention.since if cut.by == "completed" else retention.stable_since
    if cut.time >= oldest or cut.time == EPOCH:
        return cut
    # On an idle table a checkpoint may be older than the kept history without missing a commit.
    if not exact and shows_the_same(value, session.views.completions(value), cut, oldest):
        return replace(cut, time=oldest)
    raise CheckpointExpiredError(
        "a clean dropped the history after this checkpoint: scan the table and continue from the scan's "
        "checkpoint (a Spark stream: with a new checkpointLocation, and the scan's checkpoint as the option since). "
        f"{name}={text!r} oldest={oldest}"
    )
