"""Which file group answers for a bucket: what the adopted commits of Hudi's have left there, else the fixed id.

    a bucket that nobody has used     00000003-0000-0000-0000-000000000000-0     two writers that open it at once meet
    one in which Hudi opened a group  00000003-7c1e…-0                           the one that Hudi made up
    one whose group Hudi replaced     00000003-0000-0002-0261-126123456789-0     of the replacing instant's time

Hudi's simple bucket index goes by the eight digits in front, and takes the one live file group that it finds. A file
group that was replaced hides whatever is written to it later, for good, so that its id is never used again.

All of it follows from the set of commits, so two processes that adopt the same ones come to the same ids, and readers
that adopt them in memory as well. The value keeps the ids that are not the fixed ones. Only the adoption of Hudi's
commits changes them, and a restore, which drops such commits. Where there are many, the versions name an object that
holds them (`log.segments`), and are as small as those of other tables.
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
    """The live file ids of buckets that are not the fixed ones.

    groups: partition path and file id, sorted. stored: the name of the object that holds them; None: versions do.
    """

    groups: tuple[FileGroup, ...] = ()
    stored: str | None = field(default=None, compare=False)

    def of(self, partition: str, bucket: int) -> str:
        """The id of the file group to which rows of a bucket are written."""
        return self._by_bucket.get((partition, bucket)) or bucket_file_id(bucket)

    @cached_property
    def _by_bucket(self) -> dict[tuple[str, int | None], str]:
        return {(partition, bucket_of_file_id(file_id)): file_id for partition, file_id in self.groups}

    def has(self, group: FileGroup) -> bool:
        """Whether rows may be written to a file group: it is the live one of its bucket."""
        partition, file_id = group
        bucket = bucket_of_file_id(file_id)
        return bucket is not None and self.of(partition, bucket) == file_id

    def among(self, groups: Iterable[FileGroup]) -> FileIds:
        """The ids that these file groups have, for a process that knows no others."""
        return FileIds(tuple(sorted(self._groups.intersection(groups)))) if self.groups else self

    @cached_property
    def _groups(self) -> frozenset[FileGroup]:
        return frozenset(self.groups)

    def misplaced(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Those of the files that lie in file groups which are not the live ones of their buckets."""
        return [file for file in files if not self.has(file.group)]


FIXED: Final = FileIds()
"""Of a table in which no commit of Hudi's has changed any."""


@dataclass(frozen=True)
class Unread(FileIds):
    """The ids of a version that was only decoded: the object that holds them is still to be read."""

    stored: str | None = None

    @cached_property
    def _by_bucket(self) -> dict[tuple[str, int | None], str]:
        raise AssertionError(f"a version is found with its file ids, by `log.segments.with_file_ids`. {self.stored=}")


@dataclass(frozen=True, slots=True)
class LiveGroups:
    """The file ids that follow from commits. foreign: a live file group to which no bucket leads; None: there is none.

    That is one that the bucket index did not make, or the second one of a bucket.
    """

    file_ids: FileIds
    foreign: str | None


def live_groups(completions: Iterable[Completion], buckets: int | None) -> LiveGroups:
    """What follows from all commits that are known. buckets: of the table; None: it does not say."""
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
    """The bucket of a file id that the bucket index made, of a table that says how many there are; None of others."""
    bucket = bucket_of_file_id(file_id)
    return bucket if bucket is not None and buckets is not None and bucket < buckets else None


# --- bytes ------------------------------------------------------------------------------------------------------------


def file_ids_json(ids: FileIds) -> str | dict[str, list[str]]:
    """What a version says: the ids by partition path, or the name of the object that holds them."""
    return by_partition(ids) if ids.stored is None else ids.stored


def by_partition(ids: FileIds) -> dict[str, list[str]]:
    """The ids by partition path."""
    found: dict[str, list[str]] = {}
    for partition, file_id in ids.groups:
        found.setdefault(partition, []).append(file_id)
    return found


def file_ids_in(entry: str | Mapping[str, Sequence[Any]]) -> FileIds:
    """The ids that a version says."""
    return Unread(stored=entry) if isinstance(entry, str) else file_ids_of(entry)


def file_ids_of(entries: Mapping[str, Sequence[Any]]) -> FileIds:
    """The ids by partition path; raises one of `WRONG_SHAPE` for what is no such thing."""
    groups = tuple((partition, file_id) for partition, ids in entries.items() for file_id in ids)
    if not all(isinstance(file_id, str) and bucket_of_file_id(file_id) is not None for _, file_id in groups):
        raise TypeError(f"file ids. {entries=}")
    return FileIds(groups)
