"""Notes about file groups with failed compactions, so that later `maintain` calls skip them.

A payload that raises on a key's values raises at every compaction until the next write to the file group. The failing
process puts an empty object, named by a digest of the group's files. `maintain` skips the group while these files are
the latest.

`compact` tries everything, and notes expire after a day. They contain nothing of the rows, so erasures ignore them.
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
    with suppress(StorageUnavailableError):
        for group in groups:
            session.store.touch(failure_path(_digest(session, group, logs_only=group.logs_only)))


def noted(session: Session, slices: Sequence[FileSlice], *, logs_only: bool) -> set[FileGroup]:
    """Return the file groups whose compaction failed with exactly the files of these slices."""
    notes = [stat for stat in session.store.list(PLANS) if stat.path.startswith(FAILURES)]
    if not notes:
        return set()
    now_ms = session.store.now_ms()
    known = {stat.path for stat in notes if counts(stat, now_ms)}
    return {s.group for s in slices if failure_path(_digest(session, s, logs_only=logs_only)) in known}


def is_same(group: GroupInput, slice_: FileSlice) -> bool:
    return _paths(group) == _paths(slice_)


def _digest(session: Session, group: GroupInput | FileSlice, *, logs_only: bool) -> str:
    said = [session.known_tail().table_id, logs_only, *_paths(group)]
    return sha256(json.dumps(said).encode()).hexdigest()[:32]


def _paths(group: GroupInput | FileSlice) -> list[str | None]:
    base = None if group.base is None else group.base.path
    return [group.partition, group.file_id, base, *(log.path for log in group.logs)]
