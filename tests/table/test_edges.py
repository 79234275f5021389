"""Filters at the edges of types: what they give is what polars gives of the whole frame, wherever the rows lie.

Statistics of row groups tell of a column's least and greatest value, and nothing of what arithmetic or a cast makes of
them; below a log lie values that no reader sees, and of which a condition may fail.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import reduce
from operator import add, and_, eq, floordiv, ge, gt, le, lt, mod, mul, ne, or_, sub, truediv, xor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from crdt_mor import PartialUpdate, Table
from crdt_mor.cli.main import app
from crdt_mor.errors import InvalidInputError
from crdt_mor.readers.polars import scan_table
from tests.tiers import long, slow

UTC = dt.UTC
NAN, INF = float("nan"), float("inf")
EDGES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "i32": (pa.int32(), [-(2**31), -1, 0, 1, 1000, 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 3, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1]),
    "u64": (pa.uint64(), [0, 1, 2**53 + 1, 2**63, 2**64 - 1]),
    "f32": (pa.float32(), [-INF, -1.5, -0.0, 0.0, 0.1, 16777216.0, 3e38, INF, NAN]),
    "f64": (pa.float64(), [-INF, -1.5, -0.0, 0.0, 5e-324, 0.1, 0.5, 2.0**53, 1e308, INF, NAN]),
    "dec": (pa.decimal128(10, 2), [Decimal(x) for x in ("-99999999.99", "-0.01", "0.00", "0.10", "99999999.99")]),
    "s": (pa.string(), ["", "1", "-5", "12", "a", "a" * 70, "a" * 70 + "b", "é", "\U0001f600", "2024-02-29"]),
    "d": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
    "t": (pa.timestamp("us", "UTC"), [dt.datetime(y, 1, 1, 0, 0, 0, 1, UTC) for y in (1, 1969, 2024, 9999)]),
    "local": (pa.timestamp("ms"), [dt.datetime(y, 1, 1) for y in (1, 1970, 2024, 9999)]),  # noqa: DTZ001
    "b": (pa.bool_(), [True, False]),
    "x": (pa.binary(), [b"", b"\x00", b"a", b"\xff"]),
}
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in EDGES.items())])
ROWS = 48


def some(numbers: range, step: int = 1) -> pa.Table:
    """Rows whose columns go through their edges, each at a pace of its own, with nulls in between."""
    columns = {"id": pa.array(numbers, pa.int64())}
    for pace, (name, (kind, edges)) in enumerate(EDGES.items()):
        values = [*edges, None]
        columns[name] = pa.array([values[n * step // (1 + pace % 4) % len(values)] for n in numbers], kind)
    return pa.table(columns, SCHEMA)


def hidden(numbers: range) -> pa.Table:
    """Rows of which no reader sees more than the key: others of that key follow."""
    columns = {name: pa.array([edges[-1]] * len(numbers), kind) for name, (kind, edges) in EDGES.items()}
    columns["s"] = pa.array(["no number"] * len(numbers))
    return pa.table({"id": pa.array(numbers, pa.int64()), **columns}, SCHEMA)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """The same rows three times: in logs, in logs above base files, and in base files of few rows each."""
    folder = tmp_path_factory.mktemp("edges")
    found = {}
    for name in ("logs", "logs above bases", "bases"):
        found[name] = table = Table.create(folder / name, SCHEMA, key="id", buckets=6)
        table.upsert(hidden(range(0, ROWS, 2)))
        table.upsert(some(range(1, ROWS, 2)))
        if name != "logs":
            table.maintenance.compact()
        table.upsert(some(range(0, ROWS, 2)))
        if name == "bases":
            table.maintenance.compact()
    return found


# --- conditions -------------------------------------------------------------------------------------------------------

COMPARED = (eq, ne, lt, le, gt, ge)
SIGNS = ("=", "<>", "<", "<=", ">", ">=")
NUMBERS = ["i8", "i32", "i64", "u64", "f32", "f64", "dec"]
TYPES = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt64, pl.Float32, pl.Float64, pl.String, pl.Boolean]


def value(draw: random.Random, name: str) -> Any:
    """A value to compare a column with, often of another type or out of its range."""
    if name in NUMBERS:
        return draw.choice([v for other in (name, name, *NUMBERS) for v in EDGES[other][1]] + [2**70, 1.5, 1000, 7])
    return draw.choice(EDGES[name][1])


def atom(draw: random.Random) -> pl.Expr:
    """A condition on one column or two."""
    name = draw.choice(list(EDGES))
    column, compare, one = pl.col(name), draw.choice(COMPARED), value(draw, name)
    ways: list[Callable[[], pl.Expr]] = [
        lambda: compare(column, one),
        lambda: compare(pl.lit(one), column),
        lambda: compare(column, pl.lit(one, draw.choice(TYPES))),
        column.is_null,
        column.is_not_null,
        lambda: column.eq_missing(one),
        lambda: column.ne_missing(one),
        lambda: column.is_in([value(draw, name) for _ in range(3)]),
        lambda: column.is_in([*EDGES[name][1][:2], None], nulls_equal=draw.random() < 0.5),
        lambda: column.is_between(one, value(draw, name), closed=draw.choice(["both", "left", "right", "none"])),
        lambda: compare(column, pl.col(draw.choice(list(EDGES)))),
        lambda: compare(column.cast(draw.choice(TYPES), strict=draw.random() < 0.3), value(draw, draw.choice(NUMBERS))),
        lambda: pl.sql_expr(f"{name} {draw.choice(SIGNS)} {text(one)}"),
        lambda: pl.sql_expr(f"{text(one)} {draw.choice(SIGNS)} {name}"),
        lambda: pl.sql_expr(f"{name} BETWEEN {text(one)} AND {text(value(draw, name))}"),
        lambda: pl.sql_expr(f"{name} IN ({text(one)}, {text(value(draw, name))})"),
        lambda: pl.sql_expr(f"CAST({name} AS {draw.choice(['BIGINT', 'DOUBLE', 'TINYINT', 'VARCHAR'])}) > 4"),
    ]
    if name in NUMBERS:
        work = draw.choice([add, sub, mul, floordiv, mod, truediv])
        other = draw.choice([2, 1000, -1, 0, 2**31, 0.5, pl.col(draw.choice(NUMBERS))])
        ways += [lambda: compare(work(column, other), value(draw, name)), lambda: compare(-column, one)] * 3
        ways += [lambda: compare(column.abs(), one), lambda: compare(column**2, one)]
        ways += [lambda: pl.sql_expr(f"{name} * {draw.choice([1000, -1, 2**31])} {draw.choice(SIGNS)} 0")] * 3
    if name == "s":
        ways += [
            lambda: column.str.starts_with(one[:1]),
            lambda: column.str.contains(one, literal=True),
            lambda: compare(column.str.len_bytes(), 2),
            lambda: compare(column.str.to_integer(strict=draw.random() < 0.5), 4),
            lambda: column.str.to_date("%Y-%m-%d", strict=draw.random() < 0.5).is_null(),
            lambda: pl.sql_expr(f"s LIKE {text(one[:3] + '%')}"),
        ]
    if name in ("d", "t", "local"):
        ways += [
            lambda: compare(column.dt.year(), 1970),
            lambda: compare(column.dt.offset_by(draw.choice(["1y", "-1y", "8000y"])), one),
            lambda: compare(column.cast(pl.Datetime(draw.choice(["ms", "us", "ns"]))), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
        ]
    return draw.choice(ways)()


def text(one: Any) -> str:
    """A literal of SQL."""
    match one:
        case str() | dt.date() | bytes():
            return f"'{one}'" if isinstance(one, str) else f"DATE '{str(one)[:10]}'"
        case float():
            return repr(one) if one == one and abs(one) != INF else "1.5"
        case _:
            return str(one)


def conditions(seed: int, count: int) -> Iterator[tuple[pl.Expr, list[int]]]:
    """Conditions, one or several combined, of which polars makes something, and the ids of the rows they hold for."""
    draw, whole = random.Random(seed), pl.DataFrame(pl.from_arrow(some(range(ROWS))))
    while count:
        try:
            parts = [atom(draw) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
            whole.select(part.alias(str(i)) for i, part in enumerate(parts))
            parts = [~part if draw.random() < 0.15 else part for part in parts]
            found = reduce(draw.choice([and_, or_, xor, and_]), parts)
            ids = whole.filter(found)["id"].to_list()
        except BaseException as error:  # polars makes nothing of it, or Python; a panic of polars' is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            continue
        count -= 1
        yield found, ids


def check(tables: Iterable[Table], seed: int, count: int) -> None:
    for found, ids in conditions(seed, count):
        for table in tables:
            said = f"{found} in {table.uri}"
            try:
                scan = table.scan(columns=["id"], filter=found)
                assert sorted(scan.to_polars()["id"]) == ids, said
            except Exception as error:
                raise AssertionError(said) from error


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), [(1, 30), slow(100, 150), *(long(seed, 500) for seed in range(101, 104))])
def test_a_filter_gives_what_polars_gives_of_the_whole_frame(tables: dict[str, Table], seed: int, count: int) -> None:
    check(tables.values(), seed, count)


# --- what is known to lose rows, or to fail ---------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    "condition",
    [
        pl.col("i64") * 1000 >= -1000,
        pl.col("i64") + 1 < 0,
        pl.col("i64") - 3 > 0,
        -pl.col("i64") <= 0,
        pl.col("i64").abs() < 0,
        pl.col("i32") * 1000 > 0,
        pl.col("i64").cast(pl.Int32, strict=False) == 1000,
        pl.col("i64").cast(pl.Int32, strict=False, wrap_numerical=True) == 0,
        pl.col("d").dt.offset_by("1y") > dt.date(1970, 1, 1),
        pl.col("f64") % 2 == 0,
        "i64 * 2 > 0",
        "i64 * 1000 BETWEEN 0 AND 5000",
        "NOT (i64 * 1000 >= 0)",
    ],
    ids=str,
)
def test_a_compaction_changes_no_answer_where_arithmetic_overflows(
    tables: dict[str, Table], condition: pl.Expr | str
) -> None:
    whole = tables["logs"].scan().to_polars()
    expected = sorted(whole.filter(pl.sql_expr(condition) if isinstance(condition, str) else condition)["id"])
    for table in tables.values():
        assert sorted(table.scan(columns=["id"], filter=condition).to_polars()["id"]) == expected
        assert table.scan(filter=condition).count() == len(expected)
    found = tables["bases"].scan(filter=condition)
    assert sum(part.count() for part in found.parts(size=1)) == len(expected)
    assert found.explain().pushed is None


@pytest.mark.parametrize("condition", [pl.col("f32") <= 1e308, pl.col("f32") == 1e308, "f32 > -1e308"], ids=str)
def test_a_literal_beyond_all_values_of_its_column_is_compared_without_a_word(
    tables: dict[str, Table], condition: pl.Expr | str
) -> None:
    whole = tables["logs"].scan().to_polars()
    expected = sorted(whole.filter(pl.sql_expr(condition) if isinstance(condition, str) else condition)["id"])
    for table in tables.values():
        assert sorted(table.scan(filter=condition).to_polars()["id"]) == expected


CENTS = pa.schema([("id", pa.int64()), ("cents", pa.int64())])


@pytest.mark.parametrize("compacted", [False, True])
def test_a_delete_deletes_as_much_after_a_compaction(fast_path: Path, compacted: bool) -> None:
    table = Table.create(fast_path / "t", CENTS, key="id", buckets=1)
    table.upsert(pa.table({"id": [1, 2, 3], "cents": [5, 2**62, 7]}, CENTS))
    if compacted:
        table.maintenance.compact()
    wrong = "cents * 1000 > 0"
    assert sorted(scan_table(table).filter(pl.sql_expr(wrong)).select("id").collect()["id"]) == [1, 3]
    done = CliRunner().invoke(app, ["cat", table.uri, "--where", wrong, "--format", "jsonl"])
    assert sorted(json.loads(line)["id"] for line in done.output.splitlines()) == [1, 3]
    assert table.delete(where=wrong).deletes == 2
    assert table.scan().to_polars()["id"].to_list() == [2]


def above_four(number: str) -> bool:
    """A function that polars cannot rewrite."""
    return int(number) > 4 and number.isdigit()


MAY_FAIL: dict[str, pl.Expr | str] = {
    "SQL: CAST": "CAST(s AS BIGINT) > 4",
    "a strict cast": pl.col("s").cast(pl.Int64) > 4,
    "a strict cast beside a comparison": (pl.col("n") > 0) & (pl.col("s").cast(pl.Int64) > 4),
    "a strict cast or a comparison": (pl.col("n") < 0) | (pl.col("s").cast(pl.Int64) > 4),
    "a narrow cast": pl.col("n").cast(pl.Int8) == 5,
    "an integer from a text": pl.col("s").str.to_integer() > 4,
    "a date from a text": pl.col("day").str.to_date("%Y-%m-%d") > dt.date(2024, 1, 1),
    "an item of a list": pl.col("many").list.get(0) > 4,
    "a value that a mapping has": pl.col("s").replace_strict({"5": True}, return_dtype=pl.Boolean),
    "a function in Python": pl.col("s").map_elements(above_four, return_dtype=pl.Boolean),
}
MIXED = pa.schema(
    [
        ("id", pa.int64()), ("p", pa.string()), ("s", pa.string()), ("n", pa.int64()), ("day", pa.string()),
        ("many", pa.list_(pa.int64())),
    ]
)  # fmt: skip


def mixed(numbers: range, good: bool) -> pa.Table:
    row = {"p": "1", "s": "5", "n": 5, "day": "2024-02-29", "many": [5]}
    if not good:
        row = {"p": "1", "s": "no number", "n": 1000, "day": "no day", "many": []}
    return pa.Table.from_pylist([{"id": n, **row} for n in numbers], MIXED)


@pytest.mark.costly
@pytest.mark.parametrize("merge", [None, PartialUpdate()], ids=["latest", "columns"])
def test_a_filter_never_fails_of_a_value_that_no_reader_sees(fast_path: Path, merge: PartialUpdate | None) -> None:
    table = Table.create(fast_path / "t", MIXED, key="id", partition_by="p", buckets=2, merge=merge)
    table.upsert(mixed(range(10), good=False))
    table.upsert(mixed(range(10, 20), good=True))
    table.maintenance.compact()
    table.upsert(mixed(range(5), good=True))
    table.delete(mixed(range(5, 10), good=False))
    for name, condition in MAY_FAIL.items():
        scan = table.scan(filter=condition)
        assert scan.count() == 15, name
        assert scan.to_arrow().num_rows == 15, name
        assert sum(part.count() for part in scan.parts(size=1)) == 15, name
        lazy = scan_table(table).filter(pl.sql_expr(condition) if isinstance(condition, str) else condition)
        assert "function" in name or lazy.collect().height == 15, name
    done = CliRunner().invoke(app, ["cat", table.uri, "--where", "CAST(s AS BIGINT) > 4", "--format", "jsonl"])
    assert len(done.output.splitlines()) == 15
    assert table.delete(where="CAST(s AS BIGINT) > 4").deletes == 15
    assert table.scan().count() == 0


def test_a_filter_that_fails_of_what_a_reader_sees_fails(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", MIXED, key="id", buckets=2)
    table.upsert(mixed(range(10), good=False))
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="no number"):
            table.scan(filter="CAST(s AS BIGINT) > 4").to_arrow()
        table.maintenance.compact()
