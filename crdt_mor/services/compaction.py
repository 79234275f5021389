"""Compaction by causal stability: choose a plan's file groups and fold each of them.

`services.service` schedules, completes and cancels plans; `planners.compaction` freezes their inputs. Each file group
is folded into a base file and, if needed, a carry log, as the merge decides (`merge.compaction`).

A log compaction copies the base file and merges the logs into a carry. The copy on a local disk is a hard link, so its
cost there depends only on the size of the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.texts import text_scalar
from crdt_mor.errors import SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.format.base_file import read_footer
from crdt_mor.ground.pages import check_pages
from crdt_mor.ground.threads import in_threads
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.laws.merging import merging_of, require_payloads
from crdt_mor.merge.blocks import RECORD_KEY, DataBlock, DeleteBlock
from crdt_mor.merge.compaction import Carry, compact_all, compact_logs, compact_stable
from crdt_mor.merge.expiry import expired
from crdt_mor.merge.polars_types import stored_array
from crdt_mor.model.config import TableConfig
from crdt_mor.model.field_ids import field_ids
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.layout import Layout
from crdt_mor.model.names import WRITE_TOKEN, BaseFileName, LogFileName, join_path
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.planners.compaction import CompactionPlan, GroupInput, plan_again, plan_compaction, plan_logs
from crdt_mor.read.damage import POLARS_ERRORS, naming_damage
from crdt_mor.read.open_slice import base_source, open_slice
from crdt_mor.services.expiry import Removes, slices_expired
from crdt_mor.services.service import Service
from crdt_mor.store.absences import surely
from crdt_mor.write.base_files import base_file
from crdt_mor.write.log_files import Deletes, Rows, StoredRows, log_file, put_chunks, put_log
from crdt_mor.write.refusals import require_written_format

Choose = Callable[[Timeline, Sequence[FileSlice], Collection[FileGroup]], Collection[FileGroup]]
"""Choose file groups from (value, latest slices, file groups in open plans); pure."""


def compaction(
    log_files_min: int = 1,
    choose: Choose | None = None,
    *,
    logs_only: bool = False,
    reorder: bool = False,
    removes: Removes | None = "any",
) -> Service[CompactionPlan]:
    """Return the compaction of the chosen file groups with at least `log_files_min` log files.

    Args:
        choose: Chooses file groups; None chooses all.
        logs_only: Compact only logs, where a base file exists.
        reorder: Include file groups not sorted in the table's order.
        removes: Include file groups without logs if "any" or "all" rows have expired.
    """
    orders: dict[str, str] | None = {} if reorder else None
    plan = partial(_plan, log_files_min, choose, logs_only, orders, None if logs_only else removes)
    return Service(COMPACT, _require, plan, _execute, _size, _inputs)


def compaction_of(groups: Collection[FileGroup]) -> Service[CompactionPlan]:
    """Return the compaction of the given file groups with any log, even a single carry."""

    def plan(session: Session, value: Timeline, taken: Collection[FileGroup]) -> CompactionPlan | None:
        wanted = set(groups)
        slices = [s for s in session.views.slices(value).with_logs() if s.group in wanted]
        return _unless_waiting(session, value, plan_logs(value, slices, session.config.merge, taken))

    return Service(COMPACT, _require, plan, _execute, _size, _inputs)


def compaction_again(before: CompactionPlan) -> Service[CompactionPlan]:

    def plan(session: Session, value: Timeline, taken: Collection[FileGroup]) -> CompactionPlan | None:
        slices = session.views.slices(value)
        return _unless_waiting(session, value, plan_again(value, slices, session.config.merge, taken, before))

    return Service(COMPACT, _require, plan, _execute, _size, _inputs)


def _require(session: Session) -> None:
    require_written_format(session.settings())
    require_payloads(session.config)


def _plan(
    log_files_min: int,
    choose: Choose | None,
    logs_only: bool,
    orders: dict[str, str] | None,
    removes: Removes | None,
    session: Session,
    value: Timeline,
    taken: Collection[FileGroup],
) -> CompactionPlan | None:
    merge = session.config.merge
    # The session caches segments, so planning again after a lost race is cheap.
    slices = session.views.slices(value)
    reordered = set[FileGroup]() if orders is None else _in_another_order(session, value, slices, orders)
    lapsed = [] if removes is None else slices_expired(session, value, value.next_barrier, removes)
    also = reordered.union(slice_.group for slice_ in lapsed)
    slices = slices if also else slices.with_logs()
    groups = None if choose is None else choose(value, slices, taken)
    plan = plan_compaction(value, slices, merge, taken, log_files_min, groups, logs_only, also)
    return _unless_waiting(session, value, plan)


def _in_another_order(
    session: Session, value: Timeline, slices: Sequence[FileSlice], orders: dict[str, str]
) -> set[FileGroup]:
    """orders: cache by base file path; base files never change."""

    def order(slice_: FileSlice) -> str:
        assert slice_.base is not None
        with naming_damage(session.store, slice_):
            return read_footer(base_source(session.store, slice_.base)).order

    unknown = [slice_ for slice_ in slices if slice_.base is not None and slice_.base.path not in orders]
    for slice_, found in zip(unknown, in_threads(order, unknown), strict=True):
        assert slice_.base is not None
        orders[slice_.base.path] = found
    asked = str(Layout.of(value.properties))
    return {slice_.group for slice_ in slices if slice_.base is not None and orders[slice_.base.path] != asked}


def _unless_waiting(session: Session, value: Timeline, plan: CompactionPlan | None) -> CompactionPlan | None:
    return None if session.config.merge.hudi_commit_time and value.pending else plan


def _inputs(plan: CompactionPlan) -> Iterator[DataFile]:
    for group in plan.groups:
        yield from group.logs if group.base is None else (group.base, *group.logs)


def _size(plan: CompactionPlan) -> int:
    return sum(group.bytes for group in plan.groups)


# --- one file group ---------------------------------------------------------------------------------------------------


def _execute(session: Session, plan: CompactionPlan, threads: int) -> list[DataFile]:
    try:
        return _compacted(session, plan, threads)
    except (pa.ArrowException, *POLARS_ERRORS) as error:
        if isinstance(error, MemoryError):
            raise
        line = str(error).partition("\n")[0]
        raise UnsupportedFeatureError(
            "the files of a file group cannot be merged: run crdt-mor verify to find damage; if there is none, report "
            "this bug with the column types. "
            f"file={_base_path(plan, plan.groups[0])} cause={type(error).__name__}: {line}"
        ) from error


def _compacted(session: Session, plan: CompactionPlan, threads: int) -> list[DataFile]:
    config, store = session.config, session.store
    (group,) = plan.groups
    merging = merging_of(config, plan.schema)
    rule, columns, schema = merging.rule, merging.columns, merging.schema
    slice_ = FileSlice(group.partition, group.file_id, group.base, group.logs)
    pending = plan.pending_of(group)
    with naming_damage(store, slice_):
        opened = open_slice(store, slice_, config, checked=True)
        if group.logs_only and (carry := compact_logs(opened, rule, columns, pending)) is not None:
            copied = _copy_base(session, plan, group)
            return [copied, *_put_carry(session, plan, group, carry, schema)]
        if opened.base is not None:
            base = opened.base.at_hand()
            for source in base.one_by_one():
                check_pages(source)
            opened = replace(opened, base=base)
        gone = None if config.merge.expiry is None else expired(config.merge.expiry, plan.barrier)
        if rule.kind == "latest":
            compacted = compact_all(opened, rule, columns, pending[0] if pending else None, gone)
        else:
            compacted = compact_stable(opened, rule, columns, pending, gone)
        rows, empty_states = in_threads(lambda part: part(), compacted.parts, threads), set[str]()
        if state_columns := rule.hidden:
            # Drop unneeded state columns: readers decode even a column of nulls.
            parts = list(rows)
            empty_states = {name for name in state_columns if all(p[name].null_count() == p.height for p in parts)}
            rows = iter(parts)
        base_schema = schema.select(name for name in schema.declared.names if name not in empty_states)
        files = [_put_base(session, plan, group, rows, base_schema, threads)]
        for _ in rows:
            pass  # another executor put the base, so nobody read the rows; the carry is known only after all of them
        return [*files, *_put_carry(session, plan, group, compacted.carry(), schema)]


def _copy_base(session: Session, plan: CompactionPlan, group: GroupInput) -> DataFile:
    assert group.base is not None
    store, base = session.store, group.base
    path = _base_path(plan, group)
    if store.stat(path) is None:
        if surely(store, base.path, store.stat) is None:
            raise SnapshotExpiredError.of_file(base.path)
        if store.copy(base.path, path):
            return replace(base, path=path)
    store.make_durable(path)  # put by another executor, and needed by this plan
    return replace(base, path=path)


def _base_path(plan: CompactionPlan, group: GroupInput) -> str:
    return join_path(group.partition, str(BaseFileName(group.file_id, WRITE_TOKEN, plan.barrier)))


def _put_base(
    session: Session,
    plan: CompactionPlan,
    group: GroupInput,
    rows: Iterable[pl.DataFrame],
    schema: TableSchema,
    threads: int,
) -> DataFile:
    path = _base_path(plan, group)
    file_name = path.rpartition("/")[2]
    layout = replace(Layout.parse(plan.order), compression=plan.compression)
    ids = field_ids(session.known_tail().schema)  # not the plan's: an earlier release may have grown it since
    content, statistics = base_file(session.config, group.partition, file_name, rows, schema, ids, threads, layout)
    size, created = put_chunks(session.store, path, content)
    if created:
        return DataFile(path, size, statistics.rows)
    written = DataFile(path, size, 0)
    with naming_damage(session.store, FileSlice(group.partition, group.file_id, written, ())):
        return replace(written, rows=read_footer(base_source(session.store, written)).rows)


def _put_carry(
    session: Session, plan: CompactionPlan, group: GroupInput, carry: Carry, schema: TableSchema
) -> list[DataFile]:
    carried = [contents for block in carry for contents in _log_blocks(block, session.config, schema)]
    if not carried:
        return []
    name = LogFileName(group.file_id, plan.barrier)
    data, file = log_file(session.config, schema, group.partition, name, carried)
    return [put_log(session.store, file.path, data, file)]


def _log_blocks(block: DataBlock | DeleteBlock, config: TableConfig, schema: TableSchema) -> Iterator[Deletes | Rows]:
    if isinstance(block, DataBlock):
        assert isinstance(block.rows, pl.DataFrame)
        partial = block.given is not None and set(block.given) != set(schema.declared.names)
        yield Rows(InstantTime(block.instant), StoredRows.of(block.rows, schema), partial, block.nulls)
    elif "time" in block.keys.columns:
        for group, keys in block.keys.group_by("time", maintain_order=True):
            time = InstantTime(str(group[0]))
            # In tables made by Hudi, deletes have no ordering value: Hudi's readers use their block's instant.
            times = None if config.merge.hudi_commit_time else pa.repeat(text_scalar(time), keys.height)
            yield Deletes(time, stored_array(keys[RECORD_KEY], pa.string()), times)
    else:
        ordering = None
        if "ordering" in block.keys.columns:
            ordering = stored_array(block.keys["ordering"], schema.stored.field(config.merge.ordering).type)
        yield Deletes(InstantTime(block.instant), stored_array(block.keys[RECORD_KEY], pa.string()), ordering)
