"""Follow the columns of a PostgreSQL table by their numbers (`attnum`).

The comments of our columns keep number and type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import pyarrow as pa

from crdt_mor import Table
from crdt_mor.cdc.postgres_types import type_of, value_of
from crdt_mor.cdc.statements import Target
from crdt_mor.cdc.values import column as array_of
from crdt_mor.errors import SchemaMismatchError

_MARK: Final = re.compile(
    r"(?:(?P<own>.*); )?PostgreSQL column (?P<table>\d+)\.(?P<number>\d+): (?P<type>.+)", re.DOTALL
)
_WHOLE: Final = ("smallint", "integer", "bigint")
_NUMERIC: Final = re.compile(r"numeric\((\d+),(-?\d+)\)")
_VARYING: Final = re.compile(r"character varying\((\d+)\)")

Event = dict[str, Any]


class SnapshotNeededError(Exception):
    """Rows changed without events."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source.

    Attributes:
        fill: its value in older rows, as text.
        is_computed: only the server knows these values.
    """

    name: str
    type: str
    fill: str | None = None
    is_computed: bool = False


Columns = Mapping[int, Column]


def columns_in(comments: Mapping[str, str], oid: int) -> dict[int, Column]:
    found = ((name, _MARK.fullmatch(text)) for name, text in comments.items())
    return {
        int(match["number"]): Column(name, match["type"])
        for name, match in found
        if match is not None and int(match["table"]) == oid
    }


def comment_of(oid: int, number: int, column: Column, before: str | None) -> str:
    match = _MARK.fullmatch(before or "")
    own = before if match is None else match["own"]
    return f"{own}; " * bool(own) + f"PostgreSQL column {oid}.{number}: {column.type}"


def keeps_values(old: str, new: str) -> bool:
    """Return True if no value changes with the type."""
    if old == new:
        return True
    if old in _WHOLE:
        return new.startswith("numeric") or (new in _WHOLE and _WHOLE.index(old) < _WHOLE.index(new))
    if before := _NUMERIC.fullmatch(old):
        after = _NUMERIC.fullmatch(new)
        whole, scale = int(before[1]) - int(before[2]), int(before[2])
        return new == "numeric" or (
            after is not None and int(after[2]) >= scale and int(after[1]) - int(after[2]) >= whole
        )
    if old == "character varying" or (before := _VARYING.fullmatch(old)):
        after = _VARYING.fullmatch(new)
        is_longer = bool(before) and after is not None and int(after[1]) >= int(before[1])  # type: ignore[index]
        return new in ("text", "character varying") or is_longer
    return (old, new) in {("text", "character varying"), ("real", "double precision")}


class SourceColumns:
    """read: returns the columns of the source. oid: its id."""

    def __init__(self, table: Table, slot: str, oid: int, read: Callable[[], Columns]) -> None:
        self._table = table
        self._slot = slot
        self._oid = oid
        self._author = {"application": slot}
        self._read = read
        self._known = columns_in(table.inspect.comments(), oid)
        self._seen: dict[tuple[int, str, str], str | None] = {}  # None: dropped since
        self._last: Sequence[Mapping[str, Any]] = ()

    @property
    def are_known(self) -> bool:
        return bool(self._known)

    def take_over(self, source: Columns) -> None:
        self._alter(source)
        for number, column in self._new_or_retyped(source).items():
            try:
                self._give_types({number: column})
            except SchemaMismatchError:
                self._table.alter(drop=[column.name], commit_info=self._author)
                self._give_types({number: column})
        self._note(source)

    def follow(self, source: Columns, told: Collection[int]) -> dict[int, Column]:
        """Follow known columns and new ones with these numbers; return the new ones."""
        wanted = {number: column for number, column in source.items() if number in self._known or number in told}
        new = {number: column for number, column in wanted.items() if number not in self._known}
        for number, column in wanted.items():
            old = self._known.get(number)
            if column.is_computed if old is None else not keeps_values(old.type, column.type):
                raise SnapshotNeededError
        self._alter(wanted)
        try:
            self._give_types(self._new_or_retyped(wanted))
        except SchemaMismatchError as error:
            raise SnapshotNeededError from error
        for number, column in new.items():
            self._fill(number, column)
        self._note(wanted)
        return new

    def _alter(self, source: Columns) -> None:
        """Rename columns, and hide replaced ones."""
        names = {column.name for column in source.values()}
        kept = {number: column.name for number, column in self._known.items() if number in source}
        renamed = {name: source[number].name for number, name in kept.items() if name != source[number].name}
        dropped = [c.name for number, c in self._known.items() if number not in source and c.name in names]
        if renamed or dropped:
            self._table.alter(rename=renamed, drop=dropped, commit_info=self._author)

    def _new_or_retyped(self, source: Columns) -> Columns:
        names = {*self._table.schema.names}
        return {
            number: column
            for number, column in source.items()
            if column.name not in names or (number in self._known and self._known[number].type != column.type)
        }

    def _give_types(self, columns: Columns) -> None:
        if columns:
            key = {name: self._table.schema.field(name).type for name in Target.of(self._table).address}
            kinds = {column.name: type_of(column.type) for column in columns.values()}
            empty = pa.schema({**key, **kinds}).empty_table()
            self._table.upsert(empty, schema_mode="merge", commit_info=self._author)

    def _fill(self, number: int, column: Column) -> None:
        if column.fill is not None:
            kind = self._table.schema.field(column.name).type
            values = pl.from_arrow(array_of(column.name, [value_of(column.type, column.fill)], kind, None))
            assert isinstance(values, pl.Series)
            value = pl.lit(values[0], values.dtype)
            token = (f"{self._slot}:column-{self._oid}.{number}", 1)
            self._table.update({column.name: value}, token=token, commit_info=self._author)

    def _note(self, source: Columns) -> None:
        comments = self._table.inspect.comments()
        texts = {c.name: comment_of(self._oid, number, c, comments.get(c.name)) for number, c in source.items()}
        changed = {name: text for name, text in texts.items() if comments.get(name) != text}
        if changed:
            self._table.alter(comment=changed, commit_info=self._author)
        self._known = columns_in(self._table.inspect.comments(), self._oid)
        self._seen = {told: self._name_of(told[0]) for told in self._seen}

    def _name_of(self, number: int) -> str | None:
        return self._known[number].name if number in self._known else None

    def named(self, events: Sequence[Event]) -> list[Event]:
        told = {(c["position"], c["name"], c["type"]) for event in events for c in event.get("columns", ())}
        unseen = told - self._seen.keys()
        new: dict[int, Column] = {}
        if any(number not in self._known or self._known[number] != Column(name, kind) for number, name, kind in unseen):
            new = self.follow(self._read(), {number for number, _, _ in unseen})
        self._seen |= {one: self._name_of(one[0]) for one in unseen}
        return [self._named(event, new) for event in events]

    def _named(self, event: Event, new: Columns) -> Event:
        if event["action"] not in "IUD":
            return event
        changed = dict(event)
        if "columns" in event:
            self._last = event["columns"]
            changed["columns"] = self._ours(event["columns"])
            if event["action"] == "I":
                changed["columns"] += self._filled(event["columns"], new)
        if "identity" in event:
            known = {column.name: column.name for column in self._known.values()}
            names = known | {c["name"]: self._seen[c["position"], c["name"], c["type"]] for c in self._last}
            changed["identity"] = [{**c, "name": names[c["name"]]} for c in event["identity"] if names.get(c["name"])]
        return changed

    def _ours(self, columns: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        named = ((self._seen[c["position"], c["name"], c["type"]], c) for c in columns)
        return [c if c["name"] == name else {**c, "name": name} for name, c in named if name is not None]

    def _filled(self, columns: Iterable[Mapping[str, Any]], new: Columns) -> list[Mapping[str, Any]]:
        """Return the values of new columns in an older row."""
        given = {c["position"] for c in columns} if new else set()
        return [
            {"name": column.name, "type": column.type, "value": column.fill}
            for number, column in new.items()
            if number not in given
        ]
