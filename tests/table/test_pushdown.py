"""What goes down to Parquet of a condition holds for exactly the rows for which the condition does."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.columns.schema import TableSchema
from crdt_mor.read.pushdown import parquet_form

Compare = Callable[[Any, Any], pl.Expr]

LIMITS: dict[pl.DataType, int] = {pl.Int32(): 2**31, pl.Int64(): 2**63}
ARROW: dict[pl.DataType, pa.DataType] = {pl.Int32(): pa.int32(), pl.Int64(): pa.int64()}
EDGES = [0, 1, 5, 2**24, 2**31, 2**53, 2**63, 2**64]
COMPARED: dict[str, Compare] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne,
    "mirrored <": lambda column, number: pl.lit(number) < column,
    "is": lambda column, number: column.eq_missing(number),
    "between": lambda column, number: column.is_between(number, number),
}  # fmt: skip
INTEGERS = st.builds(lambda edge, sign, by: sign * edge + by, st.sampled_from(EDGES), st.sampled_from([1, -1]),
                     st.integers(-3, 3))  # fmt: skip
FLOATS = st.one_of(
    st.builds(lambda whole, by: float(whole) + by, INTEGERS, st.sampled_from([0.0, 0.5, -0.25])),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e300, -1e300, 5e-324]),
)


def found(rows: pl.DataFrame, condition: pl.Expr, kinds: dict[str, pa.DataType]) -> tuple[pl.Expr, list[Any]]:
    """What goes down, and the rows that a file of two row groups gives for it."""
    form = parquet_form(condition, TableSchema.of(pa.schema(list(kinds.items()))))
    assert form is not None, f"nothing goes down of {condition}"
    file = io.BytesIO()
    rows.write_parquet(file, row_group_size=-(-rows.height // 2))
    return form, pl.scan_parquet(file.getvalue()).filter(form).collect().rows()


@given(
    kind=st.sampled_from(list(LIMITS)),
    values=st.lists(st.one_of(INTEGERS, st.none()), min_size=2, max_size=12),
    compare=st.sampled_from(list(COMPARED)),
    number=FLOATS,
    narrow=st.booleans(),
)
def test_integers_beside_a_float_are_found_by_integers(
    kind: pl.DataType, values: list[int | None], compare: str, number: float, narrow: bool
) -> None:
    limit = LIMITS[kind]
    rows = pl.DataFrame({"n": [v for v in values if v is None or -limit <= v < limit]}, schema={"n": kind})
    literal = pl.lit(number, pl.Float32) if narrow and compare != "mirrored <" else number
    condition = COMPARED[compare](pl.col("n"), literal)
    form, there = found(rows, condition, {"n": ARROW[kind]}) if rows.height else (None, [])
    assert there == rows.filter(condition).rows()
    assert "cast" not in str(form)


@given(
    values=st.lists(st.one_of(INTEGERS, st.none()), min_size=2, max_size=12),
    compare=st.sampled_from(["<", "<=", ">", ">=", "="]),
    whole=INTEGERS,
    part=st.sampled_from(["0", "5", "25", "000000001"]),
)
def test_integers_beside_a_number_with_a_point_in_sql_are_found_by_integers(
    values: list[int | None], compare: str, whole: int, part: str
) -> None:
    rows = pl.DataFrame({"n": [v for v in values if v is None or -(2**63) <= v < 2**63]}, schema={"n": pl.Int64})
    condition = pl.sql_expr(f"n {compare} {whole}.{part}")
    exact = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq}[compare]
    expected = [(v,) for v in rows["n"] if v is not None and exact(Decimal(v), Decimal(f"{whole}.{part}"))]
    assert found(rows, condition, {"n": pa.int64()})[1] == expected if rows.height else True
