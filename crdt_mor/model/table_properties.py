"""Properties of a table: texts by name, which its users set, and which every version of the timeline carries.

They are for what belongs to the table and not to its rows: its owner, what a service is to do with it. Names that
begin with `crdt_mor.` are the engine's: one that this release does not know is refused, since a policy that is
misspelt would be followed by nobody. So is one that all but the prefix makes a policy, `retention`, or that names a
setting which a table has for good, `merge`. Not to be mixed up with `hoodie.properties`, Hudi's file of settings, which
are made with the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.late_imports import Late
from crdt_mor.model import layout
from crdt_mor.model.policies import BY_NAME, parsed

if TYPE_CHECKING:
    import difflib
else:
    difflib = Late("difflib")

Properties = tuple[tuple[str, str], ...]
"""(name, value), by name."""

RESERVED: Final = "crdt_mor."
KNOWN: Final[tuple[str, ...]] = tuple(sorted([*BY_NAME, *layout.NAMES]))
"""The names of the engine's own properties: the policies of its upkeep, and how base files are laid out."""

HUDIS: Final = "hoodie."

_FOR_GOOD: Final = ("buckets", "key", "merge", "ordering", "partition_by")
"""Arguments of `Table.create` that no property changes."""

_CLOSE: Final = 0.9
"""The least share of their letters that two names have in common, of which one is the other misspelt: one is missing of
10, say."""

NAME_MAX: Final = 256
"""Characters of a name."""

BYTES_MAX: Final = 16 << 10
"""Bytes of all names and values together, in UTF-8: each version of the timeline carries them."""


def checked_changes(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """What `Table.set_properties` was given; raises `InvalidInputError` for what is no name or no value."""
    if not isinstance(changes, Mapping):
        raise InvalidInputError(
            'properties are texts by name, {"owner": "ops"}, and None takes one away: pass a dict. '
            f"type={type(changes).__name__}"
        )
    for name, value in changes.items():
        _check_name(name)
        if value is not None:
            _refuse_near_names(name)
        if value is not None and not _is_text(value):
            raise InvalidInputError(
                f"a property is a text, or None to take it away. name={name!r} value={value!r:.200}"
            )
        if value is not None and name in BY_NAME:
            parsed(name, value)
        if value is not None and name in layout.NAMES:
            layout.PARSED[name](value)
    return dict(changes)


def changed(properties: Properties, changes: Mapping[str, str | None]) -> Properties:
    """The properties after some of them were set, or taken away; raises where that is more than a table may have."""
    both: dict[str, str | None] = {**dict(properties), **changes}
    after = {name: value for name, value in both.items() if value is not None}
    size = sum(len(text.encode()) for item in after.items() for text in item)
    if size > BYTES_MAX:
        raise InvalidInputError(
            "these are more properties than a table may have, as each version of its timeline carries them: keep long "
            f"texts elsewhere, and their place here. bytes={size} most={BYTES_MAX}"
        )
    return tuple(sorted(after.items()))


def decoded(document: object) -> Properties:
    """The properties in a version of the timeline; raises TypeError for what no release has written."""
    if not isinstance(document, dict) or not all(isinstance(text, str) for item in document.items() for text in item):
        raise TypeError(f"properties={document!r:.200}")
    return tuple(sorted(document.items()))


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= NAME_MAX or name != name.strip():
        raise InvalidInputError(
            f"the name of a property is a text of 1 to {NAME_MAX} characters that can be printed. name={name!r:.300}"
        )
    if "=" in name:
        raise InvalidInputError(
            f"the name of a property has no = in it, which is where it ends on a command line. name={name!r}"
        )
    if name.startswith(RESERVED) and name not in KNOWN:
        known = ", ".join(KNOWN)
        close = difflib.get_close_matches(name, KNOWN, 1)
        hint = f"did you mean {close[0]}?" if close else "docs/maintenance.md says what each is for."
        raise InvalidInputError(
            f"names that begin with {RESERVED} are the engine's own, and it knows no such property: {hint} "
            f"name={name!r} known={known}"
        )
    if name.startswith(HUDIS):
        raise InvalidInputError(
            f"names that begin with {HUDIS} are settings of Hudi's, which are made with the table and would have no "
            f"effect here: take another name. name={name!r}"
        )


def _refuse_near_names(name: str) -> None:
    """Raise `InvalidInputError` where a name is all but one of the engine's, so that its value would mean nothing."""
    if name in KNOWN:
        return
    plain, known = _plain(name), {_plain(own): own for own in KNOWN}
    if plain in _FOR_GOOD:
        raise InvalidInputError(
            f"{plain} is no property: Table.create and crdt-mor create take it, and a table keeps it for good. "
            "maintenance.migrate makes a table of other settings. Take another name for what is yours. "
            f"name={name!r}"
        )
    if near := difflib.get_close_matches(plain, known, 1, _CLOSE):
        raise InvalidInputError(
            f"this would have no effect, as it is no property of the engine's, and is near to one: did you mean "
            f"{known[near[0]]}? Take another name for what is yours. name={name!r}"
        )


def _plain(name: str) -> str:
    """A name as people may remember it: without the prefix, in lower case, with one kind of sign between words."""
    words = "_".join(re.findall(r"[a-z0-9]+", name.casefold()))
    return words.removeprefix("crdt_mor_").removeprefix("mor_")


def _is_text(value: object) -> bool:
    """Whether a value is a text that can be stored; one with half of a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
