"""Extremes: `join` returns the greater or the lesser of two values.

Shapiro, Preguiça, Baquero, Zawirski, "A comprehensive study of Convergent and Commutative Replicated Data Types", INRIA
RR-7506, 2011, section 2: values that only grow in a join-semilattice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from crdt_mor import Dot, Payload
from crdt_mor.payloads.scalars import check_scalar, one_zero, order


@dataclass(frozen=True)
class Max(Payload):
    """The greatest value. NaN is greater than every number; -0.0 becomes 0.0."""

    name: ClassVar[str] = "max/1"

    def check(self, column: pa.DataType) -> None:
        check_scalar(column, "Max")

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=order)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.nan_max()

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        return one_zero(written)

    def examples(self) -> Sequence[float]:
        return [0.0, -0.0, -1.5, 7.0, float("inf"), float("nan")]


@dataclass(frozen=True)
class Min(Payload):
    """The least value. NaN is greater than every number; -0.0 becomes 0.0."""

    name: ClassVar[str] = "min/1"

    def check(self, column: pa.DataType) -> None:
        check_scalar(column, "Min")

    def join(self, a: Any, b: Any) -> Any:
        return min(a, b, key=order)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.min()

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:  # noqa: ARG002
        return one_zero(written)

    def examples(self) -> Sequence[float]:
        return [0.0, -0.0, -1.5, 7.0, float("-inf"), float("nan")]
