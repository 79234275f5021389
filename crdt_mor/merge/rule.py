"""What it means that two commits wrote one key.

    latest     the record of the commit that was requested last
    ordering   the record with the greatest value of one column; equal values: the one requested last
    columns    column by column: by a payload where the column has one, else the value of the last commit that gave one

Whatever the rule, contributions are folded in the order of their requested times, so the answer is a function of the
set of commits. `requested last` is the tie-break everywhere, and requested times are unique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import polars as pl

from crdt_mor.errors import InvalidInputError, PayloadError
from crdt_mor.merge.payload import Payload


@dataclass(frozen=True, slots=True)
class Member:
    """The column of one payload, or the columns of a record payload.

    kind: the type of the visible value, a struct for several columns, with fields as the payload calls them.
    hidden: the column that keeps the state, if the payload's state differs from its visible value.
    """

    columns: tuple[str, ...]
    payload: Payload
    kind: pl.DataType
    hidden: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """What the payload calls its columns, of which there are several, by what they are called here."""
        assert isinstance(self.kind, pl.Struct), "a payload of several columns"
        return dict(zip(self.columns, (field.name for field in self.kind.fields), strict=True))

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that the state is read from."""
        return self.columns if self.hidden is None else (self.hidden,)

    def written(self, rows: pl.DataFrame) -> pl.Series:
        """What was written to the columns of this member; null where all of them are null."""
        if len(self.columns) == 1:
            return rows[self.columns[0]]
        fields = [pl.col(name).alias(field) for name, field in self.fields.items()]
        every = pl.all_horizontal(pl.col(name).is_null() for name in self.columns)
        return rows.select(pl.when(~every).then(pl.struct(fields)).alias(self.columns[0])).to_series()

    @property
    def restores(self) -> bool:
        """Whether a base may have a value without its state."""
        return self.hidden is not None and self.payload.restores

    @property
    def below(self) -> tuple[str, ...]:
        """The columns of a base that the state is read from."""
        return (*self.stored, *self.columns) if self.restores else self.stored

    def pack(self, frame: pl.DataFrame) -> pl.Series:
        """The states in a frame of contributions; null where a row sets none of the columns."""
        return self.written(frame) if self.hidden is None else frame[self.hidden]

    def restored(self, base: pl.DataFrame) -> pl.Series:
        """The states in rows of a base."""
        states = self.pack(base)
        if not self.restores or not states.null_count():
            return states
        restored = self._mapped(self.written(base), self.payload.restore, states.dtype)
        return states.zip_with(states.is_not_null(), restored)

    def unpack(self, states: pl.Series, need: Sequence[str]) -> list[pl.Series]:
        """Those of the visible columns and the hidden one that are in `need`."""
        wanted = [name for name in self.columns if name in need]
        hidden = [states.alias(self.hidden)] if self.hidden is not None and self.hidden in need else []
        if not wanted:
            return hidden
        seen = states if self.hidden is None else self._mapped(states, self.payload.value, self.kind)
        fields = [seen] if len(self.columns) == 1 else [seen.struct.field(self.fields[name]) for name in wanted]
        return [*hidden, *(field.alias(name) for field, name in zip(fields, wanted, strict=True))]

    def settle(self, rows: pl.DataFrame, *, seen: bool) -> pl.Series:
        """The causally stable states of a base's rows, as `Payload.settle` leaves them.

        seen: no write was pending, so that every later write has seen these rows. States that `Payload.restore` can
            make from the visible values are then dropped.
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
    """Turn whatever a payload raises in the block into a `PayloadError` that names the payload and its columns."""
    try:
        yield
    except Exception as error:
        # polars appends the expression to the message of a Python error.
        what = str(error).partition("\n")[0].removeprefix("PayloadError: ").removesuffix(".")
        if not isinstance(error, PayloadError):
            what = f"{type(error).__name__}: {what}. Mend the payload, or delete the keys whose values it cannot take"
        raise PayloadError(f"the payload {payload.name} failed: {what}. columns={list(columns)}") from error


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How contributions to one key are merged, see the module.

    ordering: the name of the ordering column; for the kind "ordering" alone.
    nulls, whole, members: for the kind "columns" alone.
    nulls: with "keep", a null sets nothing in a column without a payload.
    whole: every row gives every column, null where its block lacks one; otherwise a block gives the columns it has.
    """

    kind: Literal["latest", "ordering", "columns"] = "latest"
    ordering: str | None = None
    nulls: Literal["value", "keep"] = "value"
    whole: bool = False
    members: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind == "ordering") != (self.ordering is not None):
            raise InvalidInputError(
                "name an ordering column for the rule 'ordering', and for no other. "
                f"kind={self.kind} ordering={self.ordering}"
            )

    def members_of(self, need: Sequence[str]) -> list[Member]:
        """The members that `need` names a column of."""
        return [m for m in self.members if m.hidden in need or any(name in need for name in m.columns)]

    def stored(self, need: Sequence[str]) -> list[str]:
        """The columns that must be read to know the columns `need`: states in place of visible values."""
        members = self.members_of(need)
        shown = {name for member in members for name in (*member.columns, member.hidden)}
        states = [name for member in members for name in member.stored]
        return list(dict.fromkeys([*(name for name in need if name not in shown), *states]))

    def below(self, need: Sequence[str]) -> list[str]:
        """The columns to read of a base file to know `need`: `stored`, and the values that states are restored from."""
        return list(dict.fromkeys([*self.stored(need), *(n for m in self.members_of(need) for n in m.below)]))

    def show(self, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` with the visible columns of every hidden state that they have."""
        visible = [
            series
            for member in self.members
            if member.hidden is not None and member.hidden in rows.columns
            for series in member.unpack(rows[member.hidden], member.columns)
        ]
        return rows.with_columns(visible)

    def settle(self, rows: pl.DataFrame, *, seen: bool) -> pl.DataFrame:
        """Rows of a base, with no more state than later commits can ask for. `seen`: as in `Member.settle`."""
        return rows.with_columns(
            member.settle(rows, seen=seen).alias(member.hidden) for member in self.members if member.hidden is not None
        )
