"""Sets, visible as sorted lists without repetition.

Shapiro, Preguiça, Baquero, Zawirski, "A comprehensive study of Convergent and Commutative Replicated Data Types", INRIA
RR-7506, 2011, section 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from crdt_mor import Dot, Payload
from crdt_mor.payloads.causal import dotted, settled, unseen
from crdt_mor.payloads.flat import by_row, concatenated, each, flat, gathered, last_of, sorted_distinct
from crdt_mor.payloads.scalars import check_set


@dataclass(frozen=True)
class GrowOnlySet(Payload):
    """All written elements: the G-Set. Null in a list is no element."""

    name: ClassVar[str] = "grow_set/1"

    def check(self, column: pa.DataType) -> None:
        check_set(column, "GrowOnlySet")

    def join(self, a: list[Any], b: list[Any]) -> list[Any]:
        return sorted({*a, *b})

    def merge(self, states: pl.Expr) -> pl.Expr:
        return concatenated(states, sorted_distinct)

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        return each(written, sorted_distinct)

    def examples(self) -> Sequence[list[str | None]]:
        return [[], ["b", "a", "b"], ["c"], [None, "a"], [""]]


@dataclass(frozen=True)
class ORSet(Payload):
    """A set with removal. A remove deletes the adds that it has seen, so an add wins over a concurrent remove.

    The observed-remove set, without permanent tombstones as in Bieniusa, Zawirski, Preguiça, Shapiro, Baquero, Balegas,
    Duarte, "An optimized conflict-free replicated set", INRIA RR-8083, 2012. The column is a list; write a list of
    elements to add, or a struct of two lists, `add` and `remove`. An element in both lists is added.

    State: the operations that no later operation on the same element has seen (see `causal`), sorted by (element, time,
    place). The set contains an element with an add among them. `place` is twice the row's, and one less for a removal:
    a row removes first and then adds, and even places are adds.

    Example:
        >>> columns = {"id": pl.String, "tags": pl.List(pl.String)}
        >>> pages = mor.Table.create("pages", columns, key="id", merge={"tags": ORSet()})
        >>> for tags in [["new", "hot"], {"add": ["top"], "remove": ["new"]}]:
        ...     commit = pages.upsert(pl.DataFrame({"id": ["home"], "tags": [tags]}))
        >>> pages.to_polars().rows()
        [('home', ['hot', 'top'])]
    """

    name: ClassVar[str] = "or_set/1"

    def check(self, column: pa.DataType) -> None:
        check_set(column, "ORSet")

    def accepts(self, column: pa.DataType) -> Sequence[pa.DataType]:
        return (column, pa.struct([("add", column), ("remove", column)]))

    def state(self, column: pa.DataType) -> pa.DataType:
        dot = [("time", pa.int64()), ("place", pa.int32()), ("pending", pa.string())]
        return pa.list_(pa.struct([("element", column.value_type), *dot]))

    def join(self, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
        operations = sorted([*a, *b], key=itemgetter("element", "time", "place"))
        of_commit = {(operation["element"], operation["time"]): operation for operation in operations}
        last = {operation["element"]: operation for operation in operations}
        return [
            operation
            for (element, time), operation in of_commit.items()
            if operation is last[element] or str(time) in last[element]["pending"]
        ]

    def merge(self, states: pl.Expr) -> pl.Expr:
        return concatenated(states, _unseen)

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        row = pl.struct(written=written, time=dot.time, place=dot.place, pending=dot.pending)
        return pl.when(written.is_not_null()).then(row.map_batches(_operations, is_elementwise=True))

    def value(self, states: pl.Expr) -> pl.Expr:
        return each(states, _elements)

    def settle(self, states: pl.Expr) -> pl.Expr:
        return each(states, _settled)

    def assign(self, before: pl.Expr, after: pl.Expr) -> pl.Expr:
        # An update has seen every add of what it removes, so all of them go.
        # A set to which something was written is never null again, so that nothing is said of null.
        adds = pl.when(before.is_null()).then(after).otherwise(after.list.set_difference(before))
        return pl.when(after.is_not_null()).then(pl.struct(add=adds, remove=before.list.set_difference(after)))

    def restore(self, values: pl.Expr) -> pl.Expr:
        return each(values, _restored)

    def examples(self) -> pa.Array:
        column = self.column()
        sides = [([], []), (["a"], []), ([], ["a"]), (["b", "a", None], ["c"]), (["c"], ["b", "c"]), (None, ["b"])]
        return pa.array([{"add": add, "remove": remove} for add, remove in sides], self.accepts(column)[1])

    def column(self) -> pa.DataType:
        return pa.list_(pa.string())


OPERATION = pl.struct("element", "time", "place", "pending").alias("item")
ADDS = pl.col("place") % 2 == 0


def _operations(rows: pl.Series) -> pl.Series:
    written = rows.struct.field("written")
    if isinstance(written.dtype, pl.Struct):
        adds, removes = written.struct.field("add"), written.struct.field("remove")
    else:
        adds, removes = written, written.clear(len(rows))
    both = pl.concat([flat(removes).with_columns(step=-1), flat(adds).with_columns(step=0)])
    wins = by_row(both.drop_nulls("item"), "item").filter(last_of("row", "item"))
    dots = rows.struct.unnest().drop("written")[wins["row"]]
    lines = wins.rename({"item": "element"}).hstack(dots).with_columns(place=2 * pl.col("place") + pl.col("step"))
    return gathered(lines.select("row", OPERATION), len(rows))


def _unseen(items: pl.DataFrame) -> pl.DataFrame:
    return unseen(by_row(items.unnest("item"), "element"), "row", "element").select("row", OPERATION)


def _settled(items: pl.DataFrame) -> pl.DataFrame:
    return settled(items.unnest("item").filter(ADDS), "row", "element").select("row", OPERATION)


def _restored(items: pl.DataFrame) -> pl.DataFrame:
    return items.select("row", dotted(item="element").alias("item"))


def _elements(items: pl.DataFrame) -> pl.DataFrame:
    added = items.unnest("item").filter(ADDS).filter(last_of("row", "element"))
    return added.select("row", item="element")
