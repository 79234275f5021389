"""Partition metadata: Hudi's readers look for data files only in folders with this file.

    a writer     puts its first file of the partition ── puts the metadata, if absent ── completes
    a sweep      lists: no data file ── deletes the metadata ── lists again: a data file? ── puts the metadata

So a completed commit's partition has metadata in every order of these steps. A writer that finds no metadata puts it.
If the writer finds metadata, the sweep has not deleted it yet, and the writer's file is already there. The sweep's
second listing then shows this file, and the sweep puts the metadata again. If the sweep dies in between, a later sweep
puts it. Hudi's own writers put the metadata first.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.format.properties import partition_metadata
from crdt_mor.log.steps import Delete, List, Put, Steps, put_surely
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import data_file_name, join_path
from crdt_mor.store.protocol import Stat

PARTITION_METADATA = ".hoodie_partition_metadata"


def metadata_path(partition: str) -> str:
    return join_path(partition, PARTITION_METADATA)


def metadata_put(partition: str, instant: InstantTime) -> Put:
    depth = len(partition.split("/")) if partition else 0
    return Put(metadata_path(partition), partition_metadata(instant, depth))


def sweep_partitions(files: Sequence[Stat], now: InstantTime) -> Steps[None]:
    """Remove the metadata of empty partitions, and put missing metadata. files: data files and metadata."""
    holds: dict[str, list[str]] = {}
    for stat in files:
        partition, _, name = stat.path.rpartition("/")
        if partition:  # without partitions, the root's metadata stays
            holds.setdefault(partition, []).append(name)
    for partition, names in holds.items():
        if names == [PARTITION_METADATA]:
            put = metadata_put(partition, now)
            yield Delete(put.path)
            if (yield from _has_files(partition)):
                yield from put_surely(put)
        elif (
            PARTITION_METADATA not in names
            and any(data_file_name(name) is not None for name in names)
            and (yield from _has_files(partition))
        ):
            yield from put_surely(metadata_put(partition, now))


def _has_files(partition: str) -> Steps[bool]:
    stats: list[Stat] = yield List(partition)
    return any(data_file_name(stat.path) is not None for stat in stats)
