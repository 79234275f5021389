"""File groups that could not be compacted: the notes by which a later `maintain` leaves them out.

A payload that raises on what a key holds raises whenever the file group is compacted, until somebody writes to it. So
the process that met it leaves an empty object whose name is a digest of the file group's files. As long as they are the
latest ones, `maintain` says that the file group waits, and does not try it.

It is a hint. No rule of the protocol rests on it: without the note the file group is tried once more, and with a wrong
one it waits for its next commit, for `compact`, which tries everything, or for the note to be a day old. Nothing of the
rows is in a note, so that an erasure need not look for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.events.leftovers import counts
from crdt_mor.events.session import Session
from crdt_mor.log.paths import FAILURES, PLANS, failure_path
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.planners.compaction import GroupInput


def note(session: Session, groups: Iterable[GroupInput]) -> None:
    """Note that these file groups cannot be compacted as they are, unless the store refuses."""
    with suppress(StorageUnavailableError):
        for group in groups:
            session.store.touch(failure_path(_digest(session, group, logs_only=group.logs_only)))


def noted(session: Session, slices: Sequence[FileSlice], *, logs_only: bool) -> set[FileGroup]:
    """The file groups that could not be compacted when they had the files of these slices."""
    notes = [stat for stat in session.store.list(PLANS) if stat.path.startswith(FAILURES)]
    if not notes:
        return set()
    now_ms = session.store.now_ms()
    known = {stat.path for stat in notes if counts(stat, now_ms)}
    return {s.group for s in slices if failure_path(_digest(session, s, logs_only=logs_only)) in known}


def is_same(group: GroupInput, slice_: FileSlice) -> bool:
    """Whether a slice has the very files that a plan consumes of its file group."""
    return _paths(group) == _paths(slice_)


def _digest(session: Session, group: GroupInput | FileSlice, *, logs_only: bool) -> str:
    """A digest of a file group and its files; `logs_only`: of its log compaction."""
    said = [session.known().table_id, logs_only, *_paths(group)]
    return sha256(json.dumps(said).encode()).hexdigest()[:32]


def _paths(group: GroupInput | FileSlice) -> list[str | None]:
    base = None if group.base is None else group.base.path
    return [group.partition, group.file_id, base, *(log.path for log in group.logs)]
