"""Split a polars expression into its operations, from its JSON.

    (a + b) * 2      "Multiply" with two inputs; the first is "Plus" of the columns a and b

An operation can be applied to other inputs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

_INPUTS: Final[dict[str, tuple[str, ...]]] = {
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Ternary": ("predicate", "truthy", "falsy"),
    "Eval": ("expr",),
    "StructEval": ("expr",),
}
"""JSON fields of an operation's inputs. The expression on elements in an `Eval` is not an input."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an expression.

    Attributes:
        tree: its JSON, an object of one key.
        word: polars' name: "Plus", "Cast", "Ternary", "Coalesce", or "".
        inputs: their trees; empty for columns, literals and unknown operations.
    """

    tree: Any
    word: str
    inputs: tuple[Any, ...]

    @property
    def column(self) -> str | None:
        return self.tree["Column"] if isinstance(self.tree, dict) and self.tree.keys() == {"Column"} else None

    @property
    def is_python(self) -> bool:
        return isinstance(self.tree, dict) and self.tree.keys() == {"AnonymousFunction"}

    def expression(self) -> pl.Expr:
        return pl.Expr.deserialize(json.dumps(self.tree).encode(), format="json")

    def of(self, inputs: Sequence[Any]) -> Operation:
        kind, body = next(iter(self.tree.items()))
        if kind == "Alias":
            return Operation({kind: [inputs[0], *body[1:]]}, self.word, tuple(inputs))
        places = _INPUTS.get(kind)
        changed = {"input": [*inputs]} if places is None else dict(zip(places, inputs, strict=True))
        return Operation({kind: {**body, **changed}}, self.word, tuple(inputs))


def column(name: str) -> Any:
    return {"Column": name}


def aliased(tree: Any, name: str) -> Any:
    return {"Alias": [tree, name]}


def field_of(tree: Any) -> tuple[str, str] | None:
    """Return (struct, field) if a tree is a field of a struct column."""
    match tree:
        case {"Function": {"input": [{"Column": struct}], "function": {"StructExpr": {"FieldByName": field}}}}:
            return struct, field
    return None


def tree_of(expression: pl.Expr) -> Any:
    """Return the tree of an expression, or None if it cannot be serialized, for example if too deep.

    JSON has neither infinity nor NaN, so polars cannot read these back.
    """
    try:
        text = expression.meta.serialize(format="json")
        pl.Expr.deserialize(text.encode(), format="json")
        return json.loads(text)
    except (pl.exceptions.PolarsError, ValueError, TypeError, RecursionError):
        return None


def operation_of(tree: Any) -> Operation:
    if not isinstance(tree, dict) or len(tree) != 1:
        return Operation(tree, "", ())
    kind, body = next(iter(tree.items()))
    if kind == "Alias":
        return Operation(tree, kind, (body[0],))
    if kind in ("Function", "AnonymousFunction") and isinstance(body, dict) and "input" in body:
        return Operation(tree, _word(body.get("function")), tuple(body["input"]))
    if kind in _INPUTS:
        return Operation(tree, body.get("op", kind), tuple(body[place] for place in _INPUTS[kind]))
    return Operation(tree, "", ())


def _word(function: Any) -> str:
    """Return a function's name: from `"Negate"`, `{"Sql": {"Binary": "Mul"}}` or, with lower-case options,
    `{"ReplaceStrict": {"return_dtype": null}}`.
    """
    word = ""
    while isinstance(function, dict) and len(function) == 1 and next(iter(function))[0].isupper():
        [(word, function)] = function.items()
    return function if isinstance(function, str) and word != "FieldByName" else word
