"""The merge rules: the row of a key that several commits wrote.

    latest     the row of the last requested commit
    ordering   the row with the greatest value of a column; of equal values, the last requested
    columns    column by column: the payload's merge, or the last value that a commit set; with an ordering column, the
               value that was set with the greatest ordering value (`merge.orders`)

Under every rule, contributions are folded in the order of their requested times. The result therefore depends only on
the set of commits. Requested times are unique and break all ties.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import polars as pl

from crdt_mor.errors import InvalidInputError, PayloadError
from crdt_mor.merge.blocks import COMMIT_TIME
from crdt_mor.merge.payload import Payload

ORDERS: Final = "_crdt_orders"
"""The hidden column of base rows for partial updates under an ordering column, see `merge.orders`."""


@dataclass(frozen=True, slots=True)
class Member:
    """The columns of a payload: one, or several of a record payload.

    kind: the type of the visible value; for several columns a struct with the payload's field names.
    hidden: the column with the state, if it differs from the visible value.
    """

    columns: tuple[str, ...]
    payload: Payload
    kind: pl.DataType
    hidden: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        assert isinstance(self.kind, pl.Struct), "a payload of several columns"
        return dict(zip(self.columns, (field.name for field in self.kind.fields), strict=True))

    @property
    def stored(self) -> tuple[str, ...]:
        return self.columns if self.hidden is None else (self.hidden,)

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The columns that a row gives together."""
        return [self.columns]

    @property
    def shared(self) -> frozenset[str]:
        """The columns of several groups."""
        return frozenset()

    def missing(self, given: Collection[str]) -> list[str]:
        """Return the columns that rows with the columns `given` must give, too."""
        missing = [name for name in self.columns if name not in given]
        return missing if len(missing) < len(self.columns) else []

    def is_given(self, names: Collection[str]) -> bool:
        return {*names}.issuperset(self.columns)

    def given_in(self, rows: pl.DataFrame) -> Sequence[str]:  # noqa: ARG002
        """Return the columns that stored rows with a state of this member give."""
        return self.columns

    def written(self, rows: pl.DataFrame, absent: Mapping[str, pl.Series] = MappingProxyType({})) -> pl.Series:  # noqa: ARG002
        """Return the values written to this member's columns; null if all of them are null.

        absent: masks of cells that are not given.
        """
        if len(self.columns) == 1:
            return rows[self.columns[0]]
        fields = [pl.col(name).alias(field) for name, field in self.fields.items()]
        every = pl.all_horizontal(pl.col(name).is_null() for name in self.columns)
        return rows.select(pl.when(~every).then(pl.struct(fields)).alias(self.columns[0])).to_series()

    @property
    def restores(self) -> bool:
        return self.hidden is not None and self.payload.restores

    @property
    def below(self) -> tuple[str, ...]:
        return (*self.stored, *self.columns) if self.restores else self.stored

    def pack(self, frame: pl.DataFrame) -> pl.Series:
        """Return the states in a frame of contributions; null where a row sets none of the columns."""
        return self.written(frame) if self.hidden is None else frame[self.hidden]

    def restored(self, base: pl.DataFrame) -> pl.Series:
        states = self.pack(base)
        if not self.restores or not states.null_count():
            return states
        restored = self._mapped(self.written(base), self.payload.restore, states.dtype)
        return states.zip_with(states.is_not_null(), restored)

    def unpack(self, states: pl.Series, need: Collection[str]) -> list[pl.Series]:
        wanted = [name for name in self.columns if name in need]
        hidden = [states.alias(self.hidden)] if self.hidden is not None and self.hidden in need else []
        if not wanted:
            return hidden
        seen = states if self.hidden is None else self._mapped(states, self.payload.value, self.kind)
        fields = [seen] if len(self.columns) == 1 else [seen.struct.field(self.fields[name]) for name in wanted]
        return [*hidden, *(field.alias(name) for field, name in zip(fields, wanted, strict=True))]

    def settle(self, rows: pl.DataFrame, *, seen: bool) -> pl.Series:
        """Reduce the causally stable states of a base's rows with `Payload.settle`.

        seen: no write was pending, so every later write has seen these rows. States that `Payload.restore` can recreate
            from visible values are then dropped.
        """
        states = self._mapped(self.pack(rows), self.payload.settle, rows.schema[self.stored[0]])
        if not (seen and self.restores):
            return states
        return states.zip_with(self.written(rows).is_null(), states.clear(rows.height))

    def _mapped(self, states: pl.Series, function: Callable[[pl.Expr], pl.Expr], kind: pl.DataType) -> pl.Series:
        state = pl.col("state")
        with naming_payload(self.payload, self.columns):
            frame = pl.DataFrame({"state": states})
            return frame.select(pl.when(state.is_not_null()).then(function(state)).cast(kind)).to_series()


@contextmanager
def naming_payload(payload: Payload, columns: Sequence[str]) -> Iterator[None]:
    """Raise any error of a payload as a `PayloadError` that names the payload and its columns."""
    try:
        yield
    except Exception as error:
        # polars appends the expression to the message of a Python error.
        what = str(error).partition("\n")[0].removeprefix("PayloadError: ").removesuffix(".")
        if not isinstance(error, PayloadError):
            what = (
                f"{type(error).__name__}: {what}. Fix the payload, or delete the keys with values that it cannot merge"
            )
        raise PayloadError(f"the payload {payload.name} failed: {what}. columns={list(columns)}") from error


@dataclass(frozen=True, slots=True)
class MergeRule:
    """The merge rule of a table, see the module.

    nulls, whole, members: for the kind "columns" only. With an ordering column it has no `whole` and no members.
    nulls: with "keep", a null sets nothing in a column without a payload.
    whole: every row sets every column, null if its block lacks it. Otherwise a block sets the columns it contains.
    """

    kind: Literal["latest", "ordering", "columns"] = "latest"
    ordering: str | None = None
    nulls: Literal["value", "keep"] = "value"
    whole: bool = False
    members: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        if self.kind != "columns" and (self.kind == "ordering") != (self.ordering is not None):
            raise InvalidInputError(
                "name an ordering column for the rule 'ordering', and none for 'latest'. "
                f"kind={self.kind} ordering={self.ordering}"
            )

    @property
    def has_orders(self) -> bool:
        """True for partial updates under an ordering column."""
        return self.kind == "columns" and self.ordering is not None

    @property
    def hidden(self) -> set[str]:
        """The columns with states."""
        return {m.hidden for m in self.members if m.hidden is not None} | ({ORDERS} if self.has_orders else set())

    @property
    def merged(self) -> set[str]:
        """The columns with payloads."""
        return {name for member in self.members for name in member.columns}

    def members_of(self, need: Sequence[str]) -> list[Member]:
        needed = {*need}
        return [m for m in self.members if m.hidden in needed or not needed.isdisjoint(m.columns)]

    def stored(self, need: Sequence[str]) -> list[str]:
        members = self.members_of(need)
        shown = {name for member in members for name in (*member.columns, member.hidden)}
        states = [name for member in members for name in member.stored]
        return list(dict.fromkeys([*(name for name in need if name not in shown), *states]))

    def below(self, need: Sequence[str]) -> list[str]:
        if self.has_orders:
            return [*dict.fromkeys([*need, str(self.ordering), ORDERS, COMMIT_TIME])]
        return list(dict.fromkeys([*self.stored(need), *(n for m in self.members_of(need) for n in m.below)]))

    def show(self, rows: pl.DataFrame) -> pl.DataFrame:
        there = {*rows.columns}
        visible = [
            series
            for member in self.members
            if member.hidden is not None and member.hidden in there
            for series in member.unpack(rows[member.hidden], member.columns)
        ]
        return rows.with_columns(visible)

    def settle(self, rows: pl.DataFrame, *, seen: bool) -> pl.DataFrame:
        """Drop the state in base rows that later commits cannot need. `seen`: see `Member.settle`."""
        return rows.with_columns(
            member.settle(rows, seen=seen).alias(member.hidden) for member in self.members if member.hidden is not None
        )


LATEST: Final = MergeRule()
