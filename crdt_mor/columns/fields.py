"""Names of fields inside of structs: the one that people see, and the one in files.

A field has no name of its own on storage that is kept anywhere: it is made of the name that people see. So files of any
age and of any writer have it under one name, and it cannot change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from crdt_mor.errors import InvalidInputError

NAME_MAX: Final = 255
"""Characters of a name that is shown."""

_BASE_MAX: Final = 40
_DIGITS: Final = 8


def is_stored_name(name: str) -> bool:
    """Whether Avro, in which Hudi keeps every schema, allows a name."""
    return name.isascii() and name.isidentifier()


def is_shown_name(name: str) -> bool:
    """Whether a text can be a name that people see."""
    return bool(name.strip()) and len(name) <= NAME_MAX and name.isprintable()


def refuse_unseen(name: str, what: str, where: str) -> None:
    """Refuse a text that cannot be a name that people see. what, where: of which it is one, for the message."""
    if not is_shown_name(name):
        raise InvalidInputError(
            f"{what}'s name is a text of at most {NAME_MAX} printable characters: choose another. {where}={name!r}"
        )
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise InvalidInputError(
            f"{what}'s name is no pattern, which * and a text from ^ to $ are to polars, where they stand for several "
            f"columns: choose another. {where}={name!r}"
        )


def made_name(shown: str, attempt: int = 0) -> str:
    """A name that Avro allows, made of one that it does not, or that is taken."""
    base = re.sub(r"[^A-Za-z0-9]+", "_", shown).strip("_")[:_BASE_MAX]
    base = base if base[:1].isalpha() else f"c_{base}".rstrip("_")
    return f"{base}_{hashlib.sha256(f'{attempt}:{shown}'.encode()).hexdigest()[:_DIGITS]}"


def stored_field(shown: str) -> str:
    """The name in files of a field of a struct."""
    return shown if is_stored_name(shown) else made_name(shown)


def check_fields(names: Sequence[str], column: str) -> None:
    """Refuse names of a struct's fields that people cannot see, or that files cannot tell from one another."""
    if len(set(names)) < len(names):
        raise InvalidInputError(f"a struct has two fields of one name: rename one. column={column} fields={[*names]}")
    for name in names:
        refuse_unseen(name, "a field", f"column={column} field")
    stored_fields(names, column)


def stored_fields(names: Sequence[str], column: str) -> list[str]:
    """The names in files of the fields of a struct; raises `InvalidInputError` where two would be one."""
    stored = [*map(stored_field, names)]
    if len(set(stored)) < len(stored):
        twice = [name for name, own in zip(names, stored, strict=True) if stored.count(own) > 1]
        raise InvalidInputError(
            f"two fields of a struct would have one name in files: rename one. {column=} fields={twice}"
        )
    return stored
