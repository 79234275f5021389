"""Plans for `Table.move`: find rows by key in any partition and move them to another."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

import polars as pl
import pyarrow as pa

from crdt_mor.api.statements import key_rows
from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.types import values_of
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.merge.polars_types import polars_frame
from crdt_mor.model.config import TableConfig
from crdt_mor.write.merge_into_plan import Clause, MergePlan


def keys_to_move(keys: object, config: TableConfig, schema: TableSchema) -> pa.Table:
    fields = config.key.fields
    repeated = key_rows(keys, fields, schema.declared).group_by(fields, use_threads=False)
    return repeated.aggregate([([], "count_all")]).select(fields)


def move_plan(keys: pa.Table, partition: object, config: TableConfig, schema: TableSchema) -> MergePlan:
    """Return the merge that moves rows of these keys to a partition; rows already there are left alone."""
    values = polars_frame(schema.restore(_values(partition, config, schema)))
    new = {name: pl.lit(values[name][0], values.schema[name]) for name in values.columns}
    differs = [pl.col("target").struct.field(name).ne_missing(value) for name, value in new.items()]
    clause = Clause("matched", "update", new, reduce(or_, differs))
    return MergePlan(keys, tuple((name, name) for name in config.key.fields), clauses=(clause,), is_move=True)


def _values(partition: object, config: TableConfig, schema: TableSchema) -> pa.Table:
    """Return the new values as a row in stored types."""
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
    return pa.table({name: _value(value, name, schema) for name, value in partition.items()})


def _value(value: object, name: str, schema: TableSchema) -> pa.ChunkedArray:
    """Return a value in stored form. A text is parsed."""
    kind = values_of(schema.declared.field(name).type)
    try:
        texts = pa.array([value], pa.string()) if isinstance(value, str) else None
        given = pa.array([value]) if texts is None else kind_of(kind).from_texts(texts, kind)
        return schema.normalise(pa.table({name: given}))[name]
    except (CrdtMorError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"a partition value must fit its column's type. column={name} type={kind} value={value!r}"
        ) from error
