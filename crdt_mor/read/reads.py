"""Decide which earlier, pending writes a write must wait for, from the rows and columns that it reads.

A pending write's declaration decides:

    none           it may change anything: wait
    partitions     do not wait if no row in them can match the condition
    keys           do not wait if the condition allows none of them
    columns        do not wait if it writes no column that is read or filtered, and either
                       it adds and deletes no row (an update of existing rows), or
                       its new rows, null in all columns not set, cannot match the condition

If a condition cannot be analysed, the write waits: a wrong skip would lose an update.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from crdt_mor.columns.names import STORED, Names
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.errors import CrdtMorError
from crdt_mor.merge.polars_types import polars_columns
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import Declared, key_name
from crdt_mor.read.conditions import checked
from crdt_mor.read.expressions import columns_in, conjuncts
from crdt_mor.read.prune import allowed_keys, few, partitions_left
from crdt_mor.read.trees import with_columns_named


@dataclass(frozen=True, slots=True)
class Reads:
    """Columns of matching rows; None means all."""

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
        """Return a scan's reads in stored names, from user-visible columns and filter.

        An unknown column means everything: a pending write may add it.
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
        """Return True if a write with this declaration may change the rows read."""
        parts = [] if self.condition is None else conjuncts(self.condition)
        if declared.partitions is not None and not partitions_left(declared.partitions, parts, config.key, schema):
            return False
        if declared.keys is not None and not declared.may_share_keys(self.keys(config, schema)):
            return False
        if declared.columns is None or self.columns is None:
            return True
        named = {name for part in parts for name in columns_in(part)}
        if not (self.columns | named).isdisjoint({*declared.columns, *META_COLUMNS}):
            return True
        return not declared.existing and not _rules_out_new(parts, config, schema)

    def keys(self, config: TableConfig, schema: TableSchema) -> frozenset[str] | None:
        """Return the names of the only keys that the condition allows; None for any, or for many."""
        keys = few(allowed_keys(self.condition, config, schema))
        return None if keys is None else frozenset(map(key_name, keys))


EVERYTHING: Final = Reads()


def _rules_out_new(parts: Sequence[pl.Expr], config: TableConfig, schema: TableSchema) -> bool:
    """Return True if the condition excludes new rows, which are null outside the key and partition.

    Payload columns do not count: a payload may show a value for a column never written.
    """
    payloads = {name for merge in config.merge.columns for name in merge.columns}
    given = {*config.key.identity, *META_COLUMNS, *payloads}
    return any(
        _fails_on_null(part, names, schema)
        for part in parts
        if (names := set(columns_in(part))) and names.isdisjoint(given)
    )


def _fails_on_null(part: pl.Expr, names: Collection[str], schema: TableSchema) -> bool:
    """Return True if a condition is false when all its columns are null. Errors count as matches."""
    columns = polars_columns(schema)
    types = {name: columns[name] for name in sorted(names) if name in columns}
    try:
        return pl.DataFrame({name: [None] for name in types}, schema=types).filter(part).is_empty()
    except pl.exceptions.PolarsError:
        return False
