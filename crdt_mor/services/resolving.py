"""Hints of larger slices: store once which of their rows are visible.

Otherwise each process merges the logs at its first read. A hint is named by the files of its slice
(`read/resolved.py`), so no commit makes it wrong.
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
from crdt_mor.model.slices import FileSlice, Slices
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.maintain_report import Upkeep

QUIET_MS: Final = 10 * MINUTE
"""Milliseconds without writes before a slice gets a hint. A slice written every minute would be merged every minute."""

KEPT_MS: Final = 10 * MINUTE
"""Milliseconds by the store's clock before a superseded hint is deleted: open snapshots may read it."""

NOTHING: Final = b""
"""The hint of a slice if a bit per row cannot describe the visible rows. No process computes the hint again."""


def hints(session: Session, now_ms: int, *, dry_run: bool) -> Iterator[Upkeep]:
    """Put missing hints of the latest snapshot and delete superseded hints."""
    found = Hints(session, now_ms)
    missing, superseded = found.missing, found.superseded
    if not missing and not superseded:
        return
    many = f"the visible rows of {plural(len(missing), 'file group')} have no hint, so each process computes them"
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
    """The missing hints of the latest snapshot by path, and its superseded hints."""

    def __init__(self, session: Session, now_ms: int) -> None:
        self._store = session.store
        self._snapshot = Snapshot.seal(session, session.known_tail()).with_expired().collecting_resolutions()
        self._resolved = self._snapshot.resolved
        paths = ((self._resolved.hint_path(slice_), slice_) for slice_ in self._snapshot.slices)
        hinted = {path: slice_ for path, slice_ in paths if path is not None}
        existing = {stat.path: stat for stat in only_own(self._store.list(RESOLVED))} if hinted else {}
        lacking = ((path, slice_) for path, slice_ in hinted.items() if path not in existing)
        self.missing = {path: slice_ for path, slice_ in lacking if abs(now_ms - _written_ms(slice_)) > QUIET_MS}
        others = (stat for path, stat in existing.items() if path not in hinted)
        self.superseded = [stat for stat in others if abs(now_ms - stat.modified_ms) > KEPT_MS]

    def put(self, path: str, slice_: FileSlice) -> int:
        """Compute and put a hint. Not durable: a lost hint is computed again."""
        known = resolve_slice(self._snapshot, slice_)
        hint = NOTHING if known is None else to_bytes(known, self._resolved.name(slice_))
        self._store.put(path, hint, durable=False)
        return len(hint)


def _written_ms(slice_: FileSlice) -> int:
    return max(to_ms(log.name.instant) for log in slice_.logs)


def resolve_slice(snapshot: Snapshot, slice_: FileSlice) -> Resolution | None:
    """Merge the keys of a slice and return its visible rows; None if a bit per row is not enough."""
    alone = replace(snapshot, slices=Slices([slice_]))
    for _ in alone.frames([snapshot.resolved.merging.columns.merge_key], None):
        pass
    return snapshot.resolved.of(slice_)
