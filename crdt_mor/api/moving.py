"""`Table.move`: rows are found by their keys, in whatever partition they are, and come to another one."""

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
    """Keys as users name them, each once."""
    fields = config.key.fields
    repeated = key_rows(keys, fields, schema.declared).group_by(fields, use_threads=False)
    return repeated.aggregate([([], "count_all")]).select(fields)


def move_plan(keys: pa.Table, partition: object, config: TableConfig, schema: TableSchema) -> MergePlan:
    """The merge by which rows of these keys come to a partition. Rows that are there already are left alone."""
    new = {name: _literal(value) for name, value in _values(partition, config, schema).items()}
    differs = [pl.col("target").struct.field(name).ne_missing(value) for name, value in new.items()]
    clause = Clause("matched", "update", new, reduce(or_, differs))
    return MergePlan(keys, tuple((name, name) for name in config.key.fields), clauses=(clause,), is_move=True)


def _literal(value: pa.Scalar) -> pl.Expr:
    """A value as an expression of its exact type."""
    values = pl.Series(pl.from_arrow(pa.repeat(value, 1)))
    return pl.lit(values[0], values.dtype)


def _values(partition: object, config: TableConfig, schema: TableSchema) -> dict[str, pa.Scalar]:
    """The new values of partition columns, in the table's types."""
    movable = [name for name in config.key.partition_fields if name not in config.key.fields]
    if not movable:
        raise InvalidInputError(
            "rows of this table do not move: it has no partition column that its key does not name. A row under "
            "another key is another row: delete the one, and upsert the other. "
            f"key={list(config.key.fields)} partition_by={list(config.key.partition_fields)}"
        )
    if not isinstance(partition, Mapping) or not partition or not set(partition) <= set(movable):
        raise InvalidInputError(
            f"say where the rows come to by columns of the partition, which the key does not name: "
            f'partition={{"{movable[0]}": …}}. partition={partition!r} columns={movable}'
        )
    return {name: _value(value, schema.stored.field(name)) for name, value in partition.items()}


def _value(value: object, column: pa.Field) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            "a partition is named by values of its columns' types. "
            f"column={column.name} type={column.type} value={value!r}"
        ) from error
