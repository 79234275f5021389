"""polars' parser of SQL, kept from texts that would take it hours.

    CAST(CAST(CAST(n      where AS is missing, what stands behind a CAST is read again, as arguments of a function

So the parser reads the innermost of n such words two to the power of n times, and behind POSITION three to that power.
A text in which more than a few of them stand in each other is refused, also one that polars would understand at once:
which one it is, nobody knows before.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.sql_tokens import CLOSING, JOINS, OPENING, Token, Tokens

_BEFORE_VALUES: Final = frozenset(["NOT", "INTERVAL"])
_READ_AGAIN: Final = _BEFORE_VALUES | {
    "ARRAY", "CASE", "CAST", "CEIL", "CONVERT", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "EXTRACT", "FLOOR",
    "LOCALTIME", "LOCALTIMESTAMP", "OVERLAY", "POSITION", "SAFE_CAST", "SUBSTR", "SUBSTRING", "TRY_CAST", "TRY_CONVERT",
}  # fmt: skip
"""All such words of polars 2.1, by a trial of 539 words of SQL, of each 24 in each other."""

_WRITTEN_AGAIN: Final = _READ_AGAIN | {"SPLIT_PART", "STRPOS"}
"""Others have arguments that stand twice in what is made of them."""

_NESTED_MAX: Final = 10
"""Ten times POSITION take 0.04 s, and twelve 0.4 s; ten of another word take a millisecond, and twenty one second."""


def parsed(text: str, tokens: Tokens) -> pl.Expr:
    """The text of some tokens as an expression; raises what polars does, `InvalidInputError` where it is refused."""
    require_shallow(tokens)
    return pl.sql_expr(text)


def require_shallow(tokens: Tokens) -> None:
    """Raise `InvalidInputError` where words behind which SQL is read again stand in each other too often."""
    nested = _nested(tokens)
    if nested > _NESTED_MAX:
        raise InvalidInputError(
            "CASE, CAST, NOT, POSITION and other words behind which SQL is read again stand in each other too often: "
            f"take the text apart, or write it as a polars expression. found={nested} supported={_NESTED_MAX}"
        )


def _nested(tokens: Tokens) -> int:
    """How many words that are read again stand in each other, at most."""
    most, around, before = 0, list[Token](), ""
    for token in tokens:
        while around and _is_over(around[-1], token):
            around.pop()
        # What follows ELSE is read once, so that a list of cases may be as long as polars takes it.
        if token.word in _WRITTEN_AGAIN and (before, token.word) != ("ELSE", "CASE"):
            around.append(token)
            most = max(most, len(around))
        before = token.word
    return most


def _is_over(word: Token, token: Token) -> bool:
    """Whether what belongs to a word ends before a token behind it."""
    if token.depth != word.depth:
        return token.depth < word.depth
    if word.word in _BEFORE_VALUES:
        return token.word in JOINS
    return token.word not in OPENING and token.word not in CLOSING
