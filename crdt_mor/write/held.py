"""Check statements against the declaration of their write, and check ordering values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.late_imports import pc
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.overwrite import Scope


def hold_rows(declared: Declared, rows: pa.Table, keys: Mapping[str, Any], config: TableConfig) -> None:
    if declared.partitions is not None:
        hold_partitions(declared, keys[PARTITION_PATH].unique().to_pylist())
    if declared.keys is not None:
        hold_keys(declared, keys[RECORD_KEY].to_pylist())
    key = config.key
    allowed = {*(declared.columns or ()), *key.identity, *key.partition_columns}
    others = [] if declared.columns is None else [name for name in rows.column_names if name not in allowed]
    if others:
        raise _outside("columns", others, declared.columns or ())


def hold_deletes(declared: Declared, partitions: Iterable[str], record_keys: Iterable[str]) -> None:
    """Raise if deletes exceed the declaration; a delete touches all columns."""
    if declared.columns is not None:
        raise InvalidInputError(
            "this write declared its columns, and a delete touches all columns: delete in another write, or declare "
            f"only partitions. columns={list(declared.columns)}"
        )
    hold_partitions(declared, partitions)
    hold_keys(declared, record_keys)


def hold_scope(declared: Declared, scope: Scope) -> None:
    if declared == ANYTHING:
        return
    if declared.columns is not None or declared.keys is not None or scope.partitions is None:
        raise InvalidInputError(
            "this overwrite replaces more than its write declared: omit the declaration. "
            f"partitions={declared.partitions} columns={declared.columns}"
        )
    hold_partitions(declared, scope.partitions)


def hold_partitions(declared: Declared, partitions: Iterable[str]) -> None:
    outside = declared.outside(partitions)
    if outside:
        raise _outside("partitions", outside, declared.partitions or ())


def hold_keys(declared: Declared, record_keys: Iterable[str]) -> None:
    outside = declared.outside_keys(record_keys)
    if outside:
        raise InvalidInputError(
            "this statement writes rows of other keys than its condition allows, and later updates rely on the "
            f"condition: nothing was written. keys={outside[:5]} declared={len(declared.keys or ())}"
        )


def _outside(kind: str, found: Collection[str], declared: Collection[str]) -> InvalidInputError:
    return InvalidInputError(
        f"this write touches {kind} beyond its declaration, and other writers rely on that: declare these as well, "
        f"or omit the declaration. {kind}={list(found)[:5]} declared={list(declared)[:5]}"
    )


def hold_ordering(rows: pa.Table, ordering: str, are_kept: bool) -> None:
    """Raise for ordering values that would always lose or win: null, and NaN unless the table has the row.

    are_kept: the rows are the table's and keep their ordering values.
    """
    values = rows[ordering]
    if values.null_count:
        raise InvalidInputError(f"an ordering value must not be null: it would lose silently. column={ordering!r}")
    if not are_kept and pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        raise InvalidInputError(
            "an ordering value must not be NaN: NaN is the greatest, so no later row would win. Omit such rows, or "
            f"give them a number. column={ordering!r}"
        )
