"""What is true of the file groups that rows are written to: see `model.file_ids`."""

from __future__ import annotations

from crdt_mor.model.names import DELTA_COMMIT, bucket_of_file_id
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion


def foreign_file_groups_are_not_forgotten(previous: Timeline, following: Timeline) -> bool:
    """A table with a file group to which no bucket leads keeps the note: no release may write to it.

    A key that lives in that group would be written to another one, and live twice. Only a file group that turns out to
    be its bucket's is no such group any more, and those that a commit of Hudi's or a restore has taken away.
    """
    return previous.foreign_group is None or following.foreign_group is not None or _may_differ(previous, following)


def file_ids_change_with_hudis_commits(previous: Timeline, following: Timeline) -> bool:
    """Only the adoption of Hudi's commits changes which file groups answer for buckets, and a restore.

    So does the note of a file group that turns out to be its bucket's, which an older release had taken for foreign.
    Two writers that open a bucket at once would not meet otherwise, and a key that both write would live twice.
    """
    return previous.file_ids == following.file_ids or _may_differ(previous, following)


def rows_are_written_to_live_file_groups(previous: Timeline, following: Timeline) -> bool:
    """A write of ours commits files of the file groups alone that answer for their buckets.

    No reader sees what is written to a file group that Hudi has replaced, and a key in a second one lives twice.
    """
    written = [c for c in _new(following) if not c.adopted and (c.action == DELTA_COMMIT or c.overwriting is not None)]
    return not any(previous.file_ids.misplaced(c.files) for c in written)


def _may_differ(previous: Timeline, following: Timeline) -> bool:
    adopts = any(c.adopted for c in _new(following))
    was_foreign = previous.foreign_group is not None and bucket_of_file_id(previous.foreign_group) is not None
    return adopts or was_foreign or following.is_restore_of(previous)


def _new(following: Timeline) -> list[Completion]:
    return [c for c in following.completions if c.version == following.version]
