"""A write's declaration at its begin, so updates of other rows or columns need not wait for it.

A statement outside the declaration fails before anything is stored, and no version completes the write with files of
other partitions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

NAMES_MAX: Final = 64
"""Partitions or columns in a declaration. Versions contain it while the write is pending."""

KEYS_MAX: Final = 100
"""Record keys in a declaration, 15 bytes each: 1.5 KB in each version while the write is pending."""

KEY_NAME_DIGITS: Final = 12
"""Hex digits of a key's name. Two keys with the same name only make an update wait in vain."""

_SAID_MAX: Final = 5
"""Partitions or columns in a message."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The rows and columns that a write may touch.

    partitions: paths of its rows and deletes, sorted; None: any.
    columns: the columns that its rows set, besides key and partition, sorted; None: any, and deletes.
    existing: only rows left by earlier writes are changed; no row is added.
    keys: the names of the record keys of its rows and deletes, sorted, see `key_name`; None: any.
    """

    partitions: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    existing: bool = False
    keys: tuple[str, ...] | None = None

    def outside(self, partitions: Iterable[str]) -> list[str]:
        return [] if self.partitions is None else sorted({*partitions} - {*self.partitions})

    def outside_keys(self, record_keys: Iterable[str]) -> list[str]:
        if self.keys is None:
            return []
        declared = frozenset(self.keys)
        return sorted({key for key in record_keys if key_name(key) not in declared})

    def may_share_keys(self, keys: frozenset[str] | None) -> bool:
        """Return True if a read of the rows of these keys, by name, may meet the write. None: any key."""
        return self.keys is None or keys is None or not keys.isdisjoint(self.keys)


ANYTHING: Final = Declared()


def key_name(record_key: str) -> str:
    """Return the name of a record key in a declaration: short, and without the user's value."""
    return hashlib.sha256(record_key.encode()).hexdigest()[:KEY_NAME_DIGITS]


def declared_of(
    partitions: Collection[str] | None,
    columns: Collection[str] | None,
    existing: bool,
    record_keys: Collection[str] | None = None,
) -> Declared:
    """Return a declaration. More than `NAMES_MAX` names or `KEYS_MAX` record keys mean any."""
    given = [
        None if names is None or len(names) > NAMES_MAX else tuple(sorted(names)) for names in (partitions, columns)
    ]
    keys = None if record_keys is None or len(record_keys) > KEYS_MAX else tuple(sorted({*map(key_name, record_keys)}))
    return Declared(given[0], given[1], existing and given[1] is not None, keys)


def in_words(declared: Declared, shown: Callable[[str], str] = str) -> str:
    """Describe the rows and columns that a write may touch. shown: the shown name of a column."""
    columns = None if declared.columns is None else [shown(name) for name in declared.columns]
    said = [
        f"{kind} {', '.join(names[:_SAID_MAX])}{f' and {more} more' if (more := len(names) - _SAID_MAX) > 0 else ''}"
        for kind, names in (("partitions", declared.partitions), ("columns", columns))
        if names is not None
    ]
    if declared.keys is not None:
        said.insert(0, f"rows of {len(declared.keys)} {'key' if len(declared.keys) == 1 else 'keys'}")
    return f"only {'; '.join(said)}" if said else "any row"


def declared_json(declared: Declared) -> dict[str, object]:
    given = {
        "partitions": declared.partitions,
        "columns": declared.columns,
        "existing": declared.existing or None,
        "keys": declared.keys,
    }
    return {name: said for name, said in given.items() if said is not None}


def declared_from(entry: Mapping[str, Any]) -> Declared:
    names = [None if entry.get(key) is None else tuple(entry[key]) for key in ("partitions", "columns", "keys")]
    if not all(isinstance(name, str) for some in names for name in some or ()):
        raise TypeError(f"declared={entry!r}")
    return Declared(names[0], names[1], bool(entry.get("existing", False)), names[2])
