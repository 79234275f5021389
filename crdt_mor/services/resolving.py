"""Hints of larger slices: which of their rows a reader sees, found out once and put beside the table.

Each process that reads such a slice for the first time would else find it out by itself: it decodes all keys, and
merges the logs. A hint is named by the files that it is made of (`read/resolved.py`), so that no commit makes it wrong.
A slice to which somebody writes every minute gets none, as its keys would be read every minute as well: a hint is for
those to which nobody has written for a while. A process that dies here leaves whole hints alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from crdt_mor.events.session import Session
from crdt_mor.log.paths import RESOLVED, only_own
from crdt_mor.merge.resolution import Resolution
from crdt_mor.merge.resolution_hint import to_bytes
from crdt_mor.model.instant import to_ms
from crdt_mor.model.policies import MINUTE, plural
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.maintain_report import Upkeep

QUIET_MS: Final = 10 * MINUTE
"""For how long nobody has written to a slice that gets a hint."""

KEPT_MS: Final = 10 * MINUTE
"""How old a hint of other slices is before it goes, by the store's clock: open snapshots may still ask for it."""

NOTHING: Final = b""
"""The hint of a slice of which no bit a row says what is shown. It says nothing, and that nobody need look again."""


def hints(session: Session, now_ms: int, *, dry_run: bool) -> Iterator[Upkeep]:
    """Put the hints that the latest snapshot lacks, and delete those that it needs no more; nothing where none are.

    now_ms: the time by the store's clock.
    """
    found = Hints(session, now_ms)
    missing, superseded = found.missing, found.superseded
    if not missing and not superseded:
        return
    many = f"which rows are shown of {plural(len(missing), 'file group')} is to be found out by each process"
    due = Upkeep("hints", "due", many if missing else f"{plural(len(superseded), 'hint')} are of older files")
    if dry_run:
        yield due
        return
    sizes = [found.put(path, slice_) for path, slice_ in missing.items()]
    for stat in superseded:
        session.store.delete(stat.path)
    yield replace(
        due, state="done", files_written=len(sizes), bytes_written=sum(sizes),
        files_removed=len(superseded), bytes_removed=sum(stat.size for stat in superseded),
    )  # fmt: skip


class Hints:
    """The hints that the latest snapshot lacks, and those that it needs no more.

    missing: the slices, by the paths of their hints. superseded: the hints; where none are wanted, none are listed.
    """

    def __init__(self, session: Session, now_ms: int) -> None:
        self._store = session.store
        self._snapshot = Snapshot.seal(session, session.known()).finding_out()
        self._resolved = self._snapshot.resolved
        paths = ((self._resolved.hint_path(slice_), slice_) for slice_ in self._snapshot.slices)
        wanted = {path: slice_ for path, slice_ in paths if path is not None}
        there = {stat.path: stat for stat in only_own(self._store.list(RESOLVED))} if wanted else {}
        lacking = ((path, slice_) for path, slice_ in wanted.items() if path not in there)
        self.missing = {path: slice_ for path, slice_ in lacking if abs(now_ms - _written_ms(slice_)) > QUIET_MS}
        others = (stat for path, stat in there.items() if path not in wanted)
        self.superseded = [stat for stat in others if abs(now_ms - stat.modified_ms) > KEPT_MS]

    def put(self, path: str, slice_: FileSlice) -> int:
        """Find out what a hint says, and put it: its bytes. Not durably, as what is lost is found out again."""
        known = found_out(self._snapshot, slice_)
        hint = NOTHING if known is None else to_bytes(known, self._resolved.name(slice_))
        self._store.put(path, hint, durable=False)
        return len(hint)


def _written_ms(slice_: FileSlice) -> int:
    """When the last write to a slice was requested."""
    return max(to_ms(log.name.instant) for log in slice_.logs)


def found_out(snapshot: Snapshot, slice_: FileSlice) -> Resolution | None:
    """Which rows of a slice are shown, by a merge of its keys; None where no bit a row says it."""
    alone = replace(snapshot, slices=(slice_,))
    for _ in alone.frames([snapshot.resolved.merging.columns.merge_key], None):
        pass
    return snapshot.resolved.of(slice_)
