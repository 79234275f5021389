"""Objects of the timeline's own folders that are needed no more: segments and plans that no version names, old notes.

What holds the file ids of buckets lies beside the segments, is named as they are, and goes as they do.

    oldest version that stands ──── versions in between ──── the tail

A segment's name and a plan's barrier say from which version they were made. If a version names such an object at all,
then the one that follows that version is the first to name it, and all up to a last one do: what was rolled up, dropped
or ended never comes back. So an object that was made from a version before the oldest one that stands, and that neither
the oldest nor the tail names, is named by no version in between, and by none that is still to come: a process that was
asleep since then would have to put a version that stands already.

A process that holds a value which is older than all versions that stand finds its segments gone, and reads the newest
value (`log.outcome.newer_value`). The plan of a completion is read to project it, which is done before the next
version.

A note that a file group could not be compacted is a hint, and goes when it is a day old, by the store's clock.
"""

from __future__ import annotations

from typing import Final

from crdt_mor.log.paths import FAILURES, PLANS, SEGMENTS, only_own, segment_path
from crdt_mor.log.steps import Delete, List, Read, Steps, StoreNow
from crdt_mor.log.tail import find_tail, listed_versions
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.paths import TEMP_FOLDER
from crdt_mor.store.protocol import Stat

FAILURE_KEPT_MS: Final = 24 * 3600 * 1000
"""How long a note counts that a file group could not be compacted. Its payload may have been mended since then."""


CLOCK_LEFT_MS: Final = 600_000
"""The age from which the object of a process's clock goes: one that is alive puts it again, or does without."""


def sweep_leftovers(known: Timeline) -> Steps[None]:
    """Delete the segments and the plans that no version names that stands, nor any later one. `known`: the tail."""
    segments = only_own((yield List(SEGMENTS)))
    plans = yield from _without_notes(only_own((yield List(PLANS))))
    named = {segment_path(name) for name in known.objects}
    open_plans = {plan.path for plan in known.plans} | {restore.path for restore in known.restores}
    segments = [stat for stat in segments if stat.path not in named]
    plans = [stat for stat in plans if stat.path not in open_plans]
    if not segments and not plans:
        return
    oldest = yield from _oldest_version()
    yield from find_tail(known)  # raises where the listings are of another table, which was made here since
    if oldest is None or oldest.version >= known.version:
        return
    named = {segment_path(name) for name in oldest.objects}
    open_plans = {plan.path for plan in oldest.plans}
    for stat in segments:
        if stat.path not in named and _made_from(stat.path) < oldest.version:
            yield Delete(stat.path)
    for stat in plans:
        if stat.path not in open_plans and _barrier(stat.path) <= oldest.clock:
            yield Delete(stat.path)


def sweep_clocks(now_ms: int) -> Steps[None]:
    """Delete the objects by which processes of a bucket told its clock that have not done so for long."""
    for stat in only_own((yield List(TEMP_FOLDER))):
        if abs(now_ms - stat.modified_ms) > CLOCK_LEFT_MS:
            yield Delete(stat.path)


def _without_notes(stats: list[Stat]) -> Steps[list[Stat]]:
    """The plans in a listing of their folder. Of the notes that lie there, those that are old are deleted."""
    notes = [stat for stat in stats if stat.path.startswith(FAILURES)]
    if notes:
        now_ms: int = yield StoreNow()
        for note in notes:
            if not counts(note, now_ms):
                yield Delete(note.path)
    return [stat for stat in stats if not stat.path.startswith(FAILURES)]


def counts(note: Stat, now_ms: int) -> bool:
    """Whether a note that a file group could not be compacted still says anything at a time of the store's clock."""
    return abs(now_ms - note.modified_ms) <= FAILURE_KEPT_MS


def _oldest_version() -> Steps[Timeline | None]:
    """The oldest version that stands; None if it is deleted while it is read."""
    names = yield from listed_versions()
    data = (yield Read(names[0].path)) if names else None
    return Timeline.decode(data, names[0].path) if data else None


def _made_from(path: str) -> int:
    """The version that a segment was made from, as its name says."""
    return int(path.rpartition("/")[2].partition("-")[0])


def _barrier(path: str) -> InstantTime:
    """The barrier of a plan, as its name says."""
    return InstantTime(path.rpartition("/")[2].partition("-")[0])
