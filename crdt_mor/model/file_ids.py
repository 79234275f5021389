"""The live file group of each bucket: the fixed id, unless adopted commits of Hudi changed it.

    an unused bucket              00000003-0000-0000-0000-000000000000-0     two writers that open it agree
    Hudi opened a group           00000003-7c1e…-0                           Hudi's random id
    Hudi replaced the group       00000003-0000-0002-0261-126123456789-0     from the replacing instant's time

Hudi's simple bucket index uses the first eight digits, and expects one live file group per bucket. A replaced file
group hides later writes for ever, so its id is never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import bucket_file_id, bucket_of_file_id, replacing_file_id

if TYPE_CHECKING:
    from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup


@dataclass(frozen=True)
class FileIds:
    """The live file ids that differ from the fixed ones.

    groups: sorted. stored: the object with the ids; None: the versions contain them.
    """

    groups: tuple[FileGroup, ...] = ()
    stored: str | None = field(default=None, compare=False)

    def of(self, partition: str, bucket: int) -> str:
        """Return the file group for new rows of a bucket."""
        return self._by_bucket.get((partition, bucket)) or bucket_file_id(bucket)

    @cached_property
    def _by_bucket(self) -> dict[tuple[str, int | None], str]:
        return {(partition, bucket_of_file_id(file_id)): file_id for partition, file_id in self.groups}

    def has(self, group: FileGroup) -> bool:
        partition, file_id = group
        bucket = bucket_of_file_id(file_id)
        return bucket is not None and self.of(partition, bucket) == file_id

    def among(self, groups: Iterable[FileGroup]) -> FileIds:
        return FileIds(tuple(sorted(self._groups.intersection(groups)))) if self.groups else self

    @cached_property
    def _groups(self) -> frozenset[FileGroup]:
        return frozenset(self.groups)

    def misplaced(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Return the files outside their buckets' live file groups."""
        return [file for file in files if not self.has(file.group)]


FIXED: Final = FileIds()


@dataclass(frozen=True)
class Unread(FileIds):
    """The ids of a decoded version before its object is read."""

    stored: str | None = None

    @cached_property
    def _by_bucket(self) -> dict[tuple[str, int | None], str]:
        raise AssertionError(f"read the file ids first, with `log.segments.with_objects`. {self.stored=}")


@dataclass(frozen=True, slots=True)
class LiveGroups:
    """The file ids that follow from commits.

    foreign: a live file group outside the bucket index, or a second group of a bucket.
    """

    file_ids: FileIds
    foreign: str | None


def live_groups(completions: Iterable[Completion], buckets: int | None) -> LiveGroups:
    replaced: dict[FileGroup, InstantTime] = {}
    used: set[FileGroup] = set()
    for c in completions:
        used.update(file.group for file in c.files)
        for group in c.replaced:
            replaced[group] = max(c.requested, replaced.get(group, c.requested))
    ids: dict[tuple[str, int], str] = {}
    foreign: str | None = None
    for partition, file_id in sorted(used - replaced.keys()):
        bucket = index_bucket(file_id, buckets)
        if bucket is None or ids.setdefault((partition, bucket), file_id) != file_id:
            foreign = file_id
    ends: dict[tuple[str, int], InstantTime] = {}
    for (partition, file_id), time in replaced.items():
        bucket = index_bucket(file_id, buckets)
        if bucket is not None and (partition, bucket) not in ids:
            ends[partition, bucket] = max(time, ends.get((partition, bucket), time))
    ids |= {place: replacing_file_id(place[1], time) for place, time in ends.items()}
    named = sorted((p, file_id) for (p, bucket), file_id in ids.items() if file_id != bucket_file_id(bucket))
    return LiveGroups(FileIds(tuple(named)), foreign)


def index_bucket(file_id: str, buckets: int | None) -> int | None:
    """Return the bucket of a file id, or None if the bucket index did not make the id."""
    bucket = bucket_of_file_id(file_id)
    return bucket if bucket is not None and buckets is not None and bucket < buckets else None


# --- bytes ------------------------------------------------------------------------------------------------------------


def file_ids_json(ids: FileIds) -> str | dict[str, list[str]]:
    """Return the ids by partition path, or the name of their object."""
    return by_partition(ids) if ids.stored is None else ids.stored


def by_partition(ids: FileIds) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for partition, file_id in ids.groups:
        found.setdefault(partition, []).append(file_id)
    return found


def file_ids_in(entry: str | Mapping[str, Sequence[Any]]) -> FileIds:
    return Unread(stored=entry) if isinstance(entry, str) else file_ids_of(entry)


def file_ids_of(entries: Mapping[str, Sequence[Any]]) -> FileIds:
    groups = tuple((partition, file_id) for partition, ids in entries.items() for file_id in ids)
    if not all(isinstance(file_id, str) and bucket_of_file_id(file_id) is not None for _, file_id in groups):
        raise TypeError(f"file ids. {entries=}")
    return FileIds(groups)
