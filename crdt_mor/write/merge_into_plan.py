"""The description of a `MERGE INTO`: a source, the matching columns and the clauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import and_
from typing import Final, Literal

import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.polars_types import polars_frame
from crdt_mor.read.expressions import joined

MATCHED: Final = "matched"
"""Boolean: the pair has both rows."""

Kind = Literal["matched", "only in source", "only in target"]
Action = Literal["update", "delete", "insert"]

ROW: Final = "_crdt_row"
"""The number of the table's row, or null."""

HIT: Final = "_crdt_hit"
"""Boolean: the pair has a row of the source."""


@dataclass(frozen=True, slots=True)
class Clause:
    """The action for pairs of a kind with a true condition.

    given: new values by column name; None: all columns of the source. condition: None: always.
    """

    kind: Kind
    action: Action
    given: Mapping[str, object] | None = None
    condition: pl.Expr | str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A source, its matching columns, and the clauses in order.

    on: pairs of a source and a table column that are equal in matching rows.
    aliases: the clauses' names for source and table. is_move: built by `Table.move`, without clauses of the user.
    """

    source: pa.Table
    on: tuple[tuple[str, str], ...]
    aliases: tuple[str, str] = ("source", "target")
    clauses: tuple[Clause, ...] = ()
    is_move: bool = False

    @property
    def reads_all(self) -> bool:
        """Return True if a clause concerns rows of the table without a match."""
        return any(clause.kind == "only in target" for clause in self.clauses)

    def meets(self, schema: TableSchema) -> pl.Expr:
        keys = polars_frame(self.source_keys(schema))
        conditions = [pl.col(column).is_in(keys[column].drop_nulls().unique().implode()) for _, column in self.on]
        return joined(conditions, and_)

    def stored_keys(self, schema: TableSchema) -> pa.Table:
        return self._nullable_keys(schema)[1]

    def source_keys(self, schema: TableSchema) -> pa.Table:
        types, keys = self._nullable_keys(schema)
        return types.restore(keys)

    def _nullable_keys(self, schema: TableSchema) -> tuple[TableSchema, pa.Table]:
        """Return the matching columns as nullable, and the source's values in stored types."""
        given = pa.table({column: self.source[name] for name, column in self.on})
        unknown = [name for name in given.column_names if name not in schema]
        if unknown:
            raise InvalidInputError(
                "the table lacks columns of `on`: name existing ones, on=..."
                f"{schema.meant(unknown)}. unknown={unknown} known={schema.declared.names}"
            )
        columns = schema.select(given.column_names).declared
        types = TableSchema(pa.schema([column.with_nullable(True) for column in columns]))
        return types, types.normalise(given)

    def joined(self, target: pa.Table, schema: TableSchema) -> pl.DataFrame:
        """Return all pairs: two structs, null if missing, and the target's row number."""
        source, table = self.aliases
        columns = {column: f"_crdt_on_{number}" for number, (_, column) in enumerate(self.on)}
        given, rows = polars_frame(self.source), polars_frame(target)
        keys = polars_frame(self.source_keys(schema))
        left = keys.rename(columns).with_columns(given.to_struct(source), pl.lit(True).alias(HIT))
        right = rows.select([*columns]).rename(columns).with_columns(rows.to_struct(table)).with_row_index(ROW)
        both = left.join(
            right, on=[*columns.values()], how="full", coalesce=True, nulls_equal=False, maintain_order="left_right"
        )
        hit = pl.col(HIT).is_not_null()
        return both.select(source, table, ROW, hit, (hit & pl.col(ROW).is_not_null()).alias(MATCHED))
