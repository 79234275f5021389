"""Expressions of polars with some of their parts replaced, by way of their JSON.

A column is an object of one key, {"Column": "n"}, and so is a literal: {"Literal": {"Scalar": {"Null": "Null"}}}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

Node = Any
"""A part of an expression's JSON."""

Replace = Callable[[Node], Node | None]
"""Returns the node that stands for a node; None to look inside of it."""

_NULL: Node = json.loads(pl.lit(None).meta.serialize(format="json"))


def with_columns_named(expression: pl.Expr, names: Mapping[str, str]) -> pl.Expr | None:
    """The expression on columns of other names; None for one of which that cannot be said, such as a selector.

    names: the new names by the old ones, of all columns that it may name.
    """
    return _replaced(expression, lambda node: {"Column": names[node["Column"]]} if _is_column(node) else None)


def with_columns_replaced(expression: pl.Expr, parts: Mapping[str, pl.Expr]) -> pl.Expr | None:
    """The expression with other expressions in place of some columns; None where polars cannot say it."""
    trees = {name: tree_of(part) for name, part in parts.items()}
    return _replaced(expression, lambda node: trees.get(node["Column"]) if _is_column(node) else None)


def with_nulls_from(expression: pl.Expr, column: str) -> pl.Expr | None:
    """The expression with a column in place of each null; None where polars cannot say it."""
    return _replaced(expression, lambda node: {"Column": column} if node == _NULL else None)


def _replaced(expression: pl.Expr, replace: Replace) -> pl.Expr | None:
    try:
        return expression_of(mapped(tree_of(expression), replace))
    except (pl.exceptions.PolarsError, ValueError, TypeError, LookupError, RecursionError):
        return None


def tree_of(expression: pl.Expr) -> Node:
    """The JSON of an expression, as Python values."""
    return json.loads(expression.meta.serialize(format="json"))


def expression_of(tree: Node) -> pl.Expr:
    """The way back of `tree_of`; raises polars' errors for a tree that is none or too deep."""
    return pl.Expr.deserialize(json.dumps(tree).encode(), format="json")


def mapped(node: Node, replace: Replace) -> Node:
    """A tree in which some nodes are replaced, the outermost first."""
    if isinstance(node, list):
        return node if node and isinstance(node[0], int) else [mapped(part, replace) for part in node]  # bytes
    if not isinstance(node, dict):
        return node
    if "Selector" in node:
        raise LookupError("what a selector means depends on all columns")
    found = replace(node)
    if found is not None:
        return found
    return {key: part if key == "Literal" else mapped(part, replace) for key, part in node.items()}


def _is_column(node: Node) -> bool:
    return bool(node.keys() == {"Column"})
