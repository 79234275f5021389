"""The proof of an erasure: what a listing shows that may still hold the rows, and what a power cut must not bring back.

    older       data files of the file groups that are no part of what views show from their marks on
    staged      files that tasks have staged for writes that are over
    unlinked    temporary files of puts that began before the erasure was settled

An erasure is finished when a listing shows none of them, and the deletes of their folders are durable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.events.session import Session
from crdt_mor.log.paths import STAGED, TICKET, only_own
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import data_file_name, join_path
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.store.local import TEMP_PREFIX
from crdt_mor.store.paths import TEMP_FOLDER
from crdt_mor.store.protocol import Stat

PUT_SILENT_MS: Final = 15_000
"""A temporary file that was not written to for so long is of a process that died."""

_NO_OBJECT: Final = ".erased"
"""A name that no object has. To make it durable is to make durable what was deleted in its folder."""


def left_over(session: Session, marks: Mapping[FileGroup, InstantTime], started_ms: int) -> list[str]:
    """The files of a listing that may hold the rows. marks: from when on the history of each file group is kept."""
    return [*_older_files(session, marks), *_staged_before(session, marks), *_unlinked(session, started_ms)]


def keep_away(session: Session, folders: Collection[str]) -> None:
    """Make sure that nothing which any process has deleted in these folders is back after a power cut."""
    for folder in sorted(folders):
        session.store.make_durable(join_path(folder, _NO_OBJECT))


def _older_files(session: Session, marks: Mapping[FileGroup, InstantTime]) -> list[str]:
    """The data files of these file groups that are no part of what views show from their marks on."""
    if not marks:
        return []
    there = files_of(session, marks)  # before the tail: what is put later belongs to what begins later
    value = session.tail()
    needed: set[str] = set()
    barriers: dict[FileGroup, InstantTime] = {}
    completions = session.views.completions(value)
    for c in completions:
        for file in c.files:
            if file.is_base and file.group in marks and c.completed <= marks[file.group]:
                barriers[file.group] = max(file.name.instant, barriers.get(file.group, EPOCH))
    for c in completions:
        for file in c.files:
            since = file.name.instant if file.is_base else c.completed
            if since >= barriers.get(file.group, EPOCH):
                needed.add(file.path)
    under_way = {p.requested for p in value.pending} | {p.barrier for p in value.plans}
    left = []
    for stat in there:
        name = data_file_name(stat.path)
        if name is None or stat.path in needed or name.instant in under_way or name.instant >= value.clock:
            continue
        if session.store.stat(stat.path) is not None:  # a sweep may have been at it meanwhile
            left.append(stat.path)
    return left


def _staged_before(session: Session, marks: Mapping[FileGroup, InstantTime]) -> list[str]:
    """What tasks have staged for writes that are over."""
    until = max(marks.values(), default=EPOCH)
    staged = (stat.path for stat in only_own(session.store.list(STAGED)))
    return [path for path in staged if not path.endswith(TICKET) and path.rpartition("/")[2].partition("-")[0] <= until]


def _unlinked(session: Session, started_ms: int) -> list[str]:
    """The temporary files of puts that began before the erasure was settled, without those that are dead: they go."""
    now_ms, left = session.store.now_ms(), []
    for stat in session.store.list(TEMP_FOLDER):
        if not stat.path.startswith(f"{TEMP_FOLDER}/{TEMP_PREFIX}") or stat.modified_ms > started_ms:
            continue
        try:
            if now_ms - stat.modified_ms < PUT_SILENT_MS:
                raise StorageUnavailableError(stat.path)
            session.store.delete(stat.path)
        except StorageUnavailableError:
            left.append(stat.path)
    return left


def files_of(session: Session, groups: Collection[FileGroup]) -> list[Stat]:
    """The data files that a listing finds of some file groups."""
    wanted = set(groups)
    partitions = sorted({partition for partition, _ in wanted})
    listed = (stat for partition in partitions for stat in session.store.list(partition))
    return [stat for stat in listed if group_of(stat.path) in wanted]


def group_of(path: str) -> FileGroup | None:
    """The file group of a data file; None: the path is no data file's."""
    name = data_file_name(path)
    return None if name is None else (join_path(path.rpartition("/")[0]), name.file_id)
