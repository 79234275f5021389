"""How a `MERGE INTO` is described: a source, by which columns its rows meet those of the table, and the clauses."""

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
"""Of a pair: whether it has both rows."""

Kind = Literal["matched", "only in source", "only in target"]
Action = Literal["update", "delete", "insert"]

ROW: Final = "_crdt_row"
"""Of a pair: the number of the table's row; null where there is none."""

HIT: Final = "_crdt_hit"
"""Of a pair: whether it has a row of the source."""


@dataclass(frozen=True, slots=True)
class Clause:
    """What becomes of the pairs of one kind for which a condition holds.

    given: by the name of a column its new value; None: all columns that the source has. condition: None: always.
    """

    kind: Kind
    action: Action
    given: Mapping[str, object] | None = None
    condition: pl.Expr | str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A source, how its rows meet those of the table, and the clauses, in their order.

    on: pairs of a column of the source and one of the table that are equal where rows meet.
    aliases: what the clauses call the source and the table. is_move: whether it is `Table.move`, whose user writes no
        clause.
    """

    source: pa.Table
    on: tuple[tuple[str, str], ...]
    aliases: tuple[str, str] = ("source", "target")
    clauses: tuple[Clause, ...] = ()
    is_move: bool = False

    @property
    def reads_all(self) -> bool:
        """Whether rows of the table are of interest that no row of the source meets."""
        return any(clause.kind == "only in target" for clause in self.clauses)

    def meets(self, schema: TableSchema) -> pl.Expr:
        """A condition on the table's rows that all rows fulfil which a row of the source may meet."""
        keys = polars_frame(self.source_keys(schema))
        conditions = [pl.col(column).is_in(keys[column].drop_nulls().unique().implode()) for _, column in self.on]
        return joined(conditions, and_)

    def stored_keys(self, schema: TableSchema) -> pa.Table:
        """The columns by which rows of the source meet others, under the table's names and in its stored types."""
        return self._nullable_keys(schema)[1]

    def source_keys(self, schema: TableSchema) -> pa.Table:
        """As `stored_keys`, in the types that the table's user declared."""
        types, keys = self._nullable_keys(schema)
        return types.restore(keys)

    def _nullable_keys(self, schema: TableSchema) -> tuple[TableSchema, pa.Table]:
        """The columns by which rows meet, of which each may be null, and those of the source in their stored types."""
        given = pa.table({column: self.source[name] for name, column in self.on})
        unknown = [name for name in given.column_names if name not in schema.declared.names]
        if unknown:
            raise InvalidInputError(
                "the table has no such columns, by which rows of the source are to meet its own: name others, on=..."
                f"{schema.meant(unknown)}. unknown={unknown} known={schema.declared.names}"
            )
        columns = schema.select(given.column_names).declared
        types = TableSchema(pa.schema([column.with_nullable(True) for column in columns]))
        return types, types.normalise(given)

    def joined(self, target: pa.Table, schema: TableSchema) -> pl.DataFrame:
        """Every pair: the two aliases as structs, the one that is missing null; and where the target's row stands."""
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
