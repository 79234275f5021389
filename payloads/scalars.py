"""Ordered values, null first and NaN last: `join` compares them as polars does."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pyarrow as pa
from pyarrow import types

from crdt_mor import InvalidInputError

EXACT = "booleans, integers, decimals, strings, binary, dates or timestamps"


def order(value: Any) -> tuple[int, Any]:
    """Return a sort key for Python values in the order of a polars sort."""
    if value is None:
        return (0, None)
    return (2, None) if isinstance(value, float) and math.isnan(value) else (1, value)


def one_zero(values: pl.Expr) -> pl.Expr:
    """Replace -0.0 with 0.0. They are equal, and the kept value must not depend on the order."""

    def positive(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return pl.when(column != 0).then(column).otherwise(column.abs()) if kind.is_float() else column

    return values.pipe_with_dtype(positive)


def _is_exact(kind: pa.DataType) -> bool:
    tests = (types.is_boolean, types.is_integer, types.is_decimal, types.is_string, types.is_binary, types.is_date)
    return types.is_timestamp(kind) or any(test(kind) for test in tests)


def check_scalar(kind: pa.DataType, payload: str) -> None:
    if not _is_exact(kind) and not types.is_floating(kind):
        raise InvalidInputError(f"{payload} serves floats, {EXACT}: a {kind} has no order. type={kind}")


def check_set(column: pa.DataType, payload: str) -> None:
    if not types.is_list(column):
        raise InvalidInputError(f"{payload} serves lists, such as pa.list_(pa.string()). type={column}")
    if types.is_floating(column.value_type):
        raise InvalidInputError(
            f"{payload} refuses floats: NaN is not equal to itself, and -0.0 is equal to 0.0. Use decimals or strings. "
            f"type={column}"
        )
    if not _is_exact(column.value_type):
        raise InvalidInputError(f"{payload} serves lists of {EXACT}: a {column.value_type} has no order. type={column}")
