"""Rewrite SQL text that polars would evaluate unlike other engines.

    coalesce(b IS TRUE, FALSE)      `null IS TRUE` is null in polars and false in SQL
    CASE WHEN v = 1 IS UNKNOWN …    polars has no UNKNOWN

A truth test becomes `<=>`, which is never null, with its left side in brackets. The left side begins after AND, OR,
NOT, a comma, an open bracket or a word of CASE.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.sql_names import quoted
from crdt_mor.read.sql_parts import Part
from crdt_mor.read.sql_tokens import COMPARISONS, ENDING, JOINS, OPENING, PREDICATES, Tokens

_TESTS = {
    ("TRUE",): "<=> TRUE",
    ("FALSE",): "<=> FALSE",
    ("UNKNOWN",): "IS NULL",
    ("NOT", "TRUE"): "<=> TRUE <=> FALSE",
    ("NOT", "FALSE"): "<=> FALSE <=> FALSE",
    ("NOT", "UNKNOWN"): "IS NOT NULL",
}


def written(text: str, tokens: Tokens, columns: Collection[str], parts: Mapping[str, Part]) -> str:
    """Return the text of tokens for polars; `parts` have the names of their columns."""
    return "".join(_pieces(text, tokens, columns, parts))


def _pieces(text: str, tokens: Tokens, columns: Collection[str], parts: Mapping[str, Part]) -> Iterator[str]:
    """Yield pieces of the text, with quotes where a column is named like a function."""
    named = {part.first: quoted(name) for name, part in parts.items()}
    inside = {part.first + number: "" for part in parts.values() for number in range(part.size)}
    opened, tested = defaultdict[int, int](int), dict[int, str]()
    for start, at, size in _truth_tests(text, tokens, inside):
        opened[start] += 1
        tested[at] = f") AS BOOLEAN) {_TESTS[_words(tokens, at + 1, size)]})"
        tested |= dict.fromkeys(range(at + 1, at + 1 + size), "")
    changed = tested | inside | named
    done = tokens[0].start
    for index, token in enumerate(tokens):
        name = text[token.start : token.end]
        own = quoted(name) if token.word == "USER" and name in columns else name
        yield f"{text[done : token.start]}{'(CAST((' * opened[index]}{changed.get(index, own)}"
        done = token.end


def _truth_tests(text: str, tokens: Tokens, inside: Collection[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each truth test's begin of the left side, position and number of words, outside of parts."""
    starts, between = defaultdict[int, int](int), defaultdict[int, int](int)
    for at, token in enumerate(tokens):
        depth, word = token.depth, token.word
        if word in OPENING or word == "CASE":
            starts[depth + 1], between[depth + 1] = at + 1, 0
        elif word == "BETWEEN":
            between[depth] += 1
        elif word == "AND" and between[depth]:
            between[depth] -= 1
        elif word in JOINS:
            starts[depth], between[depth] = at + 1, 0
        elif word == "NOT" and (starts[depth] == at or tokens[at - 1].word in COMPARISONS):
            starts[depth] = at + 1
        elif word == "IS" and at not in inside:
            _refuse_misread(tokens[at:], text)
            size = next((size for size in (1, 2) if _words(tokens, at + 1, size) in _TESTS), 0)
            if size and starts[depth] < at:
                yield starts[depth], at, size


def _words(tokens: Tokens, at: int, size: int) -> tuple[str, ...]:
    return tuple(token.word for token in tokens[at : at + size])


def _refuse_misread(tokens: Tokens, text: str) -> None:
    if "DISTINCT" not in _words(tokens, 1, 2):
        return
    depth = tokens[0].depth
    left = takewhile(lambda t: t.depth > depth or (t.depth == depth and t.word not in ENDING), tokens[1:])
    here = [token.word for token in left if token.depth == depth]
    if "DISTINCT" in here[:2] and not (PREDICATES | {"AND", "OR"}).isdisjoint(here[here.index("DISTINCT") :]):
        raise InvalidInputError(
            "polars reads IS DISTINCT FROM inside a function, a CASE or a comparison past AND, OR and comparisons: "
            f"put brackets around it. filter={text}"
        )
