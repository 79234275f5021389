"""Payloads that claim what they do not keep, each beside one that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from crdt_mor import Dot, Payload, RecordPayload
from crdt_mor.merge.payload import Kind


class Numbers(Payload):
    """What the payloads of whole numbers share."""

    name: ClassVar[str] = "acme.numbers/1"

    def examples(self) -> Sequence[Any]:
        return [0, 1, 2, -3, 7]


class Texts(Payload):
    name: ClassVar[str] = "acme.texts/1"

    def examples(self) -> Sequence[Any]:
        return ["", "a", "b", "bb"]


# --- lawful -----------------------------------------------------------------------------------------------------------


class Max(Numbers):
    """With `join` alone."""

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b)


class VectorisedMax(Max):
    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max()


class Longest(Texts):
    """The longest text, of equally long ones the greatest."""

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda text: (len(text), text))


class OrderedLast(Numbers):
    kind: ClassVar[Kind] = "ordered"

    def join(self, a: Any, b: Any) -> Any:
        return b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.last()


class Sum(Numbers):
    kind: ClassVar[Kind] = "delta"

    def join(self, a: Any, b: Any) -> Any:
        return a + b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.sum()


class LastOrNull(OrderedLast):
    """Null is a value like any other."""

    nulls = "value"


class GrowOnlySet(Payload):
    name: ClassVar[str] = "acme.set/1"

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        return written.list.unique().list.sort()

    def join(self, a: Any, b: Any) -> Any:
        return sorted({*a, *b})

    def examples(self) -> Sequence[Any]:
        return [[], ["a"], ["b", "a"], ["c"]]


class LatestPrice(RecordPayload):
    """The later price wins; of two at one time the greater, and null is the least."""

    name: ClassVar[str] = "acme.latest_price/1"

    def column(self) -> pa.DataType:
        return pa.struct({"price": pa.float64(), "at": pa.int64()})

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda row: [(row[name] is not None, row[name] or 0) for name in ("at", "price")])

    def examples(self) -> Sequence[Any]:
        return [{"price": 1.0, "at": 1}, {"price": 2.0, "at": 1}, {"price": 1.0, "at": 2}]


ENTRY = pa.struct({"time": pa.int64(), "place": pa.int32(), "pending": pa.string(), "text": pa.string()})


class Conflicts(Payload):
    """All texts that no later write has seen: a multi-value register."""

    name: ClassVar[str] = "acme.conflicts/1"

    def column(self) -> pa.DataType:
        return pa.list_(pa.string())

    def accepts(self, column: pa.DataType) -> Sequence[pa.DataType]:
        return (pa.string(),)

    def state(self, column: pa.DataType) -> pa.DataType:
        return pa.list_(ENTRY)

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        return pl.concat_list(pl.struct(time=dot.time, place=dot.place, pending=dot.pending, text=written))

    def join(self, a: Any, b: Any) -> Any:
        every = {at(entry): entry for entry in sorted([*a, *b], key=at)}.values()
        return [entry for entry in every if not any(sees(other, entry) for other in every)]

    def value(self, states: pl.Expr) -> pl.Expr:
        return states.list.eval(pl.element().struct.field("text").unique().sort())

    def settle(self, states: pl.Expr) -> pl.Expr:
        """What one write alone leaves was begun before everything to come."""
        alone = states.list.eval(forgetting(pending=pl.lit("")))
        return pl.when(states.list.len() == 1).then(alone).otherwise(states)

    def examples(self) -> Sequence[Any]:
        return ["a", "b", "c"]


def at(entry: dict[str, Any]) -> tuple[int, int]:
    return entry["time"], entry["place"]


def sees(later: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether a write had seen another."""
    return at(entry) < at(later) and str(entry["time"]) not in later["pending"].split(",")


def forgetting(**fields: pl.Expr) -> pl.Expr:
    return pl.element().struct.with_fields(**fields)


LAWFUL: tuple[type[Payload], ...] = (
    Max, VectorisedMax, Longest, OrderedLast, Sum, LastOrNull, GrowOnlySet, LatestPrice, Conflicts,
)  # fmt: skip


# --- unlawful ---------------------------------------------------------------------------------------------------------


class Mean(Payload):
    name: ClassVar[str] = "acme.mean/1"

    def join(self, a: Any, b: Any) -> Any:
        return (a + b) / 2

    def examples(self) -> Sequence[Any]:
        return [0.0, 1.0]


class WholeMean(Mean):
    """Half a number is no whole number."""

    def examples(self) -> Sequence[Any]:
        return [0, 1, 3]


class Last(OrderedLast):
    """As a semilattice it lacks a tie-break."""

    kind: ClassVar[Kind] = "semilattice"


class First(Numbers):
    def join(self, a: Any, b: Any) -> Any:
        return a


class Concatenation(Texts):
    def join(self, a: Any, b: Any) -> Any:
        return a + b


class IdempotentSum(Sum):
    kind: ClassVar[Kind] = "semilattice"


class FloatSum(Sum):
    def examples(self) -> Sequence[Any]:
        return [1.0, 2.0, 3.0]


class StructFloatSum(RecordPayload):
    name: ClassVar[str] = "acme.pair_sum/1"
    kind: ClassVar[Kind] = "delta"

    def column(self) -> pa.DataType:
        return pa.struct({"x": pa.float64(), "n": pa.int64()})

    def join(self, a: Any, b: Any) -> Any:
        return {name: (a[name] or 0) + (b[name] or 0) for name in a}

    def examples(self) -> Sequence[Any]:
        return [{"x": 1.0, "n": 1}, {"x": 2.0, "n": 2}]


class MaxBlindToNulls(Numbers):
    """For `join` null is the greatest, for polars it is not there."""

    nulls = "value"

    def join(self, a: Any, b: Any) -> Any:
        return None if a is None or b is None else max(a, b)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max()


class LastFirst(OrderedLast):
    """The kernel takes the other end."""

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.first()


class UnaggregatedMax(Max):
    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.cum_max()


class CountingMax(Max):
    """Right for two, wrong for three: `merge` is not told what its states stand for."""

    def merge(self, states: pl.Expr) -> pl.Expr:
        return pl.when(states.len() > 2).then(states.min()).otherwise(states.max())


class Picky(Numbers):
    def join(self, a: Any, b: Any) -> Any:
        if {a, b} == {1, 2}:
            raise ValueError("one and two do not go together")
        return max(a, b)


class PythonSet(GrowOnlySet):
    """A set has no order, so that each process would write another list."""

    def join(self, a: Any, b: Any) -> Any:
        return {*a, *b}


class Extending(GrowOnlySet):
    """Changes what it is given."""

    def join(self, a: Any, b: Any) -> Any:
        a.extend(item for item in b if item not in a)
        return sorted(a)


class ForgetfulNull(Numbers):
    def join(self, a: Any, b: Any) -> Any:
        return None if a != b else a


class Narrow(Max):
    """A state in a type that files do not hold."""

    def state(self, column: pa.DataType) -> pa.DataType:
        return pa.duration("us")

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        return pl.duration(microseconds=written)

    def value(self, states: pl.Expr) -> pl.Expr:
        return states.dt.total_microseconds()


class Unlifted(Max):
    """Says that its state is text, and leaves numbers."""

    def state(self, column: pa.DataType) -> pa.DataType:
        return pa.string()


class Unvalued(Max):
    """What readers would see is of another type than the column."""

    def value(self, states: pl.Expr) -> pl.Expr:
        return states.cast(pl.String)


class ColumnMax(Max):
    """Looks at the rows beside: an aggregation where a row is meant."""

    def value(self, states: pl.Expr) -> pl.Expr:
        return states.max()


class ForgetfulConflicts(Conflicts):
    """Without the place of a write, a later one that had not seen it takes it away."""

    def settle(self, states: pl.Expr) -> pl.Expr:
        return states.list.eval(forgetting(time=pl.lit(0, pl.Int64), pending=pl.lit("")))


class HastyConflicts(Conflicts):
    """Two that had not seen each other look as if one had."""

    def settle(self, states: pl.Expr) -> pl.Expr:
        return states.list.eval(forgetting(pending=pl.lit("")))


class LateConflicts(Conflicts):
    """What is restored looks later than what comes after it."""

    def restore(self, values: pl.Expr) -> pl.Expr:
        text = pl.element()
        time, place = pl.lit(10**17, pl.Int64), pl.lit(0, pl.Int32)
        return values.list.eval(pl.struct(time=time, place=place, pending=pl.lit(""), text=text))


class MaxOfSmall(Max):
    """The examples do not show where it goes wrong."""

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b) if max(a, b) < 1000 else b


class Newest(Payload):
    """Takes no null for a time."""

    name: ClassVar[str] = "acme.newest/1"

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda value: (value["at"], value["text"]))

    def examples(self) -> Sequence[Any]:
        return [{"at": 1, "text": "a"}, {"at": 2, "text": "b"}]


class NewestOfKnown(Newest):
    nulls_inside = "refuse"


class NewestOfMany(Newest):
    """Its values are lists of such structs, in which only the last one counts."""

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda value: [(one["at"], one["text"]) for one in value])

    def examples(self) -> Sequence[Any]:
        return [[{"at": 1, "text": "a"}], [{"at": 2, "text": "b"}]]


class TopThree(Payload):
    """Shows more than three numbers until a second commit comes."""

    name: ClassVar[str] = "acme.top/1"
    kind: ClassVar[Kind] = "delta"
    nulls_inside = "refuse"

    def join(self, a: Any, b: Any) -> Any:
        return sorted(a + b, reverse=True)[:3]

    def examples(self) -> Sequence[Any]:
        return [[1], [2], [3, 1]]


class TopTwenty(TopThree):
    """Written in order, so that only a long list shows it."""

    def join(self, a: Any, b: Any) -> Any:
        return sorted(a + b, reverse=True)[:20]

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.explode(empty_as_null=False).sort(descending=True).head(20)


class LiftedTopThree(TopThree):
    """The same, of which a commit alone shows three as well."""

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        return written.list.sort(descending=True).list.head(3)


UNLAWFUL: dict[type[Payload], set[str]] = {
    Mean: {"associative"},
    WholeMean: {"total"},
    Last: {"commutative"},
    First: {"commutative"},
    Concatenation: {"commutative", "idempotent"},
    IdempotentSum: {"idempotent"},
    StructFloatSum: {"associative"},
    MaxBlindToNulls: {"kernel-exact"},
    LastFirst: {"kernel-exact"},
    UnaggregatedMax: {"kernel-exact"},
    CountingMax: {"kernel-exact", "regrouping"},
    Picky: {"total"},
    PythonSet: {"total"},
    ForgetfulNull: {"total"},
    Narrow: {"round-trip"},
    Unlifted: {"total"},
    Unvalued: {"value"},
    ColumnMax: {"value"},
    ForgetfulConflicts: {"settled"},
    HastyConflicts: {"settled"},
    LateConflicts: {"restored"},
    Newest: {"total"},
    NewestOfMany: {"total"},
    TopThree: {"unit"},
    TopTwenty: {"unit", "kernel-exact"},
}
"""Each with the laws that it breaks, all of them. `FloatSum` and `Extending` break more or fewer, see the tests."""

LAWFUL += (LiftedTopThree, NewestOfKnown)
