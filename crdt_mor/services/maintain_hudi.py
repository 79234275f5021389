"""Keep Hudi's files in step: repair the effects of dead processes, and remove its metadata table.

A publisher may die before it tells Hudi. Until then Hudi's readers and compactions miss the newest commit. Hudi's
writers fail at a begun write below a later commit. Without the metadata table, its readers list the folders and find
our files. The properties change first (`hudi.handover`), so no reader looks for a missing metadata file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from crdt_mor.events import load, sweep
from crdt_mor.events.session import Session
from crdt_mor.hudi.handover import change_properties
from crdt_mor.hudi.projection import executed_twice
from crdt_mor.hudi.restore import restore_of_version
from crdt_mor.log.paths import METADATA_TABLE
from crdt_mor.model.config_properties import METADATA_INFLIGHT, METADATA_PARTITIONS
from crdt_mor.model.instant import EPOCH, to_ms
from crdt_mor.model.names import timeline_file_name
from crdt_mor.model.policies import plural, words_of_age
from crdt_mor.model.timeline import Timeline
from crdt_mor.services.maintain_report import Upkeep
from crdt_mor.services.rollback import claims
from crdt_mor.store.protocol import Stat

IDLE_SWEEP_EVERY_MS: Final = 3_600_000
"""Time between two sweeps of a table without new commits: each lists the whole table and publishes a version."""


def tell_hudi(session: Session, value: Timeline, listed: Sequence[Stat], *, dry_run: bool) -> Iterator[Upkeep]:
    """Put and remove files in Hudi's timeline as the newest value requires. listed: Hudi's timeline."""
    there = {stat.path for stat in listed}
    missing = [file for file in session.run(session.publisher.projector.files(value)) if file.path not in there]
    due = Upkeep("hudi", "due" if dry_run else "done", f"Hudi was not told of version {value.version}")
    if dry_run:
        yield from [due] if missing else []
        return
    if missing or _removes_files(value):
        session.run(session.publisher.help_project(value))
    if missing:
        yield replace(due, files_written=len(missing))


def _removes_files(value: Timeline) -> bool:
    cancels = any(r.is_plan and r.version == value.version for r in value.rolled_back)
    return cancels or value.archive.version == value.version or restore_of_version(value) is not None


def sweep_dead(
    session: Session, before: Timeline, listed: Sequence[Stat], now_ms: int, *, dry_run: bool
) -> Iterator[Upkeep]:
    """Roll back silent writers and remove their files, unless a sweep since `before` did so."""
    since_ms, given_up = abs(now_ms - to_ms(before.swept)), len(before.rolled_back)
    dead = _dead_writers(session, before, listed, now_ms)
    every_ms = IDLE_SWEEP_EVERY_MS if _is_idle(before, listed) else sweep.SWEEP_EVERY_MS
    if since_ms <= every_ms and not given_up and not dead:
        return
    last = "there was none yet" if before.swept == EPOCH else f"the last one was {words_of_age(since_ms)} ago"
    why = f"{plural(given_up + dead, 'given-up write')} may have left files" if given_up or dead else last
    if dry_run:
        yield Upkeep("sweep", "due", why)
        return
    session.start()
    tail = session.remember(session.run(sweep.upkeep(session.publisher, session.known_tail(), session.expiry_ms)))
    if (tail.rolled_back or dead) and tail.swept == before.swept:
        session.remember(session.run(sweep.sweep(session.publisher, tail)))
    if tail.table_id is not None:  # the first load may have died after placing all files
        load.remove(session.store, tail.table_id, base_files=False)
    yield Upkeep("sweep", "done", why)


def _is_idle(value: Timeline, listed: Sequence[Stat]) -> bool:
    """Return True if nothing is open, and no instant ended since the last sweep. Hudi's new instants count."""
    ends = [*(c.completed for c in value.completions), *(segment.last for segment in value.segments)]
    ended = max(ends, default=EPOCH)
    names = [name for stat in listed if (name := timeline_file_name(stat.path)) is not None]
    known = all(name.requested <= ended and (name.completed or EPOCH) <= ended for name in names)
    return ended <= value.swept and known and not value.pending and not value.plans


def _dead_writers(session: Session, value: Timeline, listed: Sequence[Stat], now_ms: int) -> int:
    """Count writers that can no longer commit, were silent for the expiry, or executed a plan twice.

    listed: Hudi's timeline, with claimed times that the table's clock has passed.
    """
    claimed = [write for write in claims(session, value, listed) if write.requested < value.clock]
    silent = [p for p in value.pending if session.run(sweep.is_expired(p, now_ms, session.expiry_ms))]
    twice = executed_twice(value.completions, (timeline_file_name(stat.path) for stat in listed))
    return len(claimed) + len(silent) + len(twice)


def drop_metadata_table(session: Session) -> int:
    session.run(change_properties({METADATA_PARTITIONS: None, METADATA_INFLIGHT: None}))
    files = session.store.walk(METADATA_TABLE)
    for file in files:
        session.store.delete(file.path)
    return len(files)
