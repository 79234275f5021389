"""Whole numbers in texts and documents: signed 64-bit, like all numbers in storage."""

from __future__ import annotations

from typing import Final

BITS: Final = 63
"""Bits of a stored number besides its sign, as in Java and Arrow."""

_DIGITS_MAX: Final = 18
"""Every number with so many digits fits. Python refuses to convert thousands of digits."""

_PADDED_MAX: Final = 20
"""Digits of a version in an object's name, with leading zeros."""


def is_whole(value: object) -> bool:
    """Return True for an int that fits in storage, and False for a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= BITS


def whole_number(text: str) -> int | None:
    """Parse plain decimal digits; None for any other text."""
    plain = text.isascii() and text.isdigit() and len(text) <= _PADDED_MAX
    return int(text) if plain and len(text.lstrip("0")) <= _DIGITS_MAX else None
