"""Split an SQL condition into tokens, as far as needed to find its comparisons."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

_LITERAL: Final = r"(?:-?\d[\d.]*+|'(?!\d{4}-)[^']*+(?:''[^']*+)*+')"
"""A number or a text in an IN list. Texts that look like a date or timestamp do not match."""

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
OPENING: Final = frozenset("([{")
CLOSING: Final = frozenset([*")]}", "END"])
COMPARISONS: Final = frozenset(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
PREDICATES: Final = COMPARISONS | frozenset(
    ["IS", "IN", "NOT", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "SIMILAR", "ANY", "ALL", "SOME"]
)
ENDING: Final = frozenset([",", "WHEN", "THEN", "ELSE"])
"""Ends of a condition inside a function or a CASE."""
JOINS: Final = ENDING | {"AND", "OR", "XOR"}
_UNKNOWN: Final = frozenset("'\"`$\\;")
"""A token of one of these signs means unknown or unclosed quotes."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word (in upper case if bare), a sign or a list of literals. `depth` counts the brackets and CASE … END
    around it.
    """

    kind: Literal["string", "escaped", "name", "word", "number", "literals", "sign"]
    text: str
    start: int
    end: int
    depth: int

    @property
    def word(self) -> str:
        """The word or sign; empty for others, also quoted names."""
        return self.text if self.kind in ("word", "sign") else ""


Tokens = Sequence[Token]


def tokens_of(text: str) -> list[Token] | None:
    """Return a condition's tokens; None for unclosed quotes."""
    found, depth, at = list[Token](), 0, 0
    while at < len(text):
        listed = _LITERALS.match(text, at) if found and found[-1].word == "IN" else None
        match = listed or _TOKEN.match(text, at)
        assert match is not None  # every sign is a token
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
    """Return each token's word or sign; empty inside inner brackets."""
    depth = tokens[0].depth if tokens else 0
    return [token.word if token.depth == depth else "" for token in tokens]


def cut(tokens: Tokens, places: Collection[int]) -> list[Tokens]:
    edges = [-1, *sorted(places), len(tokens)]
    return [tokens[first + 1 : last] for first, last in pairwise(edges)]


def parted(tokens: Tokens, word: str) -> list[Tokens]:
    """Split the tokens at a word, but not at the AND of a BETWEEN."""
    places, between = list[int](), 0
    for index, found in enumerate(own_words(tokens)):
        between += found == "BETWEEN"
        if found == word and word == "AND" and between:
            between -= 1
        elif found == word:
            places.append(index)
    return cut(tokens, places)


def in_brackets(tokens: Tokens) -> Tokens | None:
    if len(tokens) < 3 or tokens[0].text != "(" or tokens[-1].text != ")":
        return None
    inner = tokens[1:-1]
    return inner if all(token.depth > tokens[0].depth for token in inner) else None
