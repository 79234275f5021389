"""Groups of columns with a common ordering column: `{("a", "t"): LatestBy("t"), ("b", "c", "t"): LatestBy("t")}`.

    state    a struct for each group, null if no row has given it: its columns and its own ordering value
    join     group by group, as each payload does
    value    the columns of all groups, and the greatest ordering value

The groups are one member of the merge rule, because all of them decide the common column. A base row shows only the
greatest ordering value, so the groups' own ones are in the hidden state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import polars as pl
import pyarrow as pa

from crdt_mor.merge.payload import Kind, RecordPayload
from crdt_mor.merge.rule import Member


class Group(NamedTuple):
    """A group: the payload's names of its columns, the ordering column among them."""

    fields: tuple[str, ...]
    payload: RecordPayload


@dataclass(frozen=True)
class SharedOrder(RecordPayload):
    """Joins each group by its own payload. by: the ordering column."""

    name: ClassVar[str] = "latest_by/1"
    kind: ClassVar[Kind] = "ordered"
    by: str
    groups: tuple[Group, ...]

    def own(self, group: Group) -> tuple[str, ...]:
        return tuple(field for field in group.fields if field != self.by)

    def place(self, group: Group) -> str:
        """Return the name of the group's struct in a state."""
        return self.own(group)[0]

    def state(self, column: pa.DataType) -> pa.DataType:
        structs = {self.place(g): pa.struct([column.field(field) for field in g.fields]) for g in self.groups}
        return pa.struct(list(structs.items()))

    def join(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        joined = {}
        for place, group in ((self.place(group), group) for group in self.groups):
            both = [state[place] for state in (a, b) if state[place] is not None]
            joined[place] = reduce(group.payload.join, both) if both else None
        return joined

    def merge(self, states: pl.Expr) -> pl.Expr:
        places = {self.place(group): group.payload for group in self.groups}
        return pl.struct(payload.merge(states.struct.field(place)).alias(place) for place, payload in places.items())

    def value(self, states: pl.Expr) -> pl.Expr:
        structs = [(group, states.struct.field(self.place(group))) for group in self.groups]
        values = [struct.struct.field(field).alias(field) for group, struct in structs for field in self.own(group)]
        orders = [struct.struct.field(self.by) for _, struct in structs]
        return pl.struct(*values, reduce(_greater, orders).alias(self.by))

    def assign(self, before: pl.Expr, after: pl.Expr) -> pl.Expr:  # noqa: ARG002
        return after


def _greater(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.when(one.is_null() | (other > one)).then(other).otherwise(one)


@dataclass(frozen=True, slots=True)
class SharedMember(Member):
    """The columns of all groups. A row gives some of the groups, and its written values are a state."""

    payload: SharedOrder

    @property
    def groups(self) -> list[tuple[str, ...]]:
        columns = {field: name for name, field in self.fields.items()}
        return [tuple(columns[field] for field in group.fields) for group in self.payload.groups]

    @property
    def shared(self) -> frozenset[str]:
        return frozenset(name for name, field in self.fields.items() if field == self.payload.by)

    def missing(self, given: Collection[str]) -> list[str]:
        begun = [group for group in self.groups if any(name in given for name in group if name not in self.shared)]
        if not begun and not self.shared.isdisjoint(given):
            begun = self.groups
        return [*dict.fromkeys(name for group in begun for name in group if name not in given)]

    def is_given(self, names: Collection[str]) -> bool:
        return any({*names}.issuperset(group) for group in self.groups)

    def given_in(self, rows: pl.DataFrame) -> list[str]:
        states = rows[str(self.hidden)].struct.unnest()
        found = zip(states, self.groups, strict=True)
        return [*dict.fromkeys(name for series, group in found if series.is_not_null().any() for name in group)]

    def written(self, rows: pl.DataFrame, absent: Mapping[str, pl.Series] = MappingProxyType({})) -> pl.Series:
        groups = [self._of_group(rows, absent, *found) for found in zip(self.payload.groups, self.groups, strict=True)]
        state = pl.DataFrame(groups)
        given = pl.any_horizontal(pl.all().is_not_null())
        return state.select(pl.when(given).then(pl.struct(pl.all())).alias(self.columns[0])).to_series()

    def _of_group(
        self, rows: pl.DataFrame, absent: Mapping[str, pl.Series], group: Group, columns: Sequence[str]
    ) -> pl.Series:
        place = self.payload.place(group)
        assert isinstance(self.kind, pl.Struct)
        kinds = {field.name: field.dtype for field in self.kind.fields}
        kind = pl.Struct({field: kinds[field] for field in group.fields})
        if not {*rows.columns}.issuperset(columns):
            return pl.Series(place, [None], kind).new_from_index(0, rows.height)
        fields = [
            pl.col(name).cast(kinds[field]).alias(field) for name, field in zip(columns, group.fields, strict=True)
        ]
        given = ~pl.all_horizontal(pl.col(name).is_null() for name in columns)
        marked = next((absent[name] for name in columns if name in absent and name not in self.shared), None)
        if marked is not None:
            given &= ~pl.lit(marked)
        return rows.select(pl.when(given).then(pl.struct(fields)).alias(place)).to_series()
