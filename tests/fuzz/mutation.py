"""Hostile inputs made of real ones: a seed gives the same mutants each time.

bytes    bits, numbers at their limits, runs that are cut out, repeated or taken from another seed
lines    the same of a text, and words that mean something to one parser or another
json     a value at some place replaced by a hostile one, left out, doubled, or exchanged for one from elsewhere
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, Literal

Shape = Literal["bytes", "lines", "json"]
Document = Any
Place = tuple[Any, ...]

INTERESTING: Final = (
    0,
    1,
    -1,
    2**7,
    2**8 - 1,
    2**15,
    2**16,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**60,
    2**63 - 1,
    -(2**63),
)
WORDS: Final = (
    "..",
    "../../../etc/passwd",
    "/etc/passwd",
    "%2e%2e%2f",
    "%00",
    "\0",
    "\\",
    "file:///etc/passwd",
    "",
    " ",
    "\n",
    "#",
    "=",
    ":",
    "99999999999999999",
    "00000000000000000",
    "20260101000000001",
    "1970",
    "-1",
    "1e999",
    "NaN",
    "9" * 40,
    "\ud800",
    "é",
    "\u2028",
    "builtins:eval",
    "os:system",
    "9" * 5000,
    "__import__('os')",
    "${x}",
    "{{",
    "[" * 200,
    "(" * 200,
    "'",
    '"',
    "null",
    "true",
    "1.5",
    "٣",
    "_hoodie_record_key",
    ".parquet",
    "deltacommit",
    "AND",
    "NOT",
    "NULL",
    "CASE",
    "SELECT",
    "DATE '2026-01-31'",
    "::",
    "[[[",
    "²",
)
"""Words that mean something to some parser: ways out of a folder, code, limits of numbers, quotes, SQL."""

HOSTILE: Final[tuple[Document, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**30,
    2**63,
    float("inf"),
    float("nan"),
    "",
    "x",
    [],
    {},
    [[]],
    [None],
    {"": None},
    *WORDS[:8],
    "99999999999999999",
    "20260101000000001",
    "\ud800",
    ["a", 1],
    [["a", "b"]],
    "9" * 5000,
)

DEEP: Final = b"[" * 50_000


def mutated(seed: bytes, chance: Random, shape: Shape, others: Sequence[bytes]) -> bytes:
    """One mutant of a seed. others: all the seeds, of which parts may be taken."""
    data = seed
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if shape == "json" and chance.random() < 0.8:
            data = _json(data, chance, others)
        elif shape != "bytes" and chance.random() < 0.7:
            data = _line(data, chance, others)
        else:
            data = chance.choice(_OF_BYTES)(data, chance, others)
    return data


# --- bytes ------------------------------------------------------------------------------------------------------------


def _flip(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([(data[at] if at < len(data) else 0) ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _number(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    size, order = chance.choice((1, 2, 4, 8)), chance.choice(("big", "little"))
    number = (chance.choice(INTERESTING) + chance.randrange(-2, 3)) % (1 << 8 * size)
    at = chance.randrange(len(data) + 1)
    return data[:at] + number.to_bytes(size, "big" if order == "big" else "little") + data[at + size :]


def _run(data: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.choice((1, 2, 4, 8, 16, 64, 256, 4096)))


def _cut(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    start, end = _run(data, chance)
    return data[:start] + data[end:]


def _end(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _repeat(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    start, end = _run(data, chance)
    return data[:end] + data[start:end] * chance.choice((1, 1, 2, 16)) + data[end:]


def _taken(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)
    start, end = _run(other, chance)
    at = chance.randrange(len(data) + 1)
    return data[:at] + other[start:end] + data[at + chance.choice((0, end - start)) :]


def _random(data: bytes, chance: Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(chance.choice((1, 4, 16))) + data[at:]


_OF_BYTES: Final[tuple[Callable[[bytes, Random, Sequence[bytes]], bytes], ...]] = (
    _flip,
    _flip,
    _number,
    _number,
    _cut,
    _end,
    _repeat,
    _taken,
    _random,
)


# --- texts ------------------------------------------------------------------------------------------------------------


def _line(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """A text with a hostile word in it, or a word of another seed."""
    text = data.decode("utf-8", "surrogateescape")
    word = chance.choice(WORDS)
    if chance.random() < 0.4:
        words = chance.choice(others).decode("utf-8", "surrogateescape").split() or [""]
        word = chance.choice(words)
    start, end = _run(data, chance)
    start, end = min(start, len(text)), min(end, len(text))
    kept = text[end:] if chance.random() < 0.5 else text[start:]
    return (text[:start] + word + kept).encode("utf-8", "surrogatepass" if _has_halves(word) else "surrogateescape")


def _has_halves(word: str) -> bool:
    return any("\ud800" <= char <= "\udbff" for char in word)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """A document, or the first line of one, with another value somewhere; of what is no JSON, other bytes."""
    line, newline, rest = data.partition(b"\n")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return chance.choice(_OF_BYTES)(data, chance, others)
    if chance.random() < 0.01:
        return DEEP + newline + rest
    places = list(_places(document))
    place = chance.choice(places)
    value = chance.choice(HOSTILE) if chance.random() < 0.7 else _at(document, chance.choice(places))
    way = chance.random()
    if place and way < 0.15:
        found = _left_out(document, place)
    elif place and way < 0.25:
        found = _doubled(document, place, value)
    else:
        found = _replaced(document, place, value)
    return json.dumps(found, separators=(",", ":")).encode() + newline + rest


def _places(found: Document, above: Place = ()) -> Iterator[Place]:
    """The way to every value of a document."""
    yield above
    inner = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for name, value in inner:
        yield from _places(value, (*above, name))


def _at(document: Document, place: Place) -> Document:
    for step in place:
        document = document[step]
    return document


def _replaced(found: Document, place: Place, value: Document) -> Document:
    if not place:
        return value
    copy = found.copy()
    copy[place[0]] = _replaced(found[place[0]], place[1:], value)
    return copy


def _left_out(document: Document, place: Place) -> Document:
    kept = _at(document, place[:-1]).copy()
    del kept[place[-1]]
    return _replaced(document, place[:-1], kept)


def _doubled(document: Document, place: Place, value: Document) -> Document:
    above = _at(document, place[:-1]).copy()
    if isinstance(above, list):
        above.insert(place[-1], value)
    else:
        above[f"{place[-1]}_"] = value
    return _replaced(document, place[:-1], above)
