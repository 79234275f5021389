"""What `maintain` does about processes that died: it tells Hudi of the newest version, and sweeps what they left.

The process that published the newest version may have died before it told Hudi. Until Hudi is told, its readers do not
show the newest commit, and a compaction of Hudi's would leave it out. Hudi's writers roll back each write that they
find begun, and fail at one below a later commit. Both are seen in one listing of Hudi's timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from crdt_mor.events import load, sweep
from crdt_mor.events.session import Session
from crdt_mor.hudi.projection import executed_twice
from crdt_mor.hudi.restore import restore_of_version
from crdt_mor.model.instant import EPOCH, to_ms
from crdt_mor.model.names import timeline_file_name
from crdt_mor.model.policies import plural, words_of_age
from crdt_mor.model.timeline import Timeline
from crdt_mor.services.maintain_report import Upkeep
from crdt_mor.services.rollback import claims
from crdt_mor.store.protocol import Stat


def tell_hudi(session: Session, value: Timeline, listed: Sequence[Stat], *, dry_run: bool) -> Iterator[Upkeep]:
    """Put the files by which Hudi is told of a value, the newest one, and remove others, where nobody has yet.

    listed: Hudi's timeline.
    """
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
    """Whether who tells Hudi of this very version also removes files: of a plan, of a restore, or of an archiving."""
    cancels = any(r.is_plan and r.version == value.version for r in value.rolled_back)
    return cancels or value.archive.version == value.version or restore_of_version(value) is not None


def sweep_dead(
    session: Session, before: Timeline, listed: Sequence[Stat], now_ms: int, *, dry_run: bool
) -> Iterator[Upkeep]:
    """Give up the writers that are silent, and remove what given-up writes have left, unless it was just done.

    Another service may have swept since `before`, as scheduling a plan sweeps when a sweep is due. listed: Hudi's
    timeline at that time.
    """
    since_ms, given_up = abs(now_ms - to_ms(before.swept)), len(before.rolled_back)
    dead = _dead_writers(session, before, listed, now_ms)
    if since_ms <= sweep.SWEEP_EVERY_MS and not given_up and not dead:
        return
    last = "there was none yet" if before.swept == EPOCH else f"the last one was {words_of_age(since_ms)} ago"
    why = f"{plural(given_up + dead, 'given-up write')} may have left files" if given_up or dead else last
    if dry_run:
        yield Upkeep("sweep", "due", why)
        return
    session.start()
    tail = session.remember(session.run(sweep.upkeep(session.publisher, session.known(), session.expiry_ms)))
    if (tail.rolled_back or dead) and tail.swept == before.swept:
        session.remember(session.run(sweep.sweep(session.publisher, tail)))
    if tail.table_id is not None:  # its first load may have died when all of it was in its place
        load.remove(session.store, tail.table_id, base_files=False)
    yield Upkeep("sweep", "done", why)


def _dead_writers(session: Session, value: Timeline, listed: Sequence[Stat], now_ms: int) -> int:
    """How many writers can commit nothing any more, or have been silent for the expiry, or were executed twice.

    listed: Hudi's timeline, in which some have claimed a time that the table's clock has passed.
    """
    claimed = [write for write in claims(session, value, listed) if write.requested < value.clock]
    silent = [p for p in value.pending if session.run(sweep.is_expired(p, now_ms, session.expiry_ms))]
    twice = executed_twice(value.completions, (timeline_file_name(stat.path) for stat in listed))
    return len(claimed) + len(silent) + len(twice)
