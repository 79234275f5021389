"""Registers: one value, and a rule for concurrent assignments.

Shapiro, Preguiça, Baquero, Zawirski, "A comprehensive study of Convergent and Commutative Replicated Data Types", INRIA
RR-7506, 2011, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from crdt_mor import Dot, InvalidInputError, Kind, Nulls, Payload, RecordPayload
from crdt_mor.payloads.causal import dotted, settled, unseen
from crdt_mor.payloads.flat import concatenated, each, flat, gathered, last_of, sorted_distinct
from crdt_mor.payloads.scalars import check_scalar, one_zero, order


@dataclass(frozen=True)
class Last(Payload):
    """The last value in the table's order. With `nulls="skip"`, a null leaves the value unchanged.

    The last-writer-wins register with requested times as time stamps; section 3.2.1.
    """

    name: ClassVar[str] = "last/1"
    kind: ClassVar[Kind] = "ordered"
    nulls: Nulls = "value"

    def __post_init__(self) -> None:
        if self.nulls not in ("value", "skip"):
            raise InvalidInputError(f'nulls is "value" or "skip". nulls={self.nulls!r}')

    def join(self, a: Any, b: Any) -> Any:  # noqa: ARG002
        return b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.last()

    def examples(self) -> Sequence[int]:
        return [0, 1, -1]


@dataclass(frozen=True)
class First(Payload):
    """The first non-null value in the table's order: a last-writer-wins register with the order reversed."""

    name: ClassVar[str] = "first/1"
    kind: ClassVar[Kind] = "ordered"

    def join(self, a: Any, b: Any) -> Any:  # noqa: ARG002
        return a

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.first()

    def examples(self) -> Sequence[int]:
        return [0, 1, -1]


@dataclass(frozen=True)
class LatestBy(RecordPayload):
    """The columns of the row with the greatest `by`; the last of equal ones. Null is least, NaN is greatest.

    The last-writer-wins register with its own time stamp, section 3.2.1: `merge={("price", "priced_at"):
    LatestBy("priced_at")}`.

    Example:
        >>> latest = {("price", "at"): LatestBy("at")}
        >>> shop = mor.Table.create("shop", {"id": "string", "price": "int64", "at": "int64"}, key="id", merge=latest)
        >>> for price, at in [(350, 2), (300, 1)]:
        ...     commit = shop.upsert(pl.DataFrame({"id": ["tea"], "price": [price], "at": [at]}))
        >>> shop.to_polars().rows()
        [('tea', 350, 2)]
    """

    name: ClassVar[str] = "latest_by/1"
    kind: ClassVar[Kind] = "ordered"
    by: str

    def check(self, column: pa.DataType) -> None:
        names = [field.name for field in column]
        if self.by not in names:
            raise InvalidInputError(f"LatestBy orders by one of its own columns. by={self.by!r} columns={names}")
        check_scalar(column.field(self.by).type, "LatestBy")

    def join(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return a if order(a[self.by]) > order(b[self.by]) else b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.implode().map_batches(self._latest, is_elementwise=True)

    def examples(self) -> pa.Array:
        times = [0.0, -1.0, 2.0, 2.0, None, float("nan")]
        return pa.array([{"value": i, self.by: time} for i, time in enumerate(times)], self.column())

    def column(self) -> pa.DataType:
        return pa.struct([("value", pa.int64()), (self.by, pa.float64())])

    def _latest(self, rows: pl.Series) -> pl.Series:
        item = pl.col("item")
        lines = flat(rows).with_columns(by=item.struct.field(self.by), there=item.is_not_null())
        return lines.sort("row", "there", "by", nulls_last=False, maintain_order=True).filter(last_of("row"))["item"]


@dataclass(frozen=True)
class MVRegister(Payload):
    """The values of all assignments that no other assignment has seen: a single value unless commits overlap.

    The multi-value register, section 3.2.2. A conflict stays visible until a write that has seen it assigns a single
    value. The column is a list and may be written as a single value; a list assigns all its values, and an empty list
    assigns nothing.

    State: an entry for each value of an assignment that no later assignment has seen (see `causal`), sorted by (time,
    place, value).
    """

    name: ClassVar[str] = "mv_register/1"

    def check(self, column: pa.DataType) -> None:
        if not pa.types.is_list(column):
            raise InvalidInputError(f"MVRegister shows a list of values: declare pa.list_(...). type={column}")
        check_scalar(column.value_type, "MVRegister")

    def accepts(self, column: pa.DataType) -> Sequence[pa.DataType]:
        return (column.value_type, column)

    def state(self, column: pa.DataType) -> pa.DataType:
        dot = [("time", pa.int64()), ("place", pa.int32()), ("pending", pa.string())]
        return pa.list_(pa.struct([("value", column.value_type), *dot]))

    def join(self, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
        entries = {(entry["time"], entry["place"], order(entry["value"])): entry for entry in [*a, *b]}
        of_commit = {time: place for time, place, _ in sorted(entries)}
        last, pending = max(of_commit, default=0), entries[max(entries)]["pending"] if entries else ""
        return [
            entries[dot]
            for dot in sorted(entries)
            if dot[1] == of_commit[dot[0]] and (dot[0] == last or str(dot[0]) in pending)
        ]

    def merge(self, states: pl.Expr) -> pl.Expr:
        return concatenated(states, _unseen)

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        row = pl.struct(written=written, time=dot.time, place=dot.place, pending=dot.pending)
        return pl.when(written.is_not_null()).then(row.map_batches(_assigned, is_elementwise=True))

    def value(self, states: pl.Expr) -> pl.Expr:
        return each(states, _values)

    def assign(self, before: pl.Expr, after: pl.Expr) -> pl.Expr:  # noqa: ARG002
        return pl.when(after.list.len() > 0).then(after)  # which has seen all values that are there

    def settle(self, states: pl.Expr) -> pl.Expr:
        return each(states, _settled)

    def restore(self, values: pl.Expr) -> pl.Expr:
        return each(values, _restored)

    def examples(self) -> Sequence[list[str | None]]:
        return [["a"], ["b"], ["b", "a", "b"], [], [None]]


ENTRY = pl.struct("value", "time", "place", "pending").alias("item")


def _assigned(rows: pl.Series) -> pl.Series:
    written = rows.struct.field("written")
    lists = written if isinstance(written.dtype, pl.List) else written.reshape((-1, 1)).arr.to_list()
    values = sorted_distinct(flat(lists).with_columns(one_zero(pl.col("item"))))
    dots = rows.struct.unnest().drop("written")[values["row"]]
    return gathered(values.rename({"item": "value"}).hstack(dots).select("row", ENTRY), len(rows))


def _unseen(items: pl.DataFrame) -> pl.DataFrame:
    return unseen(items.unnest("item"), "row", by=("time", "place", "value")).select("row", ENTRY)


def _settled(items: pl.DataFrame) -> pl.DataFrame:
    return settled(items.unnest("item"), "row").select("row", ENTRY)


def _restored(items: pl.DataFrame) -> pl.DataFrame:
    return items.select("row", dotted(item="value").alias("item"))


def _values(items: pl.DataFrame) -> pl.DataFrame:
    return sorted_distinct(items.select("row", pl.col("item").struct.field("value").alias("item")))
