"""Replace parts of polars expressions in their JSON.

A column is an object of one key, {"Column": "n"}; so is a literal, {"Literal": {"Scalar": {"Null": "Null"}}}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

Node = Any

Replace = Callable[[Node], Node | None]
_NULL: Node = json.loads(pl.lit(None).meta.serialize(format="json"))


def with_columns_named(expression: pl.Expr, names: Mapping[str, str]) -> pl.Expr | None:
    """Rename an expression's columns by `names` (new by old); return None if impossible, as for a selector."""
    return _replaced(expression, lambda node: {"Column": names[node["Column"]]} if _is_column(node) else None)


def with_columns_replaced(expression: pl.Expr, parts: Mapping[str, pl.Expr]) -> pl.Expr | None:
    trees = {name: tree_of(part) for name, part in parts.items()}
    return _replaced(expression, lambda node: trees.get(node["Column"]) if _is_column(node) else None)


def with_nulls_from(expression: pl.Expr, column: str) -> pl.Expr | None:
    return _replaced(expression, lambda node: {"Column": column} if node == _NULL else None)


def _replaced(expression: pl.Expr, replace: Replace) -> pl.Expr | None:
    try:
        return expression_of(mapped(tree_of(expression), replace))
    except (pl.exceptions.PolarsError, ValueError, TypeError, LookupError, RecursionError):
        return None


def tree_of(expression: pl.Expr) -> Node:
    return json.loads(expression.meta.serialize(format="json"))


def expression_of(tree: Node) -> pl.Expr:
    """Invert `tree_of`; raise polars' errors for an invalid or too deep tree."""
    return pl.Expr.deserialize(json.dumps(tree).encode(), format="json")


def mapped(node: Node, replace: Replace) -> Node:
    if isinstance(node, list):
        return node if node and isinstance(node[0], int) else [mapped(part, replace) for part in node]  # bytes
    if not isinstance(node, dict):
        return node
    if "Selector" in node:
        raise LookupError("the meaning of a selector depends on all columns")
    found = replace(node)
    if found is not None:
        return found
    return {key: part if key == "Literal" else mapped(part, replace) for key, part in node.items()}


def _is_column(node: Node) -> bool:
    return bool(node.keys() == {"Column"})
