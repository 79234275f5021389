"""Overwrites: the replaced partitions, and the base files of the new rows, staged where no reader looks.

    statements ─ precombine ─► rows, states settled ─ by file group ─► one base file each, and one without rows

States are settled, as by a compaction without pending writes: every later write to these file groups has seen the
overwrite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl
import pyarrow as pa

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.events import overwrite
from crdt_mor.events import write as events
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import THREADS, in_threads
from crdt_mor.laws.merging import Merging
from crdt_mor.log.outcome import ValueOf
from crdt_mor.log.paths import STAGED
from crdt_mor.merge.blocks import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, SEQUENCE
from crdt_mor.merge.orders import as_base_rows
from crdt_mor.merge.precombine import RowsWrite, precombine
from crdt_mor.model.field_ids import field_ids
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.layout import Layout
from crdt_mor.model.overwrite import EVERYTHING, Scope
from crdt_mor.model.partition_functions import renamed
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.planners.overwrite import StagedBase, StagedOverwrite
from crdt_mor.write.base_files import base_file, shown_rows
from crdt_mor.write.log_files import BUCKET, Group, by_group, put_chunks, sorted_keys
from crdt_mor.write.named import Prepared
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.spilled import SpilledWrite
from crdt_mor.write.statements import Statement, Statements, means_alike

Partitions = Literal["dynamic"] | Collection[object] | None
"""The partitions to replace; "dynamic": those with rows; None: all."""

_META: Final = {COMMIT_TIME: pl.String(), SEQUENCE: pl.String(), RECORD_KEY: pl.String()}


@dataclass(frozen=True, slots=True)
class OverwriteStatement:
    """The only statement of an overwrite. operation: Hudi's word for it."""

    scope: Scope
    operation: str


def replacement(
    write: OpenWrite,
    prepare: Callable[[Statements], Prepared],
    partitions: Partitions,
    prepared: Prepared | None = None,
) -> tuple[Prepared, Scope]:
    """Check the rows of an overwrite, and return the replaced partitions; raise for rows outside them.

    prepared: the rows after a check by an earlier version, which counts if the two are alike.
    """
    asked = None if partitions == "dynamic" else scope_of(write, partitions)
    if prepared is None or not means_alike(prepared.value, write.value):
        prepared = prepare(write.statements)
    places = _partitions_of(prepared.checked.statement)
    if asked is None:
        return prepared, scope_of_rows(write.session.config.key, places)
    require_inside(asked, places)
    return prepared, asked


def _partitions_of(statement: Statement | SpilledWrite) -> Collection[str]:
    if isinstance(statement, SpilledWrite):
        return statement.partitions
    assert isinstance(statement, RowsWrite), "an overwrite brings rows"
    return set(statement.rows[PARTITION_PATH].unique().to_list())


def rehearsal(session: Session, value: Timeline) -> OpenWrite:
    """Return a write that never begins, to check statements by a version."""
    return OpenWrite(session, ValueOf(value), Pending(EPOCH, "", value.version))


def scope_of_rows(key: KeySpec, partitions: Collection[str]) -> Scope:
    """Return the scope of a dynamic overwrite with rows in these partition paths."""
    return Scope(tuple(sorted(partitions))) if key.partition_fields else EVERYTHING


def require_inside(asked: Scope, partitions: Collection[str]) -> None:
    outside = sorted(partition for partition in partitions if not asked.covers(partition))
    if outside:
        raise InvalidInputError(
            "rows lie outside the replaced partitions: name their partitions as well, or omit the rows; "
            f'partitions="dynamic" replaces the partitions of the rows. not_named={outside[:5]} '
            f"named={list(asked.partitions or ())[:5]}"
        )


def commit_overwrite(write: OpenWrite, statement: OverwriteStatement) -> events.WriteOutcome:
    """Stage the base files and publish the overwrite; a failure leaves nothing."""

    def stage() -> StagedOverwrite:
        staging = BaseStaging(write)
        bases = list[StagedBase]()
        for statements, _ in write.statements.in_parts():
            staged = staging.bases(statements, sum(base.rows for base in bases))
            bases += staged
            write.tell_of_part(sum(base.rows for base in staged))
            del statements  # frees memory for the next part
        return StagedOverwrite(statement.operation, statement.scope, tuple(bases), staging.empty())

    return write.end(
        stage,
        lambda staged: overwrite.overwrite(write.session.publisher, write.value, write.begun, staged, write.token),
    )


# --- which partitions -------------------------------------------------------------------------------------------------


def scope_of(write: OpenWrite, partitions: Collection[object] | str | None) -> Scope:
    """Return the scope of partitions named by value, by tuples or mappings of values, or by path."""
    if partitions is None:
        return EVERYTHING
    key = write.session.config.key
    if not key.partition_fields:
        raise InvalidInputError("this table has no partitions: leave `partitions` out, or use truncate() for all rows.")
    if isinstance(partitions, str | bytes | Mapping) or not isinstance(partitions, Iterable):
        raise InvalidInputError(
            'pass partitions as a list, ["2026-01-31"], or "dynamic", the partitions of the rows. '
            f"partitions={partitions!r}"
        )
    return Scope(tuple(sorted({_path(write, partition) for partition in partitions})))


def require_known(
    paths: Collection[str], partitions: Collection[object], known: Collection[str], as_of: object = None
) -> None:
    """Raise `InvalidInputError` unless the paths of `partitions` are all known, and there is at least one.

    as_of: the moment of `known`, None for now.
    """
    unknown = {*paths} - {*known}
    if unknown or not paths:
        has = "has: table.inspect.files()" if as_of is None else "had at this moment: table.inspect.files(as_of)"
        moment = "" if as_of is None else f" as_of={as_of}"
        raise InvalidInputError(
            f"pass partitions that the table {has} lists them. "
            f"unknown={sorted(unknown)} partitions={list(partitions)}{moment}"
        )


def _path(write: OpenWrite, partition: object) -> str:
    key, schema = write.session.config.key, write.statements.schema
    if isinstance(partition, str) and _is_path(key, partition):
        _refuse_ambiguous(write, partition)
        return partition
    return _path_of_values(key, schema, partition, write.statements.value.names)


def _refuse_ambiguous(write: OpenWrite, path: str) -> None:
    key, schema = write.session.config.key, write.statements.schema
    if [schema.stored.field(column).type for column in key.partition_columns] != [pa.string()]:
        return
    try:
        other = _path_of_values(key, schema, path, write.statements.value.names)
    except InvalidInputError:
        return  # no partition value looks like this
    if not write.session.views.slices(write.value).within([other]):
        return
    (name,), (level,) = key.partition_columns, _levels(key, write.statements.value.names)
    value = path.removeprefix(f"{name}=")
    raise InvalidInputError(
        "this text names two partitions, by path and by value: use a mapping, "
        f"{ {level: value} } or { {level: path} }. partition={path!r} by_path={path!r} "
        f"by_value={other!r}"
    )


def _levels(key: KeySpec, names: Names) -> list[str]:
    return [*map(str, renamed(key.partition_by, names.shown))]


def _path_of_values(key: KeySpec, schema: TableSchema, partition: object, names: Names) -> str:
    """Return the path of a partition named by values."""
    levels = _levels(key, names)
    if isinstance(partition, Mapping):
        others = [one for one in partition if one not in levels]
        if not key.functions:
            names.stored(others, schema)  # raises for an unknown name
        values = [] if others else [partition[level] for level in levels if level in partition]
    else:
        values = list(partition) if isinstance(partition, tuple | list) else [partition]
    if len(values) != len(levels):
        raise InvalidInputError(
            "name a partition by a value for each partition column, by a mapping, or by its path. "
            f"partition_by={levels} got={partition!r}"
        )
    columns = {}
    for column, level, value in zip(key.partition_columns, levels, values, strict=True):
        kind = schema.stored.field(column).type
        try:
            text = pa.array([value]) if not isinstance(value, str) else pa.array([value], pa.string())
            columns[column] = text.cast(kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"name a partition by values of its columns' types. column={level} type={kind} value={value!r}"
            ) from error
    path: str = key.paths_of(columns)[0].as_py()
    return path


def _is_path(key: KeySpec, text: str) -> bool:
    """Return True for a partition path whose levels name their columns, or with several levels."""
    levels = text.split("/")
    if len(levels) != len(key.partition_by):
        return False
    if key.hive_style:
        return all(level.startswith(f"{name}=") for level, name in zip(levels, key.partition_columns, strict=True))
    return len(levels) > 1


# --- base files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BaseStaging:
    """Make the base files of a write, or of one task."""

    write: OpenWrite

    @property
    def merging(self) -> Merging:
        return self.write.statements.merging

    def bases(self, statements: Sequence[Statement], first: int = 0) -> tuple[StagedBase, ...]:
        if not statements:
            return ()
        rows = self._settled(statements)
        groups = list(by_group(rows))
        threads = max(1, THREADS // max(1, len(groups)))
        firsts = [first + sum(len(positions) for _, positions in groups[:i]) for i in range(len(groups))]

        def stage(item: tuple[int, tuple[Group, pl.Series]]) -> StagedBase:
            first, ((partition, bucket), positions) = item
            order = sorted_keys(rows, positions)
            numbers = pl.int_range(first, first + len(order)).cast(pl.String)
            requested = self.write.begun.requested
            writer = 0 if self.write.task is None else self.write.task + 1
            frame = rows[order].with_columns(
                pl.lit(requested).alias(COMMIT_TIME), (pl.lit(f"{requested}_{writer}_") + numbers).alias(SEQUENCE)
            )
            file_id = self.write.file_ids.of(partition, bucket)
            path, size, count = self._put(partition, file_id, frame, threads)
            return StagedBase(path, (partition, file_id), size, count)

        return tuple(in_threads(stage, list(zip(firsts, groups, strict=True))))

    def empty(self) -> tuple[str, int]:
        """Return a base file without rows, usable by any file group."""
        path, size, _ = self._put("", "", pl.DataFrame(schema={**_META, **self.merging.columns.stored}), 1)
        return path, size

    def _put(self, partition: str, file_name: str, rows: pl.DataFrame, threads: int) -> tuple[str, int, int]:
        write = self.write
        path = f"{STAGED}/{write.begun.requested}-{write.session.environment.nonce()}"
        bare = {name for name in self.merging.rule.hidden if rows[name].null_count() == rows.height}
        schema = self.merging.schema.select(n for n in self.merging.schema.declared.names if n not in bare)
        layout = Layout.of(write.value.properties)
        ids = field_ids(write.session.known_tail().schema)
        content, statistics = base_file(
            write.session.config, partition, file_name, [rows], schema, ids, threads, layout
        )
        write.expect_staged(path)
        size, _ = put_chunks(write.session.store, path, content)
        return path, size, statistics.rows

    def _settled(self, statements: Sequence[Statement]) -> pl.DataFrame:
        rule, columns = self.merging.rule, self.merging.columns
        parts = precombine(statements, rule).rows
        if rule.has_orders:
            return as_base_rows(parts, rule, columns, self.write.begun.requested, BUCKET)
        rows = pl.concat([shown_rows(states, self.merging) for _, states, _ in parts])
        return rule.settle(rows, seen=True) if rule.kind == "columns" else rows
