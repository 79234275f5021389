"""Delete metadata files, manifests and manifest lists that no kept snapshot of an Iceberg mirror names.

They are of expired snapshots, and of processes that died. A file younger than a day stays, since a refresh may be about
to name it. Files with other names are a catalog's and stay.
"""

from __future__ import annotations

import re
from typing import Final

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.log.steps import Delete, List, Steps, StoreNow
from crdt_mor.mirror.iceberg_metadata import FOLDER, KEPT_MS, number_of
from crdt_mor.mirror.iceberg_read import files_needed
from crdt_mor.store.protocol import Stat

SWEPT_EVERY: Final = 10
"""Refreshes between two sweeps."""

_AVRO: Final = re.compile(r"metadata/(\d+-[0-9a-f]{32}-m\d+|snap-\d+-[0-9a-f]{32})\.avro")


def swept(root: str, number: int) -> Steps[None]:
    """Sweep after every tenth refresh. The refresh stands, so failures are ignored."""
    if number % SWEPT_EVERY == 0:
        try:
            yield from sweep_metadata(root)
        except (StorageUnavailableError, CommitUnknownError):
            return


def sweep_metadata(root: str) -> Steps[int]:
    """Delete old unneeded files of mirrors in `metadata/`; return their number."""
    listed: list[Stat] = yield List(FOLDER)
    now_ms: int = yield StoreNow()
    newest = max((number_of(stat.path) or 0 for stat in listed), default=0)
    old = [stat.path for stat in listed if stat.modified_ms < now_ms - KEPT_MS and _may_go(stat.path, newest)]
    needed = (yield from files_needed(root)) if old else frozenset()
    gone = [path for path in old if path not in needed]
    for path in gone:
        yield Delete(path)
    return len(gone)


def _may_go(path: str, newest: int) -> bool:
    number = number_of(path)
    return _AVRO.fullmatch(path) is not None if number is None else number < newest
