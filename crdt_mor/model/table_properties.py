"""The properties of a table: strings by name, set by users and contained in every version.

Unknown names with `crdt_mor.` raise an error, since no service would follow a misspelt policy. So do near misses such
as `retention`, and fixed settings such as `merge`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from crdt_mor.errors import InvalidInputError, page
from crdt_mor.ground.late_imports import Late
from crdt_mor.model import layout
from crdt_mor.model.policies import BY_NAME, parsed

if TYPE_CHECKING:
    import difflib
else:
    difflib = Late("difflib")

Properties = tuple[tuple[str, str], ...]
"""(name, value), sorted by name."""

RESERVED: Final = "crdt_mor."
KNOWN: Final[tuple[str, ...]] = tuple(sorted([*BY_NAME, *layout.NAMES]))

HUDIS: Final = "hoodie."

_FIXED: Final = ("buckets", "merge", "ordering", "partition_by")
"""Arguments of `Table.create` that only a migration changes."""

_CLOSE: Final = 0.9
"""Names are near if they share this part of their letters, such as 9 of 10."""

NAME_MAX: Final = 256
"""In characters."""

BYTES_MAX: Final = 16 << 10
"""Of all names and values in UTF-8. Each version contains them."""


def checked_changes(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    if not isinstance(changes, Mapping):
        raise InvalidInputError(
            'properties must be a dict of strings, like {"owner": "ops"}; None removes a property. '
            f"type={type(changes).__name__}"
        )
    for name, value in changes.items():
        _check_name(name)
        if value is not None:
            _refuse_near_names(name)
        if value is not None and not _is_text(value):
            raise InvalidInputError(
                f"a property must be a string, or None to remove it. name={name!r} value={value!r:.200}"
            )
        if value is not None and name in BY_NAME:
            parsed(name, value)
        if value is not None and name in layout.NAMES:
            layout.PARSED[name](value)
    return dict(changes)


def changed(properties: Properties, changes: Mapping[str, str | None]) -> Properties:
    """Return the changed properties; raise `InvalidInputError` if they are too long."""
    both: dict[str, str | None] = {**dict(properties), **changes}
    after = {name: value for name, value in both.items() if value is not None}
    size = sum(len(text.encode()) for item in after.items() for text in item)
    if size > BYTES_MAX:
        raise InvalidInputError(
            "the properties are too long, as each version of the timeline contains them: store long texts elsewhere "
            f"and their address here. bytes={size} most={BYTES_MAX}"
        )
    return tuple(sorted(after.items()))


def decoded(document: object) -> Properties:
    if not isinstance(document, dict) or not all(isinstance(text, str) for item in document.items() for text in item):
        raise TypeError(f"properties={document!r:.200}")
    return tuple(sorted(document.items()))


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= NAME_MAX or name != name.strip():
        raise InvalidInputError(
            f"a property name must be a printable string of 1 to {NAME_MAX} characters. name={name!r:.300}"
        )
    if "=" in name:
        raise InvalidInputError(
            f"a property name must not contain '=': the command line splits name=value there. name={name!r}"
        )
    if name.startswith(RESERVED) and name not in KNOWN:
        known = ", ".join(KNOWN)
        close = difflib.get_close_matches(name, KNOWN, 1)
        hint = f"did you mean {close[0]}?" if close else f"see {page('maintenance')}."
        raise InvalidInputError(
            f"names with {RESERVED} belong to the engine, and this property does not exist: {hint} "
            f"name={name!r} known={known}"
        )
    if name.startswith(HUDIS):
        raise InvalidInputError(
            f"names with {HUDIS} are settings of Hudi, fixed at the table's creation: use another name. name={name!r}"
        )


def _refuse_near_names(name: str) -> None:
    if name in KNOWN:
        return
    plain, known = _plain(name), {_plain(own): own for own in KNOWN}
    if plain == "key":
        raise InvalidInputError(
            "the key of a table never changes: copy the rows to a table with another key, Table.create_from. Use "
            f"another name for your own property. name={name!r}"
        )
    if plain in _FIXED:
        raise InvalidInputError(
            f"{plain} is no property but a fixed setting: pass it to Table.create or crdt-mor create, or change it "
            f"with maintenance.migrate. Use another name for your own property. name={name!r}"
        )
    if near := difflib.get_close_matches(plain, known, 1, _CLOSE):
        raise InvalidInputError(
            f"no such property exists in the engine, so the value would have no effect: did you mean "
            f"{known[near[0]]}? Use another name for your own property. name={name!r}"
        )


def _plain(name: str) -> str:
    words = "_".join(re.findall(r"[a-z0-9]+", name.casefold()))
    return words.removeprefix("crdt_mor_").removeprefix("mor_")


def _is_text(value: object) -> bool:
    """Return True for an encodable string, without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
