"""What a write says at its begin that it will touch, so that a later update of other rows or columns need not wait.

The pending entry in the value has it. The write keeps to it: a statement that touches more is refused before anything
is stored, and no version completes it with files of other partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

NAMES_MAX: Final = 64
"""The most partitions, and columns, that a write declares: every version holds them as long as the write is pending."""


@dataclass(frozen=True, slots=True)
class Declared:
    """All that a write may touch.

    partitions: the paths of the partitions of its rows and deletes, sorted; None: any.
    columns: the columns that its rows set besides the key's and the partition's, sorted; None: any, and deletes.
    existing: whether it sets them only in rows that the writes before it have left, so that no row comes by it.
    """

    partitions: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    existing: bool = False

    def outside(self, partitions: Iterable[str]) -> list[str]:
        """Those of these partitions that are not declared."""
        return [] if self.partitions is None else sorted({*partitions} - {*self.partitions})


ANYTHING: Final = Declared()
"""What a write has declared that has declared nothing."""


def declared_of(partitions: Collection[str] | None, columns: Collection[str] | None, existing: bool) -> Declared:
    """A declaration of partitions and columns, without what is too many to be declared."""
    given = [
        None if names is None or len(names) > NAMES_MAX else tuple(sorted(names)) for names in (partitions, columns)
    ]
    return Declared(given[0], given[1], existing and given[1] is not None)


def declared_json(declared: Declared) -> dict[str, object]:
    """The JSON of a declaration; what may be anything is left out."""
    given = {"partitions": declared.partitions, "columns": declared.columns, "existing": declared.existing or None}
    return {name: said for name, said in given.items() if said is not None}


def declared_from(entry: Mapping[str, Any]) -> Declared:
    """The declaration in a JSON; raises one of `WRONG_SHAPE` for anything else."""
    names = [None if entry.get(key) is None else tuple(entry[key]) for key in ("partitions", "columns")]
    if not all(isinstance(name, str) for some in names for name in some or ()):
        raise TypeError(f"declared={entry!r}")
    return Declared(names[0], names[1], bool(entry.get("existing", False)))
