"""The words of an SQL condition, as far as it takes to find the comparisons in it.

A token keeps its place in the text, so that what is not understood goes to polars as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

_LITERAL: Final = r"(?:-?\d[\d.]*+|'(?!\d{4}-)[^']*+(?:''[^']*+)*+')"
"""A number, or a text that is no date and no moment, in a list of such."""

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<escaped>[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*')
    |(?P<string>'[^']*(?:''[^']*)*')
    |(?P<name>"(?:[^"]|"")*"|`[^`]*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<sign>::|<=>|->>|->|=>|@>|<@|<<|>>|!~~?\*?|~~?\*?|<=|>=|<>|!=|==|\|\||&&|//|.)""",
    re.VERBOSE | re.DOTALL,
)

_LITERALS: Final = re.compile(rf"\((?:\s*+{_LITERAL}\s*+,)++\s*+{_LITERAL}\s*+\)")
"""What may follow IN as one token."""

OPENING: Final = frozenset("([{")
CLOSING: Final = frozenset([*")]}", "END"])
COMPARISONS: Final = frozenset(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
PREDICATES: Final = COMPARISONS | frozenset(
    ["IS", "IN", "NOT", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "SIMILAR", "ANY", "ALL", "SOME"]
)
"""Words and signs that make a predicate."""
ENDING: Final = frozenset([",", "WHEN", "THEN", "ELSE"])
"""What ends a condition inside of a function or a CASE."""
JOINS: Final = ENDING | {"AND", "OR", "XOR"}
_UNKNOWN: Final = frozenset("'\"`$\\;")
"""Signs that stand alone only where the text is quoted in a way that is not known here, or not to its end."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a sign or a whole list of literals: its kind, its text, a bare word in capital letters, and its place.

    depth: in how many brackets, and in how many CASE … END, it stands.
    """

    kind: Literal["string", "escaped", "name", "word", "number", "literals", "sign"]
    text: str
    start: int
    end: int
    depth: int

    @property
    def word(self) -> str:
        """The word or the sign; nothing for a name in quotes, a text, a number or a list."""
        return self.text if self.kind in ("word", "sign") else ""


Tokens = Sequence[Token]


def tokens_of(text: str) -> list[Token] | None:
    """The tokens of a condition; None where it is quoted in a way that is not known here."""
    found, depth, at = list[Token](), 0, 0
    while at < len(text):
        listed = _LITERALS.match(text, at) if found and found[-1].word == "IN" else None
        match = listed or _TOKEN.match(text, at)
        assert match is not None  # any sign is a token
        kind: Any = "literals" if listed else match.lastgroup
        word, at = match[0], match.end()
        if kind == "space":
            continue
        word = word.upper() if kind == "word" else word
        depth -= kind in ("word", "sign") and word in CLOSING
        found.append(Token(kind, word, *match.span(), depth))
        depth += word in OPENING or (kind == "word" and word == "CASE")
    return None if any(token.kind == "sign" and token.text in _UNKNOWN for token in found) else found


def own_words(tokens: Tokens) -> list[str]:
    """For each token its word or sign; nothing where it stands in brackets that are not around all of the tokens."""
    depth = tokens[0].depth if tokens else 0
    return [token.word if token.depth == depth else "" for token in tokens]


def cut(tokens: Tokens, places: Collection[int]) -> list[Tokens]:
    """The tokens between those at some places."""
    edges = [-1, *sorted(places), len(tokens)]
    return [tokens[first + 1 : last] for first, last in pairwise(edges)]


def parted(tokens: Tokens, word: str) -> list[Tokens]:
    """The tokens between the words of a kind, but for the AND of a BETWEEN."""
    places, between = list[int](), 0
    for index, found in enumerate(own_words(tokens)):
        between += found == "BETWEEN"
        if found == word and word == "AND" and between:
            between -= 1
        elif found == word:
            places.append(index)
    return cut(tokens, places)


def in_brackets(tokens: Tokens) -> Tokens | None:
    """What is between two round brackets that enclose all of the tokens; None where there are no such."""
    if len(tokens) < 3 or tokens[0].text != "(" or tokens[-1].text != ")":
        return None
    inner = tokens[1:-1]
    return inner if all(token.depth > tokens[0].depth for token in inner) else None
