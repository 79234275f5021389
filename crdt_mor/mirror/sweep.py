"""Delete files of mirrors that no kept version of any mirror names: of processes that died, and of expired versions.

A file younger than a day stays, since a refresh may be about to name it. A longer refresh looks for its files before it
commits (`refresh.py`). An erasure deletes the files of earlier versions whatever their age.
"""

from __future__ import annotations

import re
from typing import Final

from crdt_mor.log.steps import Delete, List, Steps, StoreNow, Walk
from crdt_mor.mirror import delta_upkeep, iceberg_read
from crdt_mor.mirror.files import FOLDER
from crdt_mor.mirror.iceberg_metadata import FOLDER as METADATA
from crdt_mor.store.protocol import Stat

KEPT_MS: Final = 24 * 3600 * 1000

_OURS: Final = re.compile(r"m-.+_([0-9]+)_n[0-9a-f]{32}(-del)?\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")
_MANIFEST: Final = re.compile(r"metadata/([0-9]+)-[0-9a-f]{32}-m[0-9]+\.avro")


def files_needed(root: str) -> Steps[frozenset[str]]:
    """Return the paths of all files that the kept versions of a table's mirrors name. root: the table's address."""
    of_delta = yield from delta_upkeep.files_needed()
    of_iceberg = yield from iceberg_read.files_needed(root)
    return of_delta | of_iceberg


def sweep(root: str) -> Steps[int]:
    """Delete old files of mirrors that no kept version names; return their number."""
    listed: list[Stat] = yield Walk(FOLDER)
    now_ms: int = yield StoreNow()
    old = [stat for stat in listed if stat.modified_ms < now_ms - KEPT_MS and _is_ours(stat.path)]
    if not old:
        return 0
    needed = yield from files_needed(root)
    gone = [stat.path for stat in old if stat.path not in needed]
    for path in gone:
        yield Delete(path)
    return len(gone)


def forget(root: str, version: int) -> Steps[None]:
    """Delete all unneeded files of earlier versions that contain values of rows, for an erasure."""
    listed: list[Stat] = yield Walk(FOLDER)
    rows = [stat.path for stat in listed if _is_before(_OURS.fullmatch(stat.path.rpartition("/")[2]), version)]
    stats: list[Stat] = yield List(METADATA)
    manifests = [stat.path for stat in stats if _is_before(_MANIFEST.fullmatch(stat.path), version)]
    needed = yield from files_needed(root)
    for path in [*rows, *manifests]:
        if path not in needed:
            yield Delete(path)


def _is_before(name: re.Match[str] | None, version: int) -> bool:
    return name is not None and name[1] is not None and int(name[1]) < version


def _is_ours(path: str) -> bool:
    return _OURS.fullmatch(path.rpartition("/")[2]) is not None
