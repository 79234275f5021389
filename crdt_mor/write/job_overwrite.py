"""A distributed overwrite: tasks stage base files, and the driver publishes the overwrite.

    tasks     stage_part      a base file for each file group of the task's rows, where no reader looks
    driver    gather_parts    take a group's only base file; if several tasks staged rows of a group, merge them in the
                              order of the tasks into another
              publish         `events.overwrite`: one event, by the last driver that took the write over

A staged base file lacks payload states and a record of omitted columns. So in tables that merge by columns each task
also stages log files, read if tasks share a file group.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.threads import groups_in_threads
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.overwrite import EVERYTHING, OVERWRITE, OVERWRITE_TABLE
from crdt_mor.planners.overwrite import StagedBase, StagedOverwrite
from crdt_mor.store.absences import surely
from crdt_mor.write.job_files import bucket_of, of_group, refuse_crowded, reopen
from crdt_mor.write.job_values import Receipt, Replacing, StagedFile
from crdt_mor.write.log_files import Group
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.overwrite import BaseStaging, require_inside, scope_of_rows
from crdt_mor.write.statements import Statement

Part = tuple[Receipt, StagedBase, StagedFile | None]
"""A task's receipt, its base file of a group, and its log file, if any."""


# --- the task's part --------------------------------------------------------------------------------------------------


def stage_part(write: OpenWrite, statements: Sequence[Statement], replacing: Replacing) -> tuple[StagedBase, ...]:
    """Stage the base files of a task; raise for rows outside the replaced partitions."""
    if replacing.scope is not None:
        frames = [statement.rows for statement in statements if isinstance(statement, RowsWrite)]
        require_inside(replacing.scope, {path for rows in frames for path in rows[PARTITION_PATH].unique()})
    return BaseStaging(write).bases(statements)


def needs_logs(write: OpenWrite) -> bool:
    return write.statements.merging.rule.kind == "columns"


# --- the driver's part ------------------------------------------------------------------------------------------------


def gather_parts(write: OpenWrite, replacing: Replacing, receipts: Sequence[Receipt]) -> StagedOverwrite:
    """Take the write over, and return a base file for each file group with rows."""
    write.take_over()
    write.require_pending()
    groups: dict[Group, list[Part]] = {}
    for receipt in sorted(receipts, key=lambda r: r.task):
        logs = {staged.file.group: staged for staged in receipt.files}
        for base in receipt.bases:
            groups.setdefault(bucket_of(base.group), []).append((receipt, base, logs.get(base.group)))
    staging = BaseStaging(write)

    def gather(group: Group) -> StagedBase:
        (_, base, _), *others = parts = groups[group]
        return _merge(staging, parts) if others or not write.file_ids.has(base.group) else _take(write, base)

    def size(group: Group) -> int:
        parts = groups[group]
        return sum(base.size for _, base, _ in parts) if len(parts) > 1 else 0

    bases = tuple(groups_in_threads(gather, sorted(groups), size, write.session.memory_limit))
    scope = replacing.scope
    if scope is None:
        scope = scope_of_rows(write.session.config.key, {partition for partition, _ in groups})
    return StagedOverwrite(OVERWRITE_TABLE if scope == EVERYTHING else OVERWRITE, scope, bases, staging.empty())


def _take(write: OpenWrite, base: StagedBase) -> StagedBase:
    """Return a group's only base file; raise if it differs from the task's file.

    The event names the file, and no commit follows before the file has its final name.
    """
    stat = write.session.store.stat(base.path)
    if stat is None or stat.size != base.size:
        write.require_pending()  # a rollback removes the staged files
        raise InvalidInputError(
            "a staged file differs from the file its task wrote, as after a power cut: plan the write again. "
            f"file={base.path} size={stat and stat.size} written={base.size}"
        )
    return base


def _merge(staging: BaseStaging, parts: Sequence[Part]) -> StagedBase:
    write = staging.write
    refuse_crowded(write, [receipt for receipt, _, _ in parts])
    statements = [s for _, base, log in parts for s in (reopen(write, log) if log else [_rows_of(write, base)])]
    (merged,) = staging.bases(statements)
    return merged


def _rows_of(write: OpenWrite, base: StagedBase) -> RowsWrite:
    _take(write, base)
    data = surely(write.session.store, base.path, write.session.store.view)
    if data is None:
        write.require_pending()
        raise InvalidInputError(f"a staged file is gone: plan the write again. file={base.path}")
    names = write.statements.merging.schema.stored.names
    rows = pl.read_parquet(io.BytesIO(data), columns=[RECORD_KEY, *names])
    return RowsWrite(rows.with_columns(**of_group(base.group)))
