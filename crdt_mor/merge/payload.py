"""The interface of merge functions.

    written ── lift ──► state ── join, merge ──► state ── value ──► the visible value
                                    │      ▲                    │
                                    │      └─────── restore ────┘   once every writer has seen it
                                    └── settle: the part that a compaction may drop

A payload defines the value of a column after several commits wrote it. `join` defines it for two states as Python
values, in the words of a paper. `merge` is the same for all states of a key at once, as a polars expression, for speed.

The table stores a payload by name and parameters, never as an object. Every process resolves the same text to the same
payload (laws/resolve.py), and the law check (laws/check.py) tests the laws of its kind:

    semilattice   join is commutative, associative and idempotent: order and repetition do not matter
    delta         commutative and associative: order does not matter; a commit counts once because it is one instant
    ordered       associative: a fold in the order of requested times, which are unique
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal

import polars as pl
import pyarrow as pa

Kind = Literal["semilattice", "delta", "ordered"]
Nulls = Literal["skip", "value"]
NullsInside = Literal["value", "refuse"]


@dataclass(frozen=True, slots=True)
class Dot:
    """The position of a written value (the dot and the causal context of the CRDT literature).

    Attributes:
        time: the commit's requested time as a number of 17 digits; int64. Later commits have greater times.
        place: the row's position in its commit; int32. `time` and `place` together are unique.
        pending: the requested times of the commits that were pending when this one began, comma-separated. Of all
            earlier requests, the commit cannot have seen these.
    """

    time: pl.Expr
    place: pl.Expr
    pending: pl.Expr


class Payload:
    """A merge function for one column. Only `join` and `examples` are required.

    A payload with parameters is a frozen dataclass whose fields are JSON values.

    Attributes:
        name: `counter/1`, or with an owner, `acme.longest/1`. Tables store it, and its meaning never changes: a new
            meaning is `acme.longest/2`.
        kind: the laws that it obeys: "semilattice", "delta" or "ordered".
        nulls: "skip": nulls are ignored, and neither `join` nor `merge` ever sees one. "value": null is a value.
        nulls_inside: nulls at any depth of a list, struct or map, or in a record's columns. "value": they are ordinary
            values. "refuse": a write with one is refused.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind] = "semilattice"
    nulls: Nulls = "skip"
    nulls_inside: NullsInside = "value"

    def parameters(self) -> Mapping[str, Any]:
        """Return the arguments of an equal payload, as JSON values. A table refuses a payload that differs from its
        copy.
        """
        cls: Any = type(self)
        return {f.name: getattr(self, f.name) for f in fields(cls) if f.init} if is_dataclass(cls) else {}

    # --- columns ------------------------------------------------------------------------------------------------------

    def check(self, column: pa.DataType) -> None:
        """Raise `InvalidInputError` for an unsupported column type; the message names the supported ones."""

    def accepts(self, column: pa.DataType) -> Sequence[pa.DataType]:
        """Return the types in which the column may be written, the preferred first; by default the column's own."""
        return (column,)

    def state(self, column: pa.DataType) -> pa.DataType:
        """Return the type of the state. If it is not the column's own, the table keeps the state in a hidden column."""
        return column

    # --- meaning ------------------------------------------------------------------------------------------------------

    def join(self, a: Any, b: Any) -> Any:
        """Join two states; `a` precedes `b` in the table's order. States are values from `Series.to_list`."""
        raise NotImplementedError(f"{type(self).__name__} lacks a join: write join(a, b)")

    def merge(self, states: pl.Expr) -> pl.Expr:
        """Join all states of a key, in the table's order, as an expression for `group_by(...).agg(...)`.

        Optional: without it, `join` is called pair by pair, a hundred times slower.
        """
        raise NotImplementedError

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        """Convert a written value, of one of the accepted types, to a state. With `nulls="skip"` it never sees null."""
        return written

    def value(self, states: pl.Expr) -> pl.Expr:
        """Convert a state to the visible value, in the column's type."""
        return states

    def assign(self, before: pl.Expr, after: pl.Expr) -> pl.Expr:
        """Return the value to write so that readers see `after` instead of `before`, for `Table.update`.

        Both arguments are in the column's type; the result is too, or in another accepted type. By default the new
        value itself is written. Without a state, an update is refused if the join of `before` and the written value is
        not `after`. With a state, an update requires a custom `assign`, and is refused if that returns null for another
        value. `before` is null if nothing was written, as for a moved row.
        """
        del before
        return after

    def settle(self, states: pl.Expr) -> pl.Expr:
        """Return the part of a *causally stable* state to keep: no later write joins before it.

        Baquero, Almeida, Shoker, "Making operation-based CRDTs operation-based", 2014, section 4.
        """
        return states

    def restore(self, values: pl.Expr) -> pl.Expr:
        """Make a state from a visible value, which is not null and which every later write has seen.

        Optional: with it, a compaction without pending writes keeps no states in the base.
        """
        raise NotImplementedError

    # --- examples -----------------------------------------------------------------------------------------------------

    def examples(self) -> Sequence[Any] | pa.Array:
        """Return about five written values, on which the laws are checked exhaustively."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot be checked: write examples(), which returns a few written values"
        )

    def column(self) -> pa.DataType:
        """Return the type of a column with the examples."""
        examples = self.examples()
        return examples.type if isinstance(examples, pa.Array) else pa.array(examples).type

    @property
    def vectorised(self) -> bool:
        """True if the payload defines `merge`."""
        return type(self).merge is not Payload.merge

    @property
    def assigns(self) -> bool:
        """True if the payload defines `assign`."""
        return type(self).assign is not Payload.assign

    @property
    def restores(self) -> bool:
        """True if the payload defines `restore`."""
        return type(self).restore is not Payload.restore

    @property
    def stateful(self) -> bool:
        return type(self).value is not Payload.value or type(self).state is not Payload.state


class RecordPayload(Payload):
    """A merge function for several columns that decide together: `merge={("price", "priced_at"): ...}`.

    The value is a struct of these columns, in this order; `join` receives dicts. A row with nulls in all of the columns
    is ignored; within a struct, null is a value. `column` is required and returns a struct type.
    """

    def column(self) -> pa.DataType:
        """Return the struct type of the examples."""
        raise NotImplementedError(
            f"the struct type of {type(self).__name__} is unknown: write column(), which returns it"
        )


@dataclass(frozen=True)
class PartialUpdate:
    """An upsert sets some columns of a row and leaves the others unchanged: `merge=PartialUpdate()`.

    For each column, the latest commit that *set* it wins, by requested time; a delete starts the row afresh. This is a
    last-writer-wins map with one register per column.

    Attributes:
        columns: payloads of single columns, as in `merge={...}`.
        nulls: "value": a given null is an ordinary value. "keep": a null in upserted rows leaves the column unchanged,
            except in the columns of `upsert(nulls=...)`.
        unavailable: a value that means "not given", such as `"__debezium_unavailable_value"`: a row with it in a column
            leaves the column unchanged. A text, also as bytes in binary columns, bytes or a number, for all columns of
            such a type; or a dict of them by column.

    Example:
        >>> columns = {"id": "string", "price": "int64", "shelf": "string"}
        >>> shop = mor.Table.create("shop", columns, key="id", merge=mor.PartialUpdate())
        >>> for change in [{"price": 350, "shelf": "A1"}, {"price": 300}]:
        ...     commit = shop.upsert(pl.DataFrame([{"id": "tea", **change}]))
        >>> shop.to_polars().rows()
        [('tea', 300, 'A1')]
    """

    nulls: Literal["value", "keep"] = "value"
    columns: Mapping[Any, Payload | str] = field(default_factory=dict, kw_only=True)
    unavailable: str | bytes | float | Mapping[str, str | bytes | float] | None = field(default=None, kw_only=True)
