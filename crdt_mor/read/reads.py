"""What a write reads, and so for which of the writes that came before it, and are still under way, it waits.

    where the write said nothing at its begin     it may touch anything
    partitions    it touches none whose rows can meet the condition
    columns       it touches none that is read, nor that the condition names, and then either
                    no row comes or goes by it, as an update sets columns of rows that are there, or
                    a row that comes by it does not meet the condition, as it is null in all that was not set

Two conditions that are not understood meet, since a wrong answer here is a lost update.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from crdt_mor.columns.names import STORED, Names
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.errors import CrdtMorError
from crdt_mor.merge.polars_types import polars_schema
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import Declared
from crdt_mor.read.conditions import checked
from crdt_mor.read.expressions import columns_in, conjuncts
from crdt_mor.read.prune import partitions_left
from crdt_mor.read.trees import with_columns_named


@dataclass(frozen=True, slots=True)
class Reads:
    """Some columns of the rows for which a condition holds. columns: None: all; condition: None: of all rows."""

    columns: frozenset[str] | None = None
    condition: pl.Expr | None = None

    @classmethod
    def of(
        cls,
        columns: str | Sequence[str] | None,
        filter: pl.Expr | str | None,
        schema: TableSchema,
        names: Names = STORED,
    ) -> Reads:
        """What a scan reads; everything where the table has no such columns, which a write under way may bring.

        columns, filter: under the names that people see. schema: stored; so is what comes out.
        """
        try:
            condition = None if filter is None else checked(filter, names.outward(schema))
        except CrdtMorError:
            return EVERYTHING
        given = [columns] if isinstance(columns, str) else columns
        if names.are_stored:
            return cls(None if given is None else frozenset(given), condition)
        known = names.by_shown(schema.declared.names) | {name: name for name in META_COLUMNS}
        inside = None if condition is None else with_columns_named(condition, known)
        if (inside is None) != (condition is None) or not known.keys() >= {*(given or ())}:
            return EVERYTHING
        return cls(None if given is None else frozenset(known[name] for name in given), inside)

    def may_meet(self, declared: Declared, config: TableConfig, schema: TableSchema) -> bool:
        """Whether a write that keeps to a declaration may touch what is read."""
        parts = [] if self.condition is None else conjuncts(self.condition)
        if declared.partitions is not None and not partitions_left(declared.partitions, parts, config.key, schema):
            return False
        if declared.columns is None or self.columns is None:
            return True
        named = {name for part in parts for name in columns_in(part)}
        if not (self.columns | named).isdisjoint({*declared.columns, *META_COLUMNS}):
            return True
        return not declared.existing and not _rules_out_new(parts, config, schema)


EVERYTHING: Final = Reads()


def _rules_out_new(parts: Sequence[pl.Expr], config: TableConfig, schema: TableSchema) -> bool:
    """Whether a condition does not hold for rows that are null in all columns but key, partition and columns not named.

    A payload may show something else than null of a column that was never written.
    """
    payloads = {name for merge in config.merge.columns for name in merge.columns}
    given = {*config.key.fields, *config.key.partition_fields, *META_COLUMNS, *payloads}
    return any(
        _fails_on_null(part, names, schema)
        for part in parts
        if (names := set(columns_in(part))) and names.isdisjoint(given)
    )


def _fails_on_null(part: pl.Expr, names: Collection[str], schema: TableSchema) -> bool:
    """Whether a condition does not hold where all columns that it names are null. One that fails on them may hold."""
    types = polars_schema(schema.select(sorted(names)).declared)
    try:
        return pl.DataFrame({name: [None] for name in types}, schema=types).filter(part).is_empty()
    except pl.exceptions.PolarsError:
        return False
