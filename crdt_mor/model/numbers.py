"""Whole numbers as texts and documents of others have them: of 64 bits with a sign, as all that is on storage."""

from __future__ import annotations

from typing import Final

BITS: Final = 63
"""How many bits a number on storage has at most, besides its sign: Java and Arrow have no more."""

_DIGITS_MAX: Final = 18
"""Digits of which every number has as many bits. Of thousands of digits Python makes no number at all."""

_PADDED_MAX: Final = 20
"""Digits of a version in the name of an object, noughts in front of it among them."""


def is_whole(value: object) -> bool:
    """Whether a value is a number that storage has room for; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= BITS


def whole_number(text: str) -> int | None:
    """The number that a text is, in plain digits and nothing else; None for any other text."""
    plain = text.isascii() and text.isdigit() and len(text) <= _PADDED_MAX
    return int(text) if plain and len(text.lstrip("0")) <= _DIGITS_MAX else None
