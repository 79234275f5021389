"""Call polars' SQL parser, but reject texts that would take it hours.

    CAST(CAST(CAST(n      without AS, the parser reads the argument of CAST again, as function arguments

It reads the innermost of n nested CASTs 2^n times, and inside POSITION 3^n times. Deeply nested texts are rejected,
also valid ones.
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
"""All such words of polars 2.1, found by nesting each of 539 SQL words 24 times."""

_WRITTEN_AGAIN: Final = _READ_AGAIN | {"SPLIT_PART", "STRPOS"}
"""And words with arguments that appear twice in the translation."""

_NESTED_MAX: Final = 10
"""Parsing time doubles or triples with each level: POSITION nested 10 times takes 0.04 s, 12 times 0.4 s."""


def parsed(text: str, tokens: Tokens) -> pl.Expr:
    require_shallow(tokens)
    return pl.sql_expr(text)


def require_shallow(tokens: Tokens) -> None:
    nested = _nested(tokens)
    if nested > _NESTED_MAX:
        raise InvalidInputError(
            "CASE, CAST, NOT, POSITION or similar SQL is nested too deeply: "
            f"split the condition, or use a polars expression. found={nested} supported={_NESTED_MAX}"
        )


def _nested(tokens: Tokens) -> int:
    most, around, before = 0, list[Token](), ""
    for token in tokens:
        while around and _is_over(around[-1], token):
            around.pop()
        # The parser reads the part after ELSE once, so chains of ELSE CASE are not limited here.
        if token.word in _WRITTEN_AGAIN and (before, token.word) != ("ELSE", "CASE"):
            around.append(token)
            most = max(most, len(around))
        before = token.word
    return most


def _is_over(word: Token, token: Token) -> bool:
    """Return True if the word's arguments end before the token."""
    if token.depth != word.depth:
        return token.depth < word.depth
    if word.word in _BEFORE_VALUES:
        return token.word in JOINS
    return token.word not in OPENING and token.word not in CLOSING
