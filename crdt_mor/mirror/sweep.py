"""Delete files of mirrors that no kept version names.

A file younger than a day stays, since a refresh may be about to name it. A longer refresh looks for its files before it
commits (`refresh.py`). Delta's checkpoints delete old versions of its log (`delta_upkeep.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from crdt_mor.log.steps import Delete, List, Steps, StoreNow, Walk
from crdt_mor.mirror import delta_upkeep, iceberg_read
from crdt_mor.mirror.delta_vectors import FOLDER as VECTORS
from crdt_mor.mirror.files import FOLDER, Sizes
from crdt_mor.mirror.iceberg_metadata import FOLDER as METADATA
from crdt_mor.mirror.iceberg_metadata import number_of
from crdt_mor.store.protocol import Stat

KEPT_MS: Final = 24 * 3600 * 1000

_OURS: Final = re.compile(
    r"\.mirror/(?:.+/)?m-[^/]+_([0-9]+)_n[0-9a-f]{32}(?:(?:-del)?\.parquet|\.puffin)"
    r"|crdtmor/deletion_vector_[0-9a-f-]{36}\.bin"
    r"|metadata/(?:([0-9]+)-[0-9a-f]{32}-m[0-9]+|snap-[0-9]+-[0-9a-f]{32})\.avro"
)
"""Some names have the table's version. Other files are a catalog's."""


def files_needed(root: str) -> Steps[Sizes]:
    """Return all files that the kept versions of a table's mirrors name. root: the table's address."""
    of_delta = yield from delta_upkeep.files_needed()
    of_iceberg = yield from iceberg_read.files_needed(root)
    return {**of_delta, **of_iceberg}


def sweep(root: str) -> Steps[int]:
    """Delete old files of mirrors that no kept version names; return their number."""
    listed = yield from _listed()
    now_ms: int = yield StoreNow()
    newest = max((number_of(stat.path) or 0 for stat in listed), default=0)
    old = [stat.path for stat in listed if stat.modified_ms < now_ms - KEPT_MS]
    return (yield from _delete_unneeded(root, [path for path in old if _may_go(path, newest)]))


def forget(root: str, version: int) -> Steps[None]:
    """Delete all unneeded files of earlier versions that contain values of rows, for an erasure."""
    listed = yield from _listed()
    yield from _delete_unneeded(root, [stat.path for stat in listed if _is_before(stat.path, version)])


def _listed() -> Steps[list[Stat]]:
    rows: list[Stat] = yield Walk(FOLDER)
    vectors: list[Stat] = yield List(VECTORS)
    metadata: list[Stat] = yield List(METADATA)
    return [*rows, *vectors, *metadata]


def _delete_unneeded(root: str, paths: Iterable[str]) -> Steps[int]:
    asked = [*paths]
    needed = (yield from files_needed(root)) if asked else {}
    gone = [path for path in asked if path not in needed]
    for path in gone:
        yield Delete(path)
    return len(gone)


def _may_go(path: str, newest: int) -> bool:
    number = number_of(path)
    return _OURS.fullmatch(path) is not None if number is None else number < newest


def _is_before(path: str, version: int) -> bool:
    found = _OURS.fullmatch(path)
    made = None if found is None else found[1] or found[2]
    return made is not None and int(made) < version
