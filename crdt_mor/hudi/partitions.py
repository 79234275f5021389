"""Partitions: the file by which Hudi's readers find one, and how that of a partition without data files goes.

    a writer     puts its first file of the partition ── puts the metadata, if absent ── completes
    a sweep      lists: no data file ── deletes the metadata ── lists again: a data file? ── puts the metadata

Hudi's readers look for data files only in folders with this metadata. So a completed commit's partition needs it, and
both of them end with it there, whatever the order of their steps. If the writer finds the metadata in place, it was
not deleted yet; the writer's file was there before, so that the sweep's second listing has it, and the sweep puts the
metadata again. If the writer finds none, the writer puts it. A process that dies between its two steps leaves a
partition with data files and without metadata, which a later sweep puts; a writer that dies so has not completed.

Only in tables of ours: Hudi's own writers put the metadata first.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.format.properties import partition_metadata
from crdt_mor.log.steps import Delete, List, Put, Steps, put_surely
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import data_file_name, join_path
from crdt_mor.store.protocol import Stat

PARTITION_METADATA = ".hoodie_partition_metadata"


def metadata_put(partition: str, instant: InstantTime) -> Put:
    """The file by which Hudi finds a partition: the first writer's stays."""
    depth = len(partition.split("/")) if partition else 0
    return Put(join_path(partition, PARTITION_METADATA), partition_metadata(instant, depth))


def sweep_partitions(files: Sequence[Stat], now: InstantTime) -> Steps[None]:
    """Remove the metadata of partitions that hold nothing else; put it where data files lack it.

    files: a listing of all data files, and of these. now: the instant that metadata names which is put.
    """
    holds: dict[str, list[str]] = {}
    for stat in files:
        partition, _, name = stat.path.rpartition("/")
        if partition:  # a table without partitions has its metadata in the root, where it stays
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
    """Whether a listing of now shows a data file in the partition."""
    stats: list[Stat] = yield List(partition)
    return any(data_file_name(stat.path) is not None for stat in stats)
