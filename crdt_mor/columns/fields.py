"""Names of struct fields: user-visible, and in files.

A field's file name is computed from its visible name, so all files and writers agree, and it cannot change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from crdt_mor.errors import InvalidInputError

NAME_MAX: Final = 255

_BASE_MAX: Final = 40
_DIGITS: Final = 8


def is_stored_name(name: str) -> bool:
    """Return True if Avro, Hudi's schema format, allows the name."""
    return name.isascii() and name.isidentifier()


def is_shown_name(name: str) -> bool:
    return bool(name.strip()) and len(name) <= NAME_MAX and name.isprintable()


def refuse_unseen(name: str, what: str, where: str) -> None:
    if not is_shown_name(name):
        raise InvalidInputError(
            f"{what}'s name must have at most {NAME_MAX} printable characters: choose another. {where}={name!r}"
        )
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise InvalidInputError(
            f"{what}'s name must not be * or begin with ^ and end with $, which are patterns in polars: choose "
            f"another. {where}={name!r}"
        )


def made_name(shown: str, attempt: int = 0) -> str:
    """Derive a valid Avro name from an invalid or taken name."""
    base = re.sub(r"[^A-Za-z0-9]+", "_", shown).strip("_")[:_BASE_MAX]
    base = base if base[:1].isalpha() else f"c_{base}".rstrip("_")
    return f"{base}_{hashlib.sha256(f'{attempt}:{shown}'.encode()).hexdigest()[:_DIGITS]}"


def stored_field(shown: str) -> str:
    return shown if is_stored_name(shown) else made_name(shown)


def check_fields(names: Sequence[str], column: str) -> None:
    if len(set(names)) < len(names):
        raise InvalidInputError(f"a struct repeats a field name: rename a field. column={column} fields={[*names]}")
    for name in names:
        refuse_unseen(name, "a field", f"column={column} field")
    stored_fields(names, column)


def stored_fields(names: Sequence[str], column: str) -> list[str]:
    """Return the file names of a struct's fields; raise if two are equal."""
    stored = [*map(stored_field, names)]
    if len(set(stored)) < len(stored):
        twice = [name for name, own in zip(names, stored, strict=True) if stored.count(own) > 1]
        raise InvalidInputError(
            f"two fields of a struct would get the same name in files: rename a field. {column=} fields={twice}"
        )
    return stored
