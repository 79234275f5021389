"""Collections in the table's order: a map with one register per key, and an append-only log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from crdt_mor import Dot, InvalidInputError, Kind, Payload
from crdt_mor.payloads.flat import by_row, concatenated, each, last_of


@dataclass(frozen=True)
class MapLast(Payload):
    """The last written value of each map key, null included. Keys that a map does not contain stay.

    A map of last-writer-wins registers; Shapiro et al., INRIA RR-7506, 2011, section 3.2.1.
    """

    name: ClassVar[str] = "map_last/1"
    kind: ClassVar[Kind] = "ordered"

    def check(self, column: pa.DataType) -> None:
        if not pa.types.is_map(column):
            raise InvalidInputError(f"MapLast serves maps, such as pa.map_(pa.string(), pa.int64()). type={column}")

    def join(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted({**a, **b}.items()))

    def merge(self, states: pl.Expr) -> pl.Expr:
        return concatenated(states.map.entries(), _last_entries).list.to_map()

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        return each(written.map.entries(), _last_entries).list.to_map()

    def examples(self) -> pa.Array:
        maps = [[], [("a", 1)], [("b", 2), ("a", 3)], [("b", None)], [("c", 0), ("a", None)]]
        return pa.array(maps, pa.map_(pa.string(), pa.int64()))


def _last_entries(items: pl.DataFrame) -> pl.DataFrame:
    named = items.with_columns(name=pl.col("item").struct.field("key"))
    return by_row(named, "name").filter(last_of("row", "name")).select("row", "item")


@dataclass(frozen=True)
class EventList(Payload):
    """The concatenation of all lists, in the table's order; nothing is ever removed.

    The free monoid over its elements. Each commit counts once, so elements need no ids.
    """

    name: ClassVar[str] = "event_list/1"
    kind: ClassVar[Kind] = "ordered"

    def check(self, column: pa.DataType) -> None:
        if not pa.types.is_list(column):
            raise InvalidInputError(f"EventList serves lists, such as pa.list_(pa.string()). type={column}")

    def join(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a + b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.list.explode(keep_nulls=False, empty_as_null=False).implode()

    def examples(self) -> Sequence[list[str | None]]:
        return [[], ["a"], ["b", "a"], [None], ["a", "a"]]
