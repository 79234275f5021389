"""Convert times of day in SQL values to text like 12:30:00.5; polars writes only whole seconds."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.trees import Node, expression_of, mapped, tree_of


def with_whole_times(expression: pl.Expr, type_of: Callable[[pl.Expr], pl.DataType]) -> pl.Expr:
    def whole(node: Node) -> Node | None:
        match node:
            case {"Cast": {"expr": inner, "dtype": {"Literal": "String" | {"List": "String"}}} as cast}:
                return {"Cast": cast | {"expr": as_text(inner)}}
            case {"Function": {"input": inner, "function": {"StringExpr": {"ConcatHorizontal": _}}} as call}:
                return {"Function": call | {"input": [as_text(part) for part in inner]}}
        return None

    def as_text(node: Node) -> Node:
        inner = mapped(node, whole)
        value = expression_of(inner)
        match type_of(value):
            case pl.Time():
                return tree_of(_text(value))
            case pl.List(inner=kind) if kind == pl.Time:
                return tree_of(value.list.eval(_text(pl.element())))
        return inner

    tree = tree_of(expression)
    try:
        made = mapped(tree, whole)
        return expression if made == tree else expression_of(made)
    except (pl.exceptions.ComputeError, RecursionError) as error:
        raise InvalidInputError(
            "this SQL with a time of day is nested too deeply: shorten it, or use a polars expression"
        ) from error


def _text(time: pl.Expr) -> pl.Expr:
    return time.dt.to_string("%H:%M:%S.%6f").str.strip_chars_end("0").str.strip_chars_end(".")
