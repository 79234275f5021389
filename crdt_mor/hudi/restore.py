"""Carry out a restore, as protocol steps: any process may do so, repeatedly and late.

    1. older versions of the value   delete, oldest first: a stalled helper finds its version gone, looks at the tail,
                                     and withdraws its files of dropped instants
    2. each dropped instant          latest completion first: delete its completed file in Hudi's timeline, so that it
                                     is pending to Hudi's readers, its data files, then the rest

An instant's files are durably gone before the next is touched, so Hudi's readers always see the table at some earlier
moment. Two pending compactions of a file group would make the
table unreadable to Hudi's Spark reader, and Hudi's readers take a log file older than the timeline for committed. So
after a failed deletion no earlier instant is touched: the rest is for a sweep by the file's owner.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crdt_mor.hudi.actions import when_put
from crdt_mor.log.outcome import is_given_up_in
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Delete, List, Steps, delete_for_good, read_named
from crdt_mor.log.tail import listed_versions, still_stands
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import TimelineFileName, timeline_file_name
from crdt_mor.model.restore import Restore
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.restore import DroppedCommit, RestorePlan
from crdt_mor.store.protocol import Stat

HudiFiles = dict[InstantTime, list[TimelineFileName]]
"""Files in Hudi's timeline, by requested time."""


def restore_of_version(value: Timeline) -> Restore | None:
    return next((r for r in value.restores if r.version == value.version), None)


def carry_out(value: Timeline, folder: str) -> Steps[None]:
    """Carry out the restore of this version, if any. folder: Hudi's timeline."""
    restore = restore_of_version(value)
    if restore is None:
        return
    yield from delete_older_versions(value)
    data = yield from read_named(restore.path)
    if data is None:
        return  # the table was replaced
    plan = RestorePlan.decode(data, restore.path)
    named = yield from hudi_files_in(folder)
    if named.keys().isdisjoint(d.requested for d in plan.dropped):
        return
    for dropped in plan.dropped:
        if not (yield from drop(dropped, folder, named.get(dropped.requested, ()))):
            return


def delete_older_versions(value: Timeline) -> Steps[None]:
    """Delete earlier versions, strictly oldest first, up to the first that stays."""
    names = yield from listed_versions()
    if not (yield from still_stands(value)):
        return  # later publishers have done this, or the table was replaced
    for name in names:
        if name.path >= version_path(value.version) or not (yield Delete(name.path)):
            return


def hudi_files_in(folder: str) -> Steps[HudiFiles]:
    listed: list[Stat] = yield List(folder)
    found: HudiFiles = {}
    for stat in listed:
        name = timeline_file_name(stat.path)
        if name is not None:
            found.setdefault(name.requested, []).append(name)
    return found


def drop(dropped: DroppedCommit, folder: str, names: Sequence[TimelineFileName]) -> Steps[bool]:
    """Remove an instant. Returns True if nothing is left.

    If data stays, the instant stays pending for a sweep. If the completed file stays, so does all data.
    """
    later = sorted(names, key=when_put, reverse=True)
    ended = [f"{folder}/{name}" for name in later if name.state == "completed"]
    begun = [f"{folder}/{name}" for name in later if name.state != "completed"]
    for paths in (ended, dropped.files, begun):
        if not (yield from delete_for_good(paths)):
            return False
    return True


def withdraw_dropped(tail: Timeline, value: Timeline, placed: Sequence[str]) -> Steps[None]:
    if all(restore.version <= value.version for restore in tail.restores):
        return
    outcome: dict[InstantTime, bool] = {}
    for path in reversed(placed):
        name = timeline_file_name(path)
        if name is None:
            continue
        if name.requested not in outcome:
            outcome[name.requested] = yield from is_given_up_in(name.requested, tail)
        if outcome[name.requested]:
            yield Delete(path)


def dropped_by_restores(
    value: Timeline, hudi_files: HudiFiles, known_instants: Collection[InstantTime]
) -> Steps[dict[InstantTime, DroppedCommit]]:
    """Return the instants that restores dropped and somebody left in Hudi's timeline.

    A restore's plan is read only if an unknown instant completed in its dropped time.
    """
    found: dict[InstantTime, DroppedCommit] = {}
    for restore in value.restores:
        suspects = {
            requested
            for requested, names in hudi_files.items()
            if requested not in known_instants
            and requested < restore.at
            and any(name.completed is None or restore.to < name.completed < restore.at for name in names)
        }
        data = (yield from read_named(restore.path)) if suspects else None
        if data is not None:
            plan = RestorePlan.decode(data, restore.path)
            found |= {d.requested: d for d in plan.dropped if d.requested in suspects}
    return found
