"""A write's declaration at its begin, so updates of other rows or columns need not wait for it.

A statement outside the declaration fails before anything is stored, and no version completes the write with files of
other partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

NAMES_MAX: Final = 64
"""Partitions or columns in a declaration. Versions contain it while the write is pending."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The limits of a write.

    partitions: paths of its rows and deletes, sorted; None: any.
    columns: the columns that its rows set, besides key and partition, sorted; None: any, and deletes.
    existing: only rows left by earlier writes are changed; no row is added.
    """

    partitions: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    existing: bool = False

    def outside(self, partitions: Iterable[str]) -> list[str]:
        return [] if self.partitions is None else sorted({*partitions} - {*self.partitions})


ANYTHING: Final = Declared()


def declared_of(partitions: Collection[str] | None, columns: Collection[str] | None, existing: bool) -> Declared:
    """Return a declaration. More than `NAMES_MAX` names mean any."""
    given = [
        None if names is None or len(names) > NAMES_MAX else tuple(sorted(names)) for names in (partitions, columns)
    ]
    return Declared(given[0], given[1], existing and given[1] is not None)


def declared_json(declared: Declared) -> dict[str, object]:
    given = {"partitions": declared.partitions, "columns": declared.columns, "existing": declared.existing or None}
    return {name: said for name, said in given.items() if said is not None}


def declared_from(entry: Mapping[str, Any]) -> Declared:
    names = [None if entry.get(key) is None else tuple(entry[key]) for key in ("partitions", "columns")]
    if not all(isinstance(name, str) for some in names for name in some or ()):
        raise TypeError(f"declared={entry!r}")
    return Declared(names[0], names[1], bool(entry.get("existing", False)))
