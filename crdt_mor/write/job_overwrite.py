"""A distributed overwrite: tasks stage base files, and the driver publishes one overwrite of what their receipts name.

    tasks     stage_part      one base file for each file group that the task has rows of, where nobody looks
    driver    gather_parts    a base file that one task alone staged of its group is taken as it is; where several tasks
                              staged rows of one group, the driver merges them, in the order of the tasks, into another
              publish         `events.overwrite`: one event, by the driver alone that took the write over last

A staged base file holds the rows as they will be read, without what a state needs to be merged with rows of other
tasks, nor which columns a partial row has left out. So in tables that merge by columns each task stages the same rows
as log files as well, which the driver reads where several tasks share a file group, and which are removed in any case.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.threads import in_threads
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
"""What one task staged of a file group: its receipt, the base file, and the log file of the same rows if there is one.
"""


# --- the task's part --------------------------------------------------------------------------------------------------


def stage_part(write: OpenWrite, statements: Sequence[Statement], replacing: Replacing) -> tuple[StagedBase, ...]:
    """Stage the base files of a task; raises where it has rows of partitions that are not to be replaced."""
    if replacing.scope is not None:
        frames = [statement.rows for statement in statements if isinstance(statement, RowsWrite)]
        require_inside(replacing.scope, {path for rows in frames for path in rows[PARTITION_PATH].unique()})
    return BaseStaging(write).bases(statements)


def needs_logs(write: OpenWrite) -> bool:
    """Whether base files do not hold all that is needed to merge their rows with those of other tasks."""
    return write.statements.merging.rule.kind == "columns"


# --- the driver's part ------------------------------------------------------------------------------------------------


def gather_parts(write: OpenWrite, replacing: Replacing, receipts: Sequence[Receipt]) -> StagedOverwrite:
    """Take the write over, and make of what its tasks staged the one base file of each file group that has rows."""
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

    bases = tuple(in_threads(gather, sorted(groups)))
    scope = replacing.scope
    if scope is None:
        scope = scope_of_rows(write.session.config.key, {partition for partition, _ in groups})
    return StagedOverwrite(OVERWRITE_TABLE if scope == EVERYTHING else OVERWRITE, scope, bases, staging.empty())


def _take(write: OpenWrite, base: StagedBase) -> StagedBase:
    """The base file of a group that one task alone has staged; raises where it is not what its task wrote.

    The event names it, and nothing else is committed before it has its final name.
    """
    stat = write.session.store.stat(base.path)
    if stat is None or stat.size != base.size:
        write.require_pending()  # a write that was given up a moment ago has lost what its tasks staged
        raise InvalidInputError(
            "a staged file is not what its task wrote, as after a power cut: plan the write again. "
            f"file={base.path} size={stat and stat.size} written={base.size}"
        )
    return base


def _merge(staging: BaseStaging, parts: Sequence[Part]) -> StagedBase:
    """Stage one base file of what several tasks staged of a file group, as if one of them had had all of its rows."""
    write = staging.write
    refuse_crowded(write, [receipt for receipt, _, _ in parts])
    statements = [s for _, base, log in parts for s in (reopen(write, log) if log else [_rows_of(write, base)])]
    (merged,) = staging.bases(statements)
    return merged


def _rows_of(write: OpenWrite, base: StagedBase) -> RowsWrite:
    """A staged base file as the statement that it was made of."""
    _take(write, base)
    data = surely(write.session.store, base.path, write.session.store.view)
    if data is None:
        write.require_pending()
        raise InvalidInputError(f"a staged file is gone: plan the write again. file={base.path}")
    names = write.statements.merging.schema.stored.names
    rows = pl.read_parquet(io.BytesIO(data), columns=[RECORD_KEY, *names])
    return RowsWrite(rows.with_columns(**of_group(base.group)))
