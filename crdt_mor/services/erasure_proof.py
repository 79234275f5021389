"""Prove an erasure: no listed file may hold the rows, and no power cut may restore a file.

older       data files of the file groups outside every view from their marks on
staged      files staged by tasks of finished writes
unlinked    temporary files of puts that began before the erasure was settled
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
"""Milliseconds after which a silent temporary file belongs to a dead process."""

_NO_OBJECT: Final = ".erased"
"""A name of no object. `make_durable` on it makes the deletes in its folder durable."""


def left_over(session: Session, marks: Mapping[FileGroup, InstantTime], started_ms: int) -> list[str]:
    return [*_older_files(session, marks), *_staged_before(session, marks), *_unlinked(session, started_ms)]


def keep_away(session: Session, folders: Collection[str]) -> None:
    for folder in sorted(folders):
        session.store.make_durable(join_path(folder, _NO_OBJECT))


def _older_files(session: Session, marks: Mapping[FileGroup, InstantTime]) -> list[str]:
    """List data files of these file groups outside every view from their marks on."""
    if not marks:
        return []
    there = files_of(session, marks)  # before the tail: files put later belong to later writes
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
        if session.store.stat(stat.path) is not None:  # else deleted by a sweep meanwhile
            left.append(stat.path)
    return left


def _staged_before(session: Session, marks: Mapping[FileGroup, InstantTime]) -> list[str]:
    until = max(marks.values(), default=EPOCH)
    staged = (stat.path for stat in only_own(session.store.list(STAGED)))
    return [path for path in staged if not path.endswith(TICKET) and path.rpartition("/")[2].partition("-")[0] <= until]


def _unlinked(session: Session, started_ms: int) -> list[str]:
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
    wanted = set(groups)
    partitions = sorted({partition for partition, _ in wanted})
    listed = (stat for partition in partitions for stat in session.store.list(partition))
    return [stat for stat in listed if group_of(stat.path) in wanted]


def group_of(path: str) -> FileGroup | None:
    name = data_file_name(path)
    return None if name is None else (join_path(path.rpartition("/")[0]), name.file_id)
