"""The columns that expressions may name. Each expression gets only its own of perhaps thousands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl

from crdt_mor.read.expressions import columns_in
from crdt_mor.read.operations import aliased, column, field_of, tree_of
from crdt_mor.read.trees import Node, expression_of, mapped

_FIELD: Final = "_crdt_field_"
"""Prefix of columns that stand for the field of a struct."""


@dataclass(frozen=True)
class Inputs:
    """The columns of rows, or of no rows for the types of expressions."""

    frame: pl.DataFrame

    @classmethod
    def of_types(cls, columns: pl.Schema) -> Inputs:
        return cls(pl.DataFrame(schema=columns))

    @cached_property
    def columns(self) -> pl.Schema:
        return self.frame.schema

    @cached_property
    def have_times(self) -> bool:
        """True if a column is or contains a time of day."""
        return any("Time" in str(kind) for kind in self.columns.values())

    @cached_property
    def _structs(self) -> Mapping[str, Mapping[str, pl.Series]]:
        structs = [name for name, kind in self.columns.items() if isinstance(kind, pl.Struct)]
        return {name: {field.name: field for field in self.frame[name].struct.unnest()} for name in structs}

    def narrowed(self, expression: pl.Expr) -> tuple[pl.Expr, pl.DataFrame]:
        """Return an expression with columns instead of fields of structs, and these columns of the rows."""
        fields = dict[str, pl.Series]()
        if not self._structs.keys().isdisjoint(columns_in(expression)):
            tree = mapped(tree_of(expression), lambda node: self._as_column(node, fields))
            expression = expression if tree is None else expression_of(tree)
        own = [self.frame[name] for name in columns_in(expression) if name not in fields]
        # at least one column, which tells the height
        return expression, pl.DataFrame([*own, *fields.values()] or self.frame.to_series(0).to_frame())

    def _as_column(self, node: Node, fields: dict[str, pl.Series]) -> Node | None:
        struct, field = field_of(node) or ("", "")
        values = self._structs.get(struct, {}).get(field)
        if values is None:
            return None
        name = f"{_FIELD}{struct!r}.{field!r}"
        fields[name] = values.alias(name)
        return aliased(column(name), field)

    def type_of(self, expression: pl.Expr) -> pl.DataType:
        """Return an expression's type; raise polars' error for an invalid one."""
        narrow, frame = self.narrowed(expression)
        return frame.lazy().select(narrow.alias("value")).collect_schema()["value"]
