"""The steps that an expression of polars takes, one after the other, as its JSON lists them.

    (a + b) * 2      "Multiply" of two inputs, of which the first is "Plus" of the columns a and b

A step is said without its inputs, so that it can be made of other columns than those of the expression.
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
"""Of some kinds of steps, where their inputs stand. What an `Eval` does to the elements of its input is its own."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A step of an expression. tree: its JSON, an object of one key.

    word: polars' word for what it does: "Plus", "Cast", "Ternary", "Coalesce"; "" where it has none.
    inputs: the trees of what it is made of; none for a column, a literal, and a step that is not known.
    """

    tree: Any
    word: str
    inputs: tuple[Any, ...]

    @property
    def column(self) -> str | None:
        """The name of the column that this is; None: it is none."""
        return self.tree["Column"] if isinstance(self.tree, dict) and self.tree.keys() == {"Column"} else None

    @property
    def is_python(self) -> bool:
        """Whether the step is a function in Python."""
        return isinstance(self.tree, dict) and self.tree.keys() == {"AnonymousFunction"}

    def expression(self) -> pl.Expr:
        """The step with its inputs."""
        return pl.Expr.deserialize(json.dumps(self.tree).encode(), format="json")

    def of(self, inputs: Sequence[Any]) -> Operation:
        """The same step of other inputs."""
        kind, body = next(iter(self.tree.items()))
        if kind == "Alias":
            return Operation({kind: [inputs[0], *body[1:]]}, self.word, tuple(inputs))
        places = _INPUTS.get(kind)
        changed = {"input": [*inputs]} if places is None else dict(zip(places, inputs, strict=True))
        return Operation({kind: {**body, **changed}}, self.word, tuple(inputs))


def column(name: str) -> Any:
    """The tree of a column."""
    return {"Column": name}


def named(tree: Any, step: Operation) -> Any:
    """A tree whose value has the name that the value of a step has."""
    return {"Alias": [tree, step.expression().meta.output_name()]}


def tree_of(expression: pl.Expr) -> Any:
    """The tree of an expression; None for one that cannot be written down, such as one that is very deep.

    JSON has neither infinity nor NaN: an expression with such a number is not read back from what polars writes.
    """
    try:
        text = expression.meta.serialize(format="json")
        pl.Expr.deserialize(text.encode(), format="json")
        return json.loads(text)
    except (pl.exceptions.PolarsError, ValueError, TypeError, RecursionError):
        return None


def operation_of(tree: Any) -> Operation:
    """The last step of an expression."""
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
    """The word of a function, as of `"Negate"`, of `{"Sql": {"Binary": "Mul"}}`, or of one that has options in small
    letters, `{"ReplaceStrict": {"return_dtype": null}}`."""
    word = ""
    while isinstance(function, dict) and len(function) == 1 and next(iter(function))[0].isupper():
        [(word, function)] = function.items()
    return function if isinstance(function, str) else word
