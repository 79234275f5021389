"""Delete unneeded segments, plans and notes in the timeline's folders. Stored parts are treated like segments.

    oldest existing version ──── versions in between ──── the tail

The name of a segment or plan tells the version from which it was made. Only consecutive versions after that name it. So
if an object was made before the oldest existing version, and neither that version nor the tail names it, no version in
between names it. Nor will any later version: its writer would have to put an existing version.

A process with an older value reads the newest value (`log.outcome.newer_value`).
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
"""How long a note of a failed compaction counts. The payload may have been repaired since."""


CLOCK_LEFT_MS: Final = 600_000
"""Age at which a process's clock object is deleted. A live process puts it again or does without."""


def sweep_leftovers(known_tail: Timeline) -> Steps[None]:
    """Delete segments and plans that no existing or future version names. `known_tail`: the tail."""
    segments = only_own((yield List(SEGMENTS)))
    plans = yield from _without_notes(only_own((yield List(PLANS))))
    named = {segment_path(name) for name in known_tail.objects}
    open_plans = {plan.path for plan in known_tail.plans} | {restore.path for restore in known_tail.restores}
    segments = [stat for stat in segments if stat.path not in named]
    plans = [stat for stat in plans if stat.path not in open_plans]
    if not segments and not plans:
        return
    oldest = yield from _oldest_version()
    yield from find_tail(known_tail)  # raises if another table was created here since
    if oldest is None or oldest.version >= known_tail.version:
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
    """Delete old objects by which processes read a bucket's clock."""
    for stat in only_own((yield List(TEMP_FOLDER))):
        if abs(now_ms - stat.modified_ms) > CLOCK_LEFT_MS:
            yield Delete(stat.path)


def _without_notes(stats: list[Stat]) -> Steps[list[Stat]]:
    """Return the plans of a listing, and delete old notes."""
    notes = [stat for stat in stats if stat.path.startswith(FAILURES)]
    if notes:
        now_ms: int = yield StoreNow()
        for note in notes:
            if not counts(note, now_ms):
                yield Delete(note.path)
    return [stat for stat in stats if not stat.path.startswith(FAILURES)]


def counts(note: Stat, now_ms: int) -> bool:
    """Return True if a note of a failed compaction is still recent."""
    return abs(now_ms - note.modified_ms) <= FAILURE_KEPT_MS


def _oldest_version() -> Steps[Timeline | None]:
    names = yield from listed_versions()
    data = (yield Read(names[0].path)) if names else None
    return Timeline.decode(data, names[0].path) if data else None


def _made_from(path: str) -> int:
    return int(path.rpartition("/")[2].partition("-")[0])


def _barrier(path: str) -> InstantTime:
    return InstantTime(path.rpartition("/")[2].partition("-")[0])
