"""Flags that change once: the two smallest semilattices. `Any` is the enable-once flag of the CRDT literature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl
import pyarrow as pa

from crdt_mor import InvalidInputError, Payload


def _check_bool(column: pa.DataType, payload: str) -> None:
    if not pa.types.is_boolean(column):
        raise InvalidInputError(f"{payload} serves booleans. type={column}")


@dataclass(frozen=True)
class Any(Payload):
    """True if any commit wrote true."""

    name: ClassVar[str] = "any/1"

    def check(self, column: pa.DataType) -> None:
        _check_bool(column, "Any")

    def join(self, a: bool, b: bool) -> bool:
        return a or b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.any()

    def examples(self) -> Sequence[bool]:
        return [False, True]


@dataclass(frozen=True)
class All(Payload):
    """True if no commit wrote false."""

    name: ClassVar[str] = "all/1"

    def check(self, column: pa.DataType) -> None:
        _check_bool(column, "All")

    def join(self, a: bool, b: bool) -> bool:
        return a and b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.all()

    def examples(self) -> Sequence[bool]:
        return [False, True]
