"""The names of a run's columns over time.

To the ledger a column keeps its first name. Each name is used once, so a read name identifies its column. The table's
schema alone tells which alterations landed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

from crdt_mor.testing.simulation.invariants import BrokenPromiseError

MORE_MAX: Final = 2
"""Added columns at most."""

Reported = Literal["under way", "committed", "not written", "unknown"]

_LIKELY: Final[tuple[Reported, ...]] = ("committed", "under way", "unknown", "not written")


@dataclass
class Alteration:
    """A rename or drop. old: the name before. reported: the outcome told to the process."""

    column: str
    old: str
    new: str | None
    reported: Reported = "under way"
    has_landed: bool = False


@dataclass
class Columns:
    """The columns of a table. types: by column, initial ones first; `added` ones came later.

    names: current names. dropped: last names of dropped columns.
    """

    types: dict[str, pa.DataType]
    names: dict[str, str] = field(init=False)
    added: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    alterations: list[Alteration] = field(default_factory=list)
    adding: set[str] = field(default_factory=set)
    """Columns that a pending write may add: nobody alters them meanwhile."""
    giving: set[str] = field(default_factory=set)
    """Columns that a pending write gives: nobody drops them meanwhile, as the write could add them again."""
    changed: int = 0
    """Number of landed changes."""

    def __post_init__(self) -> None:
        self.names = {name: name for name in self.types}
        self._columns = {name: name for name in self.types}

    @property
    def more(self) -> list[str]:
        return [name for name in self.added if name in self.names]

    def plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a read row by columns; foreign columns keep their names."""
        return {self._columns.get(name, name): value for name, value in row.items()}

    @property
    def alterable(self) -> list[str]:
        """Return the columns that can be renamed; a payload's parameters fix its names."""
        return [name for name in ("k", "p", "v", "note", "amount", "until", *self.more) if self._is_free(name)]

    @property
    def droppable(self) -> list[str]:
        return [name for name in ("note", *self.more) if self._is_free(name) and name not in self.giving]

    @property
    def is_dropping(self) -> bool:
        drops = [one for one in self.alterations if one.new is None and one.reported in ("under way", "unknown")]
        return any(self.names.get(one.column) == one.old for one in drops)

    def _is_free(self, name: str) -> bool:
        return name in self.names and name not in self.adding

    def named(self, rows: pa.Table) -> pa.Table:
        rows = rows.select([name for name in rows.column_names if name not in self.dropped])
        return rows.rename_columns([self.names.get(name, name) for name in rows.column_names])

    def requested(self, column: str, new: str | None) -> Alteration:
        if new is not None:
            self._columns[new] = column
        made = Alteration(column, self.names[column], new)
        self.alterations.append(made)
        return made

    def asks_for(self, column: str) -> None:
        self.types[column] = pa.int64()
        self._columns[column] = column

    def look(self, shown: Collection[str]) -> None:
        for column in [name for name in self.types if name not in self.names and name not in self.dropped]:
            if column in shown:
                self.names[column] = column
                self.added.append(column)
                self.changed += 1
        for column, name in list(self.names.items()):
            if name not in shown:
                self._lands(column, name, shown)
        self._settle_drops()
        self._require_told()
        if {*self.names.values()} != {*shown}:
            text = f"the table's columns are {sorted(shown)}, not {sorted(self.names.values())}"
            raise BrokenPromiseError("nothing-lost", text)

    def _lands(self, column: str, name: str, shown: Collection[str]) -> None:
        """Settle a column whose name is gone: a single alteration under that name landed."""
        asked = [one for one in self.alterations if (one.column, one.old) == (column, name)]
        renames = [one for one in asked if one.new in shown]
        if renames:
            (rename,) = renames
            rename.has_landed = True
            self.names[column] = str(rename.new)
        elif any(one.new is None for one in asked):
            del self.names[column]
            self.dropped[column] = name
        else:
            return
        self.changed += 1

    def _settle_drops(self) -> None:
        for column, name in self.dropped.items():
            drops = [one for one in self.alterations if (one.column, one.old, one.new) == (column, name, None)]
            told = min((one.reported for one in drops), key=_LIKELY.index)
            for one in drops:
                one.has_landed = False
            next(one for one in drops if one.reported == told).has_landed = True

    def _require_told(self) -> None:
        for one in self.alterations:
            what = f"the rename of {one.old!r} to {one.new!r}" if one.new else f"the drop of {one.old!r}"
            if one.reported == "committed" and not one.has_landed:
                raise BrokenPromiseError("nothing-lost", f"{what} was acknowledged, but is missing")
            if one.reported == "not written" and one.has_landed:
                raise BrokenPromiseError("given-up-stays-away", f"{what} was reported as failed, but landed")
