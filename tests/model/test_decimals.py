"""Decimals with fewer digits after the point: every number that fits is given, and none that does not."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from crdt_mor.columns.decimals import near_scale
from crdt_mor.columns.schema import TableSchema

REFUSED_BY_ARROW = [2**64 - 1, 2**64 - 2**30, -(2**64 - 1)]
"""Numbers that Arrow's own cast does not take with 14, 15, 17 or 18 digits less."""


def decimals(numbers: list[int], scale: int, precision: int = 38) -> pa.Array:
    build = pa.decimal128 if precision <= 38 else pa.decimal256
    return pa.array([Decimal(number) for number in numbers], build(precision, scale))


@pytest.mark.parametrize("precision", [38, 76])
@pytest.mark.parametrize("scale", range(19))
def test_a_number_without_digits_after_the_point_needs_no_room_for_them(scale: int, precision: int) -> None:
    numbers = [*REFUSED_BY_ARROW, 10**19, 2**63, 2**32 - 1, 0, -1]
    whole = near_scale(decimals(numbers, scale, precision), 0).cast(pa.decimal128(20, 0))
    assert whole.to_pylist() == [Decimal(number) for number in numbers]


def test_a_digit_that_would_be_lost_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        near_scale(pa.array([Decimal("0.1")], pa.decimal128(38, 15)), 0).cast(pa.decimal128(38, 0))


@pytest.mark.parametrize("column", [pa.uint64(), pa.decimal128(20, 0), pa.decimal128(22, 2)], ids=str)
@pytest.mark.parametrize("scale", [14, 15, 17, 18])
def test_a_column_takes_the_greatest_integers_given_as_decimals(column: pa.DataType, scale: int) -> None:
    schema = TableSchema.of(pa.schema([("c", column)]))
    given = decimals([2**64 - 1, 7], scale)
    stored = schema.normalise(pa.table({"c": given}))
    assert stored.column("c").to_pylist() == given.to_pylist()
    nested = TableSchema.of(pa.schema([("c", pa.list_(column))]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), given)
    assert nested.normalise(pa.table({"c": lists})).column("c").to_pylist() == [given.to_pylist()]
