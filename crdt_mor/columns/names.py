"""Names of columns: the one that people see, and the stable one on storage.

    shown    what schemas, frames, filters and arguments say            any text: "Total Sales", "Größe", "@timestamp"
    stored   what files, plans, the merge and Hudi's readers have       what Avro allows, and no other column's, ever

A rename changes what is shown. A drop hides a column, whose stored name no later column gets. All of the engine works
in stored names; they are exchanged where rows, schemas and conditions come in and go out, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Final

import pyarrow as pa

from crdt_mor.columns.fields import NAME_MAX, is_stored_name, made_name, refuse_unseen
from crdt_mor.columns.schema import TableSchema, refuse_reserved
from crdt_mor.errors import InvalidInputError


@dataclass(frozen=True)
class Names:
    """Which stored columns are shown under another name, and which are not shown at all.

    renamed: pairs of a stored name and the one that is shown. hidden: stored names of columns that nobody sees.
    former: pairs of a name that was shown once and the stored name of its column, the latest last; for messages alone.
    comments: pairs of a stored name and what is said of the column.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()
    former: tuple[tuple[str, str], ...] = ()
    comments: tuple[tuple[str, str], ...] = ()

    @cached_property
    def _shown(self) -> Mapping[str, str]:
        return dict(self.renamed)

    @cached_property
    def _hidden(self) -> frozenset[str]:
        return frozenset(self.hidden)

    @property
    def are_stored(self) -> bool:
        """Whether every column is shown under its stored name."""
        return not self.renamed and not self.hidden

    def with_brought(self, brought: Mapping[str, str]) -> Names:
        """The names, and those of columns that a write has brought; by their stored names."""
        return replace(self, renamed=(*self.renamed, *brought.items())) if brought else self

    def shown(self, stored: str) -> str:
        """The name under which people see a column, or saw it before it was dropped."""
        return self._shown.get(stored, stored)

    def visible(self, stored: Iterable[str]) -> list[str]:
        """Those of some stored columns that people see."""
        return [name for name in stored if name not in self._hidden]

    def by_shown(self, stored: Iterable[str]) -> dict[str, str]:
        """The stored names of the columns that people see, by the names under which they see them."""
        return {self.shown(name): name for name in self.visible(stored)}

    def outward(self, schema: TableSchema) -> TableSchema:
        """The columns as people see them."""
        if self.are_stored and not self.former:
            return schema
        columns = [schema.declared.field(name) for name in self.visible(schema.declared.names)]
        shown = pa.schema([column.with_name(self.shown(column.name)) for column in columns])
        return TableSchema(shown, became=self._became)

    def inward(self, given: pa.Schema, schema: TableSchema, *, grows: bool = False) -> list[str]:
        """The stored names of columns that people give, in their order.

        grows: columns that the table lacks are new ones, and get the stored names that they will have; else
            `SchemaMismatchError` says which columns there are. A column that was renamed gets no new one beside it
            under the name that it had: it is refused with the name that it has.
        """
        if self.are_stored and not self.former and all(map(_may_stay, given.names)):
            return list(given.names)
        known = self.by_shown(schema.declared.names)
        unknown = [name for name in given.names if name not in known]
        if unknown and not grows:
            self.outward(schema).refuse_unknown(given)
        elif unknown:
            self.outward(schema).require_not_renamed(unknown, grows=True)
            new = [column.name for column in given if column.name in unknown and not pa.types.is_null(column.type)]
            check_shown([*new], known)
        taken = schema.declared.names
        return [known.get(name) or stored_name(name, taken) for name in given.names]

    @cached_property
    def _became(self) -> tuple[tuple[str, str | None], ...]:
        """The names that columns have now, by those that they had once; None: the column was dropped."""
        return tuple((name, None if stored in self._hidden else self.shown(stored)) for name, stored in self.former)

    def one(self, name: object, schema: TableSchema) -> str:
        """The stored name of one column that people see; raises `InvalidInputError` where there is none."""
        known = self.by_shown(schema.declared.names)
        if isinstance(name, str) and name in known:
            return known[name]
        meant = self.outward(schema).meant([name]) if isinstance(name, str) else ""
        raise InvalidInputError(f"the table has no such column{meant}. column={name!r} known={list(known)}")


def _may_stay(name: str) -> bool:
    """Whether a column that is new may have a name in files and to people."""
    return is_stored_name(name) and len(name) <= NAME_MAX


STORED: Final = Names()
"""Every column is shown under its stored name."""


def stored_name(shown: str, taken: Collection[str]) -> str:
    """The stored name of a new column: its own where that is free and allowed, else one that is made of it.

    taken: the stored names of all columns that the table has and has had. It is a function of these alone, so that two
    writers that add a column of one name at the same time add one column.
    """
    lower = {name.lower() for name in taken}
    if is_stored_name(shown) and shown.lower() not in lower:
        return shown
    return next(name for n in count() if (name := made_name(shown, n)).lower() not in lower)


def check_shown(new: Sequence[str], known: Iterable[str] = ()) -> None:
    """Refuse names that people are to see: those of the table's own, and such as Spark would hold for another one."""
    seen = {name.lower(): name for name in known}
    repeated = [name for name, times in Counter(new).items() if times > 1]
    if repeated:
        raise InvalidInputError(f"column names must differ: rename one. repeated={repeated}")
    for name in new:
        refuse_unseen(name, "a column", "column")
        refuse_reserved([name])
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                f"names that differ only in case are one name to Spark: rename one. column={name} other={other}"
            )


def created(shown: pa.Schema) -> tuple[pa.Schema, dict[str, str]]:
    """The columns of a new table under their stored names, and these by the names that people see."""
    if all(map(_may_stay, shown.names)):
        return shown, {name: name for name in shown.names}
    check_shown(shown.names)
    stored = dict[str, str]()
    # A column keeps its own name wherever it may, whatever stands before it.
    for name in sorted(shown.names, key=lambda name: not is_stored_name(name)):
        stored[name] = stored_name(name, stored.values())
    return pa.schema([column.with_name(stored[column.name]) for column in shown]), stored
