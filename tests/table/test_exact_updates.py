"""What updates and merges compute is what mathematics says, or is refused: no step wraps around, none is rounded."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.store import MemoryStore
from crdt_mor.write.new_values import new_values

STRUCT = pa.struct([("ys", pa.list_(pa.int64()))])
COLUMNS = {"n": pa.int64(), "m": pa.int64(), "k": pa.int64(), "u": pa.uint64(), "f": pa.float64()}
NESTED = {"xs": pa.list_(pa.int64()), "narrow": pa.list_(pa.int8()), "st": STRUCT}
SCHEMA = pa.schema([("id", pa.string()), *COLUMNS.items(), *NESTED.items(), ("t", pa.timestamp("us"))])

SMALL: dict[str, Any] = {"n": 1, "m": 1, "k": 1, "u": 1, "f": 1.0, "xs": [1], "narrow": [1], "st": {"ys": [1]}}
FAR = datetime(9999, 1, 1)  # noqa: DTZ001
GREAT: dict[str, Any] = {
    "n": 2**62, "m": -(2**63), "k": 3, "u": 2**64 - 1, "f": 0.5,
    "xs": [2**62, 2**62], "narrow": [100], "st": {"ys": [2**62, 2**62]}, "t": FAR,
}  # fmt: skip


def filled() -> Table:
    """Two rows, of which the second has great numbers."""
    table = Table.create("memory", SCHEMA, key="id", opening=Opening(store=MemoryStore()), buckets=1)
    table.upsert(pa.Table.from_pylist([{"id": "a", **SMALL}, {"id": "b", **GREAT}], SCHEMA))
    return table


def _five_less(value: int) -> int:
    return min(value, 2**63) - 5


@pytest.fixture(scope="module")
def unchanged() -> Table:
    """A table for statements that are refused."""
    return filled()


N, M, K, XS = pl.col("n"), pl.col("m"), pl.col("k"), pl.col("xs")
LASTING = N.cast(pl.Duration("us"))

WRAPPING: dict[str, str | pl.Expr] = {
    "then multiplied": "(n + n) * 2",
    "then nothing": "(n + n + n + n) * 0",
    "then a rest": "(n * 4) % 10",
    "minus": "0 - m",
    "ABS": "ABS(m)",
    "a whole quotient": M // -1,
    "cast": "CAST(n + n AS BIGINT)",
    "then a float": "CAST(n * 4 AS DOUBLE) * 0",
    "COALESCE": "COALESCE(n + n, 1)",
    "then a text": "LENGTH(CAST(n + n AS VARCHAR))",
    "POW": "POW(n, 2)",
    "condition": "CASE WHEN n * 4 = 0 THEN 1 ELSE 0 END",
    "without a sign": "(u * 2) // 2",
    "a power beyond 128 bits": N**3,
    "negated": -M,
    "abs": M.abs(),
    "of casts": (N.cast(pl.Int64) * N.cast(pl.Int64)) % 7,
    "list.sum": XS.list.sum(),
    "list.eval": XS.list.eval(pl.element() * 4).list.max(),
    "list.filter": XS.list.filter(pl.element() * 4 > 0).list.len(),
    "product": XS.list.eval(pl.element().product()).list.max(),
    "elements": (XS * 4).list.max(),
    "list in a struct": pl.col("st").struct.field("ys").list.sum(),
    "sum_horizontal": pl.sum_horizontal("n", "n"),
    "concat_list": pl.concat_list(N, N).list.sum(),
    "field of a made struct": pl.struct(N).struct.field("n") * 4,
    "before Python": (N * 4).map_elements(lambda value: value, return_dtype=pl.Int64),
    "after Python": N.map_elements(lambda value: value, return_dtype=pl.Int64) * 4,
    "beside a literal": pl.lit(2**62) * 4 + pl.col("k"),
    "duration": (LASTING + LASTING).dt.total_microseconds(),
    "moment": (pl.col("t") + LASTING * 3).dt.year(),
    "in the default of a replacement": pl.col("id").replace_strict({"a": 1}, default=N * 4),
    "in place of null": pl.when(N == 1).then(1).fill_null(N * 4),
    "beside infinity": pl.when(pl.col("f") == float("inf")).then(1).otherwise(N * 4),
}


@pytest.mark.parametrize("case", WRAPPING)
def test_no_step_on_the_way_to_a_value_wraps_around(unchanged: Table, case: str) -> None:
    with pytest.raises(InvalidInputError, match=r"integer of 64 bits.*CAST.*column=k key=\{'id': '[ab]'\} set="):
        unchanged.update({"k": WRAPPING[case]})
    assert unchanged.scan(columns="k").to_arrow()["k"].to_pylist() == [1, 3]


@pytest.mark.slow
def test_what_can_be_computed_is_what_mathematics_says() -> None:
    table = filled()
    for column, value, becomes in [
        ("k", "CASE WHEN n < 100 THEN n * 4 ELSE 7 END", 7),
        ("k", "CASE WHEN n < 0 THEN 1 WHEN n > 100 THEN 8 ELSE n * 4 END", 8),
        ("k", "COALESCE(k, n * 4)", 8),
        ("k", "u % 1000", 615),
        ("k", "n // 2", 2**61),
        ("k", "n + 1", 2**62 + 1),
        ("k", "n * 1.5", 3 * 2**61),
        ("k", "CAST(n / 2 AS BIGINT)", 2**61),
        ("k", N.cast(pl.Int32, strict=False), None),
        ("k", XS.list.max() - 1, 2**62 - 1),
        ("k", XS.list.len(), 2),
        ("k", "k / 2", 1),
        ("k", 1e18, 10**18),
        ("k", N.map_elements(_five_less, return_dtype=pl.Int64), 2**62 - 5),
        ("u", "u - 1", 2**64 - 2),
        ("u", "u - n", 2**64 - 2 - 2**62),
        ("f", "n / 2", 2.0**61),
        ("xs", XS.list.eval(pl.element() - 1), [2**62 - 1] * 2),
        ("k", XS.list.filter(pl.element() > 1).list.len(), 2),
        ("xs", XS.list.filter(pl.element() < 2**62 - 1), []),
        ("k", M // pl.lit(0), None),
        ("k", "n % 0", None),
        ("k", (N // 2**60).fill_null(N * 4), 4),
        ("f", float("inf"), float("inf")),
        ("f", pl.when(pl.col("f") == float("inf")).then(-float("inf")).otherwise(N * 4), -float("inf")),
        ("k", N.replace({2**62: 6}), 6),
        ("k", pl.col("id").replace_strict({"b": 7}, default=K * 2), 7),
        ("k", (pl.col("t") - pl.col("t")).dt.total_seconds(), 0),
        ("k", pl.when(K.is_in(pl.Series([], dtype=pl.Int64))).then(1).otherwise(2), 2),
    ]:
        table.update({column: value}, where="id = 'b'")
        assert table.scan(columns=[column], filter="id = 'b'").to_arrow()[column].to_pylist() == [becomes], value


ROUNDED: dict[str, tuple[str, str | pl.Expr]] = {
    "halved": ("n", "n / 2"),
    "then a rest": ("n", "(n / 2) % 7"),
    "times a float": ("n", "n * CAST(0.5 AS DOUBLE)"),
    "beside a float": ("n", "CASE WHEN k = 0 THEN CAST(0.5 AS DOUBLE) ELSE n END"),
    "a great float": ("n", "f * CAST(1e18 AS DOUBLE)"),
    "elements": ("xs", XS / 2),
    "mean of elements": ("k", XS.list.mean()),
}


@pytest.mark.parametrize("case", ROUNDED)
def test_no_integer_is_rounded_on_its_way_through_a_float(unchanged: Table, case: str) -> None:
    column, value = ROUNDED[case]
    with pytest.raises(InvalidInputError, match=rf"2\^53.* //, .*CAST.*column={column} key=\{{'id': 'b'\}}"):
        unchanged.update({column: value}, where="id = 'b'")


def test_a_division_by_0_is_no_integer_and_the_error_says_so(unchanged: Table) -> None:
    with pytest.raises(InvalidInputError, match=r"division by 0.*`where`.* //.*column=n key=\{'id': 'b'\}"):
        unchanged.update({"n": "(k + 1) / 0"}, where="id = 'b'")


def test_elements_of_narrow_lists_do_not_wrap_around(unchanged: Table) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column=narrow\.element"):
        unchanged.update({"narrow": pl.col("narrow") * 2})


def peak() -> float:
    """The bytes that this process has held at most."""
    resource = pytest.importorskip("resource")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (2**10 if sys.platform == "linux" else 1)


def test_a_list_that_all_rows_are_compared_with_is_not_held_for_each_of_them() -> None:
    rows = pl.DataFrame({"id": range(8_192), "k": range(8_192)})
    table = Table.create("t", rows, key="id", opening=Opening(store=MemoryStore()))
    table.append(rows)
    listed = [*range(1, 8_192)]
    before = peak()
    table.update({"k": pl.when(K.is_in(listed)).then(K.replace(dict(zip(listed, listed, strict=True)))).otherwise(5)})
    assert table.to_polars().sort("id")["k"].to_list() == [5, *listed]
    assert peak() - before < 8 * len(listed) ** 2 / 2, "half of the bytes of the lists"


def test_a_step_is_not_held_any_longer_than_the_next_one_needs_it() -> None:
    rows, steps, value = 2**19, 40, N
    for _ in range(steps):
        value = value + 1
    frame = pl.DataFrame({"n": pl.int_range(rows, eager=True)})
    before = peak()
    made = new_values(frame, {"n": value}, {"n": pl.Int64()}, lambda _: {})
    assert made["n"].equals(frame["n"] + steps)
    assert peak() - before < 8 * rows * steps / 2, "half of the bytes of all steps"


def test_one_value_for_all_rows_beside_a_literal_is_a_value_of_each() -> None:
    table = filled()
    never = "CASE WHEN LENGTH(id) > 5 THEN id END"
    table.update({"k": f"CASE WHEN COALESCE('x' = {never}, false) THEN 1 ELSE 2 END", "m": f"5 + 0 * LENGTH({never})"})
    assert table.scan().to_polars().select("k", "m").rows() == [(2, None), (2, None)]
    source = pa.table({"id": ["a", "b"], "n": [5, 6]})
    merge = table.merge(source).when_matched_delete("'x' = CASE WHEN target.k > 5 THEN source.id END")
    merge = merge.when_matched_update(
        {"k": "CASE WHEN 'x' = (CASE WHEN target.k > 5 THEN source.id END) THEN 3 ELSE 4 END"}
    )
    assert merge.execute().clauses == (0, 2)
    assert table.scan().to_arrow()["k"].to_pylist() == [4, 4]


SOURCE = pa.table({"id": ["b", "c"], "n": [2**62, 2**62]})


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("matched", "(source.n + target.n) % 7", "column=k key={'id': 'b'}"),
        ("matched", "target.n / 2", "column=k key={'id': 'b'}"),
        ("not matched", "(source.n * 2) % 7", "column=k key={'id': 'c'}"),
        ("condition", "source.n + target.n < 0", "column=condition key={'id': 'b'}"),
        ("condition of an insert", "source.n + source.n < 0", "column=condition key={'id': 'c'}"),
        ("by source", "target.n * 3 // 3", "column=k key={'id': 'b'}"),
    ],
)
def test_a_clause_of_a_merge_is_as_exact(unchanged: Table, kind: str, value: str, said: str) -> None:
    merge = unchanged.merge(SOURCE if kind != "by source" else SOURCE.slice(1))
    match kind:
        case "matched":
            merge = merge.when_matched_update({"k": value})
        case "not matched":
            merge = merge.when_not_matched_insert({"id": "source.id", "k": value})
        case "condition":
            merge = merge.when_matched_delete(value)
        case "condition of an insert":
            merge = merge.when_not_matched_insert({"id": "source.id"}, value)
        case "by source":
            merge = merge.when_not_matched_by_source_update({"k": value})
    with pytest.raises(InvalidInputError) as raised:
        merge.execute()
    assert said in str(raised.value)
    assert unchanged.scan().count() == 2


def test_a_struct_of_computed_values_has_its_own_fields() -> None:
    kind = pa.struct([("one", pa.int64()), ("n", pa.int64()), ("two", pa.int64())])
    table = Table.create(
        "t",
        pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", kind)]),
        key="id",
        opening=Opening(store=MemoryStore()),
    )
    table.upsert(pa.table({"id": [1], "n": [5], "s": pa.nulls(1, kind)}))
    table.update({"s": pl.struct((pl.col("n") + 1).alias("one"), pl.col("n") * 2, pl.lit(2).alias("two"))})
    assert table.to_arrow()["s"].to_pylist() == [{"one": 6, "n": 10, "two": 2}]
    with pytest.raises(InvalidInputError, match="does not fit in an integer of 64 bits"):
        table.update({"s": pl.struct((pl.col("n") * 2**62).alias("one"), pl.lit(2).alias("two"))})
