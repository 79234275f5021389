"""Archive a table: run upkeep, then publish archiving events until nothing more can be archived."""

from __future__ import annotations

from dataclasses import dataclass

from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.events import sweep
from crdt_mor.events.archive import archive_once, prefix_of
from crdt_mor.events.session import Session
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.hudi.restore import hudi_files_in
from crdt_mor.log.outcome import newer_value
from crdt_mor.log.segments import SegmentGoneError
from crdt_mor.log.steps import Steps
from crdt_mor.log.tail import KEPT_VERSIONS
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import completed_name
from crdt_mor.planners.archive import archivable


@dataclass(frozen=True, slots=True)
class ArchivedSoFar:
    """The result of an archiving. left: archived instants' files still in Hudi's active timeline."""

    instants: int
    held_by: str
    value: Timeline
    left: int


def archive(session: Session, keep: int) -> ArchivedSoFar:
    session.start()
    done = session.run(_archive(session, keep))
    session.remember(done.value)
    return done


def archivable_now(session: Session, keep: int, least: int) -> int:
    """Count the archivable instants. Return 0 if Hudi's own writers archive, or, without listing a folder, if there are
    fewer than `least`.
    """
    value = session.known_tail()
    try:
        return session.run(_ready(session.publisher, value, keep)) if _at_most(session, value, keep) >= least else 0
    except UnsupportedFeatureError:
        return 0


def _at_most(session: Session, value: Timeline, keep: int) -> int:
    """Return the greatest possible number of archivable instants, without listing a folder. The newest versions stay,
    unless a restore deleted the versions before it.
    """
    completions = session.views.completions(value, lambda segment: segment.last > value.archive.watermark)
    oldest = value.version + 1 if value.restores else value.version - KEPT_VERSIONS
    return len(archivable(value, completions, map(completed_name, completions), oldest, keep).completions)


def _archive(session: Session, keep: int) -> Steps[ArchivedSoFar]:
    """Sweep, then archive.

    Without the sweep, Hudi's readers would show files of dead writers as committed. A rolled-back write blocks later
    instants until its sweep.
    """
    publisher = session.publisher
    tail = yield from sweep.upkeep_and_adoption(publisher, session.known_tail(), session.expiry_ms)
    if tail.rolled_back or (yield from _ready(publisher, tail, keep)):
        tail = yield from sweep.sweep(publisher, tail)
    instants = 0
    while True:
        done = yield from archive_once(publisher, tail, keep)
        tail = done.value
        if not done.prefix.completions:
            left = yield from _count_left(publisher, tail)
            return ArchivedSoFar(instants, done.prefix.held_by, tail, left)
        instants += len(done.prefix.completions)


def _count_left(publisher: TablePublisher, tail: Timeline) -> Steps[int]:
    hudi_files = yield from hudi_files_in(publisher.projector.folder)
    return sum(len(names) for requested, names in hudi_files.items() if requested <= tail.archive.watermark)


def _ready(publisher: TablePublisher, tail: Timeline, keep: int) -> Steps[int]:
    """Count the instants for the next event. Uses a newer value if segments of `tail` were swept."""
    while True:
        try:
            return len((yield from prefix_of(publisher.projector, tail, keep)).completions)
        except SegmentGoneError:
            tail = yield from newer_value(tail)
