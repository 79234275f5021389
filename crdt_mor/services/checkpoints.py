"""Record, find and forget checkpoints of named readers: see docs/design/named-readers.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from crdt_mor.errors import (
    CheckpointExpiredError,
    CommitUnknownError,
    InvalidInputError,
    StorageUnavailableError,
    TableReplacedError,
)
from crdt_mor.events.session import Session
from crdt_mor.log.paths import READERS, only_own, reader_path
from crdt_mor.model.checkpoints import Checkpoint, checked_reader, newest
from crdt_mor.model.cut import By, Cut
from crdt_mor.model.instant import to_ms
from crdt_mor.model.policies import MINUTE
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Segment
from crdt_mor.planners.checkpoints import unread
from crdt_mor.read.cut import window_end
from crdt_mor.store.protocol import Stat, Store

TIDIED_MS: Final = MINUTE
"""How long a checkpoint stands before earlier ones go: a listing beside a put and a delete may show neither."""


class _Noted(dict[str, Checkpoint]):
    """By reader: recorded by this session."""


def listed(store: Store) -> list[Stat]:
    return only_own(store.list(READERS))


def checkpoint_of(stat: Stat) -> Checkpoint:
    found = Checkpoint.parse(stat.path.rpartition("/")[2])
    assert found is not None, "only names of checkpoints are ours"
    return found


def recorded(store: Store) -> tuple[Checkpoint, ...]:
    return tuple(map(checkpoint_of, listed(store)))


class NamedReader:
    """A reader's place, as a call of `changes` found it."""

    def __init__(self, session: Session, name: str, by: By, *, is_told: bool) -> None:
        """is_told: the caller knows the place."""
        self._session = session
        self._name = checked_reader(name)
        noted = session.views.kept(_Noted).get(name) if is_told else None
        self._found = noted or self._placed()
        if self._found is not None:
            _require_same(self._found, by)

    @property
    def since(self) -> str | None:
        return None if self._found is None else self._found.since

    def begins(self, value: Timeline, finished: Cut | None, end: Cut) -> bool:
        """Record the place. Return True at the first read: its window must be taken again.

        finished: by the caller. end: of the window.
        """
        if finished is not None:
            record(self._session, Checkpoint(self._name, finished, value.table_id))
        elif self._found is None or (self._found.is_begun and _is_gone(self._session, value, self._found)):
            record(self._session, Checkpoint(self._name, end, value.table_id, is_begun=True))
        return self._found is None

    def has_moved(self) -> bool:
        """Return True if another process of this name finished changes."""
        return self._placed() != self._found

    def lost(self, error: CheckpointExpiredError) -> CheckpointExpiredError:
        return CheckpointExpiredError(f"the reader {self._name!r} lost changes that it had not read: {error}")

    def _placed(self) -> Checkpoint | None:
        own = [one for one in map(checkpoint_of, listed(self._session.store)) if one.reader == self._name]
        table_id = self._session.config.table_id
        found = newest(own, table_id).get(self._name)
        if found is None and own:
            raise TableReplacedError(
                "this reader belongs to an earlier table at this address: forget the reader, then it begins anew. "
                f"reader={self._name!r} found={table_id}"
            )
        return found


def record(session: Session, checkpoint: Checkpoint) -> None:
    """Record a checkpoint, unless the reader is further."""
    noted = session.views.kept(_Noted)
    if checkpoint.reader in noted and noted[checkpoint.reader].order >= checkpoint.order:
        return
    stats = [stat for stat in listed(session.store) if checkpoint_of(stat).reader == checkpoint.reader]
    own = [stat for stat in stats if checkpoint_of(stat).table_id == checkpoint.table_id]
    for stat in own:
        _require_same(checkpoint_of(stat), checkpoint.cut.by)
    if all(checkpoint_of(stat).order < checkpoint.order for stat in own):
        _put(session.store, reader_path(checkpoint))
    noted[checkpoint.reader] = checkpoint
    for stat in superseded(own):
        with suppress(StorageUnavailableError):
            session.store.delete(stat.path)


def _put(store: Store, path: str) -> None:
    try:
        store.put(path, b"")
    except CommitUnknownError:  # any process may put this name: the object is empty
        store.put(path, b"")


def superseded(own: Sequence[Stat]) -> list[Stat]:
    """Return a reader's checkpoints before another checkpoint of at least a minute's age."""
    last_ms = max((stat.modified_ms for stat in own), default=0)
    standing = [checkpoint_of(stat).order for stat in own if stat.modified_ms <= last_ms - TIDIED_MS]
    return [stat for stat in own if standing and checkpoint_of(stat).order < max(standing)]


def forget(session: Session, reader: str) -> None:
    own = [stat for stat in listed(session.store) if checkpoint_of(stat).reader == reader]
    if not own:
        raise InvalidInputError(
            "the table has no reader of this name: table.inspect.readers() lists all readers. "
            f"reader={reader!r} readers={sorted({checkpoint_of(stat).reader for stat in listed(session.store)})}"
        )
    for stat in own:
        session.store.delete(stat.path)
    session.views.kept(_Noted).pop(reader, None)


def _require_same(checkpoint: Checkpoint, by: By) -> None:
    if checkpoint.cut.by != by:
        raise InvalidInputError(
            "this reader reads with another `consistency`: pass the same value, or forget the reader first. "
            f"reader={checkpoint.reader!r}"
        )


# --- how far behind ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lag:
    """commits: unread ones. ms: age of the oldest."""

    checkpoint: Checkpoint
    commits: int
    ms: int
    is_lost: bool


def lags(session: Session, value: Timeline, now_ms: int, found: Iterable[Checkpoint]) -> Iterator[Lag]:
    for _, checkpoint in sorted(newest(found, value.table_id).items()):
        cut = checkpoint.start
        behind = unread(session.views.completions(value, partial(_may_be_unread, cut)), cut)
        oldest_ms = min((to_ms(c.completed) for c in behind), default=now_ms)
        is_lost = not checkpoint.is_begun and _is_gone(session, value, checkpoint)
        yield Lag(checkpoint, len(behind), max(0, now_ms - oldest_ms), is_lost)


def _may_be_unread(cut: Cut, segment: Segment) -> bool:
    return cut.by == "requested" or segment.last > cut.time


def _is_gone(session: Session, value: Timeline, checkpoint: Checkpoint) -> bool:
    """Return True if no window can begin there. The place may be ahead of a value that was read before."""
    cut = checkpoint.cut
    if cut.time > Cut.latest(value, cut.by).time:
        return False
    try:
        window_end(session, value, cut.checkpoint(value.table_id), cut.by, "since")
    except CheckpointExpiredError:
        return True
    return False
