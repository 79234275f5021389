"""Checkpoints of a Delta mirror, old versions of its log, and the files that its kept versions need.

    kept   the newest 10 versions, and more of the last 24 hours, up to 100; from a checkpoint on

Versions below the oldest kept checkpoint are deleted, oldest first. Each step may be repeated or left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.log.steps import Delete, List, Put, Steps, StoreNow
from crdt_mor.mirror.delta_log import (
    LAST_CHECKPOINT,
    LOG,
    LogState,
    checkpoint,
    checkpoint_path,
    checkpoints,
    commit_path,
    numbers,
    read_versions,
)
from crdt_mor.mirror.delta_vectors import path_of
from crdt_mor.mirror.files import Sizes
from crdt_mor.mirror.refresh import Objects
from crdt_mor.store.protocol import Stat

CHECKPOINT_EVERY: Final = 10
KEPT_COUNT: Final = 10
KEPT_MAX: Final = 100
KEPT_MS: Final = 24 * 3600 * 1000


def checkpointed(state: LogState) -> Steps[Objects]:
    """Put a checkpoint if one is due, and delete old versions. The commit stands, so failures are ignored."""
    if state.number - max(state.checkpoint, 0) < CHECKPOINT_EVERY:
        return ()
    try:
        puts = yield from _put_checkpoint(state)
        if puts:
            listed: list[Stat] = yield List(LOG)
            now_ms: int = yield StoreNow()
            yield from _expire(listed, _first_kept(listed, state.number, now_ms))
    except (StorageUnavailableError, CommitUnknownError):
        return ()
    return puts


def forgotten(state: LogState) -> Steps[Objects]:
    """Put a checkpoint and delete all earlier versions, whose statistics may contain erased values."""
    puts = yield from _put_checkpoint(state)
    yield from _expire((yield List(LOG)), state.number)
    return puts


def _put_checkpoint(state: LogState) -> Steps[Objects]:
    """Put a checkpoint and the hint that names it; () if the checkpoint was there."""
    data, actions = checkpoint(state)
    path, hint = checkpoint_path(state.number), json.dumps({"version": state.number, "size": actions}).encode()
    if (yield Put(path, data)) is None:
        return ()
    yield Delete(LAST_CHECKPOINT)
    yield Put(LAST_CHECKPOINT, hint, durable=False)
    return (path, len(data)), (LAST_CHECKPOINT, len(hint))


def _expire(listed: Sequence[Stat], first: int) -> Steps[None]:
    commits = [number for number in numbers(listed) if number < first]
    old = [checkpoint_path(number) for number in checkpoints(listed) if number < first]
    for path in [*map(commit_path, commits), *old]:
        yield Delete(path)


def _first_kept(listed: Iterable[Stat], newest: int, now_ms: int) -> int:
    """Return the oldest checkpoint to keep, or 0."""
    by_path = {stat.path: stat for stat in listed}

    def is_old(number: int) -> bool:
        stat = by_path[checkpoint_path(number)]
        return number <= newest - KEPT_MAX or stat.modified_ms < now_ms - KEPT_MS

    return max((n for n in checkpoints(by_path.values()) if n <= newest - KEPT_COUNT and is_old(n)), default=0)


def files_needed() -> Steps[Sizes]:
    """Return all files that kept versions of a Delta mirror name, base files of the table too."""
    versions = yield from read_versions()
    return {path: size for file in versions for path, size in _sizes(file)}


def _sizes(file: Mapping[str, Any]) -> Iterable[tuple[str, int | None]]:
    yield unquote(file["path"]), file["size"]
    vector = file.get("deletionVector")
    if vector and vector.get("storageType") == "u":
        yield path_of(vector), None
