"""What a merge function must say of itself.

    written ── lift ──► state ── join, merge ──► state ── value ──► what readers see
                                    │      ▲                    │
                                    │      └─────── restore ────┘   once everybody has seen it
                                    └── settle: what a compaction may forget

A payload says what a column means when several commits wrote it. `join` is the meaning, for two states as Python
values, in the words of a paper; `merge` is the same for all states of a key at once, as a polars expression, for speed.
Without `lift` and `value` of its own, a payload's written value, state and visible value are one and the same.

The table stores a payload by name and parameters, never as an object: every process, reader or writer, resolves the
same text to the same meaning (laws/resolve.py), and the law check (laws/check.py) holds it to the laws of its kind:

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
    """Where a written value stands among all others (the dot and the causal context of the CRDT literature).

    time: the commit's requested time as a number of 17 digits; int64, greater for whatever comes later in the table.
    place: where the row stands in its commit; int32. `time` and `place` together are unique.
    pending: the requested times, as text and joined by commas, of the commits that were under way when this one began.
        Of all that is requested before it, these alone it cannot have seen.
    """

    time: pl.Expr
    place: pl.Expr
    pending: pl.Expr


class Payload:
    """A merge function for one column. `join` and `examples` are all that one must write.

    name: `counter/1`, or with an owner, `acme.longest/1`. It is stored in tables, and its meaning never changes: what
        means something else is `acme.longest/2`.
    kind: the laws that it claims, see the module.
    nulls: "skip": null says nothing, and neither `join` nor `merge` ever meets one; "value": null is a value.
    nulls_inside: nulls at any depth of a list, a struct or a map, or in a record's columns; "value": they are values as
        any other; "refuse": they are none of its values, and a write that has one is refused.

    A payload with parameters is a frozen dataclass whose fields are JSON values.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind] = "semilattice"
    nulls: Nulls = "skip"
    nulls_inside: NullsInside = "value"

    def parameters(self) -> Mapping[str, Any]:
        """The arguments that make an equal payload; JSON values. A table refuses a payload that they make otherwise."""
        cls: Any = type(self)
        return {f.name: getattr(self, f.name) for f in fields(cls) if f.init} if is_dataclass(cls) else {}

    # --- what columns it serves -----------------------------------------------------------------------------------

    def check(self, column: pa.DataType) -> None:
        """Raise `InvalidInputError` for a stored column type that the payload does not serve, and say which it does."""

    def accepts(self, column: pa.DataType) -> Sequence[pa.DataType]:
        """The types in which the column may be written, the preferred first; by default the column's own."""
        return (column,)

    def state(self, column: pa.DataType) -> pa.DataType:
        """The type of the state. Where it is not the column's own, the table keeps it in a hidden column."""
        return column

    # --- what it means --------------------------------------------------------------------------------------------

    def join(self, a: Any, b: Any) -> Any:
        """The state of both: `a` comes before `b` in the table's order. States are values as `Series.to_list` gives."""
        raise NotImplementedError(f"{type(self).__name__} says nothing of what it means: write join(a, b)")

    def merge(self, states: pl.Expr) -> pl.Expr:
        """`join` of all states of a key, in the table's order, as an expression for `group_by(...).agg(...)`.

        Optional: without it `join` is called pair by pair, a hundred times slower.
        """
        raise NotImplementedError

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        """The state of one written value, which is of one of the types that it `accepts`. Never sees null if it skips
        nulls."""
        return written

    def value(self, states: pl.Expr) -> pl.Expr:
        """What readers see of a state, in the column's type."""
        return states

    def assign(self, before: pl.Expr, after: pl.Expr) -> pl.Expr:
        """What a write gives so that readers see `after` where they saw `before`: for `Table.update`.

        Both are in the column's type; so is the answer, or in another type that `accepts` names. By default the new
        value itself is written. An update of a payload that keeps no state is refused where the join of `before` and
        what is written is not `after`; one that keeps a state is only updated with an `assign` of its own, and not
        where that gives null for another value. `before` is null where nothing was written, as where a row comes by a
        move.
        """
        del before
        return after

    def settle(self, states: pl.Expr) -> pl.Expr:
        """What is left to remember of a state that is *causally stable*: nothing will ever be joined before it.

        Baquero, Almeida, Shoker, "Making operation-based CRDTs operation-based", 2014, section 4.
        """
        return states

    def restore(self, values: pl.Expr) -> pl.Expr:
        """A state that does for a visible value (never null) whose writes every later one has seen.

        Optional: with it, a compaction beside which nothing is pending keeps no states in the base at all.
        """
        raise NotImplementedError

    # --- what it is checked on ------------------------------------------------------------------------------------

    def examples(self) -> Sequence[Any] | pa.Array:
        """A small world of written values, five or so, on which the laws are checked exhaustively."""
        raise NotImplementedError(f"{type(self).__name__} cannot be checked: write examples(), a few written values")

    def column(self) -> pa.DataType:
        """The type of a column that holds the examples."""
        examples = self.examples()
        return examples.type if isinstance(examples, pa.Array) else pa.array(examples).type

    @property
    def vectorised(self) -> bool:
        """Whether the payload has a `merge`."""
        return type(self).merge is not Payload.merge

    @property
    def assigns(self) -> bool:
        """Whether the payload has an `assign`."""
        return type(self).assign is not Payload.assign

    @property
    def restores(self) -> bool:
        """Whether the payload has a `restore`."""
        return type(self).restore is not Payload.restore

    @property
    def stateful(self) -> bool:
        """Whether written value, state and visible value can differ."""
        return type(self).value is not Payload.value or type(self).state is not Payload.state


class RecordPayload(Payload):
    """A merge function for several columns that decide together: `merge={("price", "priced_at"): ...}`.

    The value is a struct of these columns, in this order; in `join` a dict. `column` must be said, a struct type. A row
    in which all of the columns are null says nothing; within a struct, null is a value.
    """

    def column(self) -> pa.DataType:
        """The struct type of the examples."""
        raise NotImplementedError(f"{type(self).__name__} must say the struct type of its examples: write column()")


@dataclass(frozen=True)
class PartialUpdate:
    """An upsert gives some columns of a row, and leaves the others to other writers: `merge=PartialUpdate()`.

    Per column, the latest commit that *gave* it wins, by requested time; a delete starts the row afresh. A last-writer-
    wins map with one register a column. `columns` have payloads of their own, as in `merge={...}`.
    `nulls="value"`: a given null is a value like any other. `nulls="keep"`: a null keeps what was there.
    """

    nulls: Literal["value", "keep"] = "value"
    columns: Mapping[Any, Payload | str] = field(default_factory=dict, kw_only=True)
