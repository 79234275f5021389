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
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.columns.schema import TableSchema
from crdt_mor.read.pushdown import LISTED_MAX, parquet_form

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


@pytest.mark.slow
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


@pytest.mark.slow
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


LISTS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "texts": (pa.string(), "k{:03}".format),
    "integers": (pa.int64(), lambda i: i),
    "floats": (pa.float64(), lambda i: -i / 2),
    "moments": (pa.timestamp("us", "UTC"), lambda i: pl.Series([i * 10**9]).cast(pl.Datetime("us", "UTC"))[0]),
}


@pytest.mark.costly
@pytest.mark.parametrize("what", LISTS)
@settings(max_examples=30)
@given(
    asked=st.lists(st.integers(0, 200), min_size=LISTED_MAX + 1, max_size=150, unique=True),
    there=st.lists(st.one_of(st.none(), st.integers(0, 200)), min_size=2, max_size=60),
    nulls_equal=st.booleans(),
)
def test_a_long_list_finds_what_a_short_one_does(
    what: str, asked: list[int], there: list[int | None], nulls_equal: bool
) -> None:
    kind, value = LISTS[what]
    series = pl.Series("c", pa.array([], kind))
    rows = pl.DataFrame(pl.Series("c", [None if i is None else value(i) for i in there], series.dtype))
    values = pl.Series([*map(value, asked), *([None] if nulls_equal else [])], dtype=series.dtype)
    condition = pl.col("c").is_in(values.implode(), nulls_equal=nulls_equal)
    form, rows_there = found(rows, condition, {"c": kind})
    assert list(map(repr, rows_there)) == list(map(repr, rows.filter(condition).rows()))
    assert "Series" in str(form), "not a list of literals, of which polars plans each by itself"


def test_a_long_list_is_held_against_the_statistics() -> None:
    condition = pl.col("c").is_in([f"k{i:03}" for i in range(100)])
    form = parquet_form(condition, TableSchema.of(pa.schema([("c", pa.string())])))
    assert form is not None
    bounds = pl.DataFrame({"c_min": ["a", "k050", "l"], "c_max": ["b", "k060", "m"], "c_nc": [0, 0, 0], "len": [9] * 3})
    skip = form._skip_batch_predicate({"c": pl.String()})
    assert skip is not None
    assert bounds.select(skip.alias("skip"))["skip"].fill_null(value=False).to_list() == [True, False, True]
