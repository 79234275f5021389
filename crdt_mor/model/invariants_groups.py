"""Invariants of the file groups for new rows, see `model.file_ids`."""

from __future__ import annotations

from crdt_mor.model.names import DELTA_COMMIT, bucket_of_file_id
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion


def foreign_file_groups_are_not_forgotten(previous: Timeline, following: Timeline) -> bool:
    """A foreign file group, outside the bucket index, stays noted, so no release writes to the table.

    Otherwise a key could live in two groups.
    """
    return previous.foreign_group is None or following.foreign_group is not None or _may_differ(previous, following)


def file_ids_change_with_hudis_commits(previous: Timeline, following: Timeline) -> bool:
    """The live file groups of buckets change only with adopted commits of Hudi or a restore.

    Otherwise two writers could open two groups for one bucket, and a key would live twice.
    """
    return previous.file_ids == following.file_ids or _may_differ(previous, following)


def rows_are_written_to_live_file_groups(previous: Timeline, following: Timeline) -> bool:
    """Our writes commit only files of the live file group of each bucket.

    Readers skip a file group that Hudi has replaced. A key in a second group lives twice.
    """
    written = [c for c in _new(following) if not c.adopted and (c.action == DELTA_COMMIT or c.overwriting is not None)]
    return not any(previous.file_ids.misplaced(c.files) for c in written)


def _may_differ(previous: Timeline, following: Timeline) -> bool:
    adopts = any(c.adopted for c in _new(following))
    was_foreign = previous.foreign_group is not None and bucket_of_file_id(previous.foreign_group) is not None
    return adopts or was_foreign or following.is_restore_of(previous)


def _new(following: Timeline) -> list[Completion]:
    return [c for c in following.completions if c.version == following.version]
