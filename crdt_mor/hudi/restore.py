"""Carrying out a restore, as protocol steps: any process may do it, as often and as late as it likes.

    1. older versions of the value   deleted, the oldest first: a helper of one of them that has stalled finds it gone,
                                     looks at the tail, and withdraws what it put for an instant that was dropped
    2. each dropped instant          the one that was completed last goes first: its completed file in Hudi's
                                     timeline, so that it is pending to Hudi's readers, its data files, then the rest

So Hudi's readers see the table as it was at one earlier moment after another. The files of one instant are gone, for
good, before the next one is touched. Two pending compactions of one file group would make the table unreadable to
Hudi's Spark reader, and Hudi's readers take a log file whose instant is older than all in the timeline for committed.
So where a file cannot be deleted, as it is another user's, nothing that was completed before is touched: the rest is
for a sweep by a user that may.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.hudi.actions import when_put
from crdt_mor.log.outcome import is_given_up_in
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Delete, List, Steps, delete_for_good, read_named
from crdt_mor.log.tail import listed_versions, still_stands
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import TimelineFileName, timeline_file_name
from crdt_mor.model.restore import Restore
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.restore import Dropped, RestorePlan
from crdt_mor.store.protocol import Stat

Named = dict[InstantTime, list[TimelineFileName]]
"""The files in Hudi's timeline directory, by the requested times of their instants."""


def restore_of_version(value: Timeline) -> Restore | None:
    """The restore that this very version made; None where it made none."""
    return next((r for r in value.restores if r.version == value.version), None)


def carry_out(value: Timeline, folder: str) -> Steps[None]:
    """Carry out the restore of this very version, if it made one. folder: Hudi's timeline directory."""
    restore = restore_of_version(value)
    if restore is None:
        return
    yield from delete_older_versions(value)
    data = yield from read_named(restore.path)
    if data is None:
        return  # the table is another one by now
    plan = RestorePlan.decode(data, restore.path)
    named = yield from named_in(folder)
    if named.keys().isdisjoint(d.requested for d in plan.dropped):
        return
    for dropped in plan.dropped:
        if not (yield from drop(dropped, folder, named.get(dropped.requested, ()))):
            return


def delete_older_versions(value: Timeline) -> Steps[None]:
    """Delete the versions before this one, strictly oldest first; the first one that cannot be deleted ends it."""
    names = yield from listed_versions()
    if not (yield from still_stands(value)):
        return  # there are later ones, whose publishers have done this; or the table is another one
    for name in names:
        if name.path >= version_path(value.version) or not (yield Delete(name.path)):
            return


def named_in(folder: str) -> Steps[Named]:
    """What stands in Hudi's timeline directory."""
    listed: list[Stat] = yield List(folder)
    found: Named = {}
    for stat in listed:
        name = timeline_file_name(stat.path)
        if name is not None:
            found.setdefault(name.requested, []).append(name)
    return found


def drop(dropped: Dropped, folder: str, names: Sequence[TimelineFileName]) -> Steps[bool]:
    """Remove one instant; whether nothing is left of it.

    What cannot be deleted of its data keeps it pending in Hudi's timeline, for a sweep; and where the completed file
    cannot, the data stays, so that Hudi's readers see all of it or nothing.
    """
    later = sorted(names, key=when_put, reverse=True)
    ended = [f"{folder}/{name}" for name in later if name.state == "completed"]
    begun = [f"{folder}/{name}" for name in later if name.state != "completed"]
    for paths in (ended, dropped.files, begun):
        if not (yield from delete_for_good(paths)):
            return False
    return True


def withdraw_dropped(tail: Timeline, value: Timeline, placed: Sequence[str]) -> Steps[None]:
    """Remove those of `placed`, files of this version's events, that were put after a restore had dropped them."""
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


def dropped_by_restores(value: Timeline, named: Named, known: set[InstantTime]) -> Steps[dict[InstantTime, Dropped]]:
    """The instants in Hudi's timeline that restores have dropped, and that somebody has left there.

    known: the instants that the value has. Only where one is not known that was completed before a restore, and after
    what that went back to, the plan of the restore is read, which names what it dropped.
    """
    found: dict[InstantTime, Dropped] = {}
    for restore in value.restores:
        suspects = {
            requested
            for requested, names in named.items()
            if requested not in known
            and requested < restore.at
            and any(name.completed is None or restore.to < name.completed < restore.at for name in names)
        }
        data = (yield from read_named(restore.path)) if suspects else None
        if data is not None:
            plan = RestorePlan.decode(data, restore.path)
            found |= {d.requested: d for d in plan.dropped if d.requested in suspects}
    return found
