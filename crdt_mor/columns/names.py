"""Column names: user-visible, and stable in storage.

    shown    in schemas, frames, filters and arguments        any text: "Total Sales", "Größe", "@timestamp"
    stored   in files, plans, the merge and Hudi's readers    valid in Avro, and never reused for another column

A rename changes the shown name. A drop hides a column; no later column gets its stored name. The engine uses stored
names everywhere; names are exchanged only where rows, schemas and conditions enter and leave.
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
    """The shown names of stored columns.

    Attributes:
        renamed: pairs of stored and shown name.
        hidden: stored names of dropped columns.
        former: pairs of a former shown name and its stored name, the latest last; for messages.
        comments: pairs of stored name and comment.
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

    @cached_property
    def are_stored(self) -> bool:
        return not self.renamed and not self.hidden

    def with_added(self, added: Mapping[str, str]) -> Names:
        """Add the shown names, by stored names, of columns that a write adds."""
        return replace(self, renamed=(*self.renamed, *added.items())) if added else self

    def shown(self, stored: str) -> str:
        return self._shown.get(stored, stored)

    def visible(self, stored: Iterable[str]) -> list[str]:
        return [name for name in stored if name not in self._hidden]

    def by_shown(self, stored: Iterable[str]) -> dict[str, str]:
        return {self.shown(name): name for name in self.visible(stored)}

    def outward(self, schema: TableSchema) -> TableSchema:
        if self.are_stored and not self.former:
            return schema
        columns = [schema.declared.field(name) for name in self.visible(schema.declared.names)]
        shown = pa.schema([column.with_name(self.shown(column.name)) for column in columns])
        return TableSchema(shown, became=self._became)

    def inward(self, given: pa.Schema, schema: TableSchema, *, grows: bool = False) -> list[str]:
        """Return the stored names of a user's columns, in order.

        Args:
            grows: unknown columns are new and get stored names; otherwise they raise `SchemaMismatchError`. A former
                name of a renamed column is always refused, with its current name.
        """
        if self.are_stored and not self.former and all(name in schema or _may_stay(name) for name in given.names):
            return list(given.names)
        known = self.by_shown(schema.declared.names)
        unknown = [name for name in given.names if name not in known]
        if unknown and not grows:
            self.outward(schema).refuse_unknown(given)
        elif unknown:
            self.outward(schema).require_not_renamed(unknown, grows=True)
            new = [column.name for column in given if column.name not in known and not pa.types.is_null(column.type)]
            check_shown([*new], known)
        taken = lowered(schema.declared.names)
        return [known.get(name) or stored_name(name, taken) for name in given.names]

    @cached_property
    def _became(self) -> tuple[tuple[str, str | None], ...]:
        """Current names by former names; None for dropped columns."""
        return tuple((name, None if stored in self._hidden else self.shown(stored)) for name, stored in self.former)

    def one(self, name: object, schema: TableSchema) -> str:
        return self.stored([name], schema)[0]

    def stored(self, names: Iterable[object], schema: TableSchema) -> list[str]:
        """Return the stored names of shown columns, or raise `InvalidInputError` for an unknown one."""
        known = self.by_shown(schema.declared.names)
        found = list[str]()
        for name in names:
            if not isinstance(name, str) or name not in known:
                meant = self.outward(schema).meant([name]) if isinstance(name, str) else ""
                raise InvalidInputError(f"no such column{meant}. column={name!r} known={list(known)}")
            found.append(known[name])
        return found


def _may_stay(name: str) -> bool:
    return is_stored_name(name) and len(name) <= NAME_MAX


STORED: Final = Names()


def stored_name(shown: str, taken: Collection[str]) -> str:
    """Return a new column's stored name: its own if valid and free, else a derived name.

    The result depends only on the name and on `taken`, all stored names ever used. Two writers that add the same name
    at once thus add one column.

    taken: in lower case.
    """
    if is_stored_name(shown) and shown.lower() not in taken:
        return shown
    return next(name for n in count() if (name := made_name(shown, n)).lower() not in taken)


def lowered(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def check_shown(new: Sequence[str], known: Iterable[str] = ()) -> None:
    """Refuse shown names that are reserved, or equal to another name for Spark, which ignores case."""
    seen = {name.lower(): name for name in known}
    repeated = [name for name, times in Counter(new).items() if times > 1]
    if repeated:
        raise InvalidInputError(f"column names must differ: rename columns. repeated={repeated}")
    for name in new:
        refuse_unseen(name, "a column", "column")
        refuse_reserved([name])
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                f"names differ only in case, which Spark ignores: rename a column. column={name} other={other}"
            )


def created(shown: pa.Schema) -> tuple[pa.Schema, dict[str, str]]:
    """Return a new table's columns under stored names, and these by shown names."""
    if all(map(_may_stay, shown.names)):
        return shown, {name: name for name in shown.names}
    check_shown(shown.names)
    stored, taken = dict[str, str](), set[str]()
    # Valid names are assigned first, so that they stay unchanged.
    for name in sorted(shown.names, key=lambda name: not is_stored_name(name)):
        stored[name] = stored_name(name, taken)
        taken.add(stored[name].lower())
    return pa.schema([column.with_name(stored[column.name]) for column in shown]), stored
