"""Counters. A commit writes an increment or a decrement; the visible value is their sum.

The operation-based counter of Shapiro et al., "A comprehensive study of Convergent and Commutative Replicated Data
Types", INRIA RR-7506, 2011, section 3.1. It requires exactly-once delivery, which the table provides: each commit
counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from crdt_mor import InvalidInputError, Kind, Payload
from crdt_mor.errors import PayloadError

WIDE = Context(prec=40)


@dataclass(frozen=True)
class Counter(Payload):
    """The sum of all written values. A total beyond the column's range raises an error and is never wrong.

    Example:
        >>> pages = mor.Table.create("pages", {"id": "string", "n": "int64"}, key="id", merge={"n": Counter()})
        >>> for n in [3, 2]:
        ...     commit = pages.upsert(pl.DataFrame({"id": ["home"], "n": [n]}))
        >>> pages.to_polars().rows()
        [('home', 5)]
    """

    name: ClassVar[str] = "counter/1"
    kind: ClassVar[Kind] = "delta"

    def check(self, column: pa.DataType) -> None:
        if pa.types.is_floating(column):
            raise InvalidInputError(
                "Counter refuses floats: floating-point sums are not associative: the total would depend on the order "
                "and on when a compaction ran; use decimal(38, s), or int64 of a smaller unit. "
                f"type={column}"
            )
        if column != pa.int64() and not pa.types.is_decimal128(column):
            raise InvalidInputError(f"Counter serves int64 and decimals: declare the column int64. type={column}")

    def join(self, a: Any, b: Any) -> Any:
        total = WIDE.add(a, b) if isinstance(a, Decimal) else a + b
        fits = len(total.as_tuple().digits) <= 38 if isinstance(total, Decimal) else -(2**63) <= total < 2**63
        if not fits:
            raise _too_large(total)
        return total

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.pipe_with_dtype(_sum)

    def assign(self, before: pl.Expr, after: pl.Expr) -> pl.Expr:
        return pl.when(before.is_null()).then(after).otherwise(after - before)

    def examples(self) -> Sequence[int]:
        return [0, 1, -1, 40, -(10**12)]


def _sum(states: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Sum in 128 bits. Such sums wrap around silently; a rough sum of floats detects it."""
    digits = states.to_physical().cast(pl.Int128)
    total, rough = digits.sum(), digits.cast(pl.Float64).sum()
    if isinstance(kind, pl.Decimal):
        fits = (rough.abs() < 1.5e38) & (total.abs() < 10**38)
        return pl.when(fits).then(states.sum()).map_batches(lambda s: _narrow(s, kind), kind, is_elementwise=True)
    return total.map_batches(lambda s: _narrow(s, kind), kind, is_elementwise=True)


def _narrow(totals: pl.Series, kind: pl.DataType) -> pl.Series:
    narrow = totals.cast(kind, strict=False)
    if narrow.null_count():
        raise _too_large(totals.filter(narrow.is_null())[0])
    return narrow


def _too_large(total: Any) -> PayloadError:
    return PayloadError(
        "a counter's total is too large for its column: widen the column with alter(widen=), up to decimal(38, s), or "
        f"delete the key and write its value anew. total={'over 38 digits' if total is None else total}"
    )
