"""Plans for `Table.move`: find rows by key in any partition and move them to another."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

import polars as pl
import pyarrow as pa

from crdt_mor.api.statements import key_rows
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.model.config import TableConfig
from crdt_mor.write.merge_into_plan import Clause, MergePlan


def keys_to_move(keys: object, config: TableConfig, schema: TableSchema) -> pa.Table:
    fields = config.key.fields
    repeated = key_rows(keys, fields, schema.declared).group_by(fields, use_threads=False)
    return repeated.aggregate([([], "count_all")]).select(fields)


def move_plan(keys: pa.Table, partition: object, config: TableConfig, schema: TableSchema) -> MergePlan:
    """Return the merge that moves rows of these keys to a partition; rows already there are left alone."""
    new = {name: _literal(value) for name, value in _values(partition, config, schema).items()}
    differs = [pl.col("target").struct.field(name).ne_missing(value) for name, value in new.items()]
    clause = Clause("matched", "update", new, reduce(or_, differs))
    return MergePlan(keys, tuple((name, name) for name in config.key.fields), clauses=(clause,), is_move=True)


def _literal(value: pa.Scalar) -> pl.Expr:
    values = pl.Series(pl.from_arrow(pa.repeat(value, 1)))
    return pl.lit(values[0], values.dtype)


def _values(partition: object, config: TableConfig, schema: TableSchema) -> dict[str, pa.Scalar]:
    movable = [name for name in config.key.partition_fields if name not in config.key.fields]
    if not movable:
        raise InvalidInputError(
            "rows of this table cannot move: all its partition columns, if any, belong to the key. "
            "Delete the row and upsert it with another key. "
            f"key={list(config.key.fields)} partition_by={[*map(str, config.key.partition_by)]}"
        )
    if not isinstance(partition, Mapping) or not partition or not set(partition) <= set(movable):
        raise InvalidInputError(
            f"pass the new partition by its columns outside the key: "
            f'partition={{"{movable[0]}": …}}. partition={partition!r} columns={movable}'
        )
    return {name: _value(value, schema.stored.field(name)) for name, value in partition.items()}


def _value(value: object, column: pa.Field) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"a partition value must fit its column's type. column={column.name} type={column.type} value={value!r}"
        ) from error
