"""What may be asked of a table's rows: a condition decides each row by itself, wherever the row lies and is read."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from crdt_mor import InvalidInputError, Table
from crdt_mor.cli.main import app
from crdt_mor.readers.polars import scan_table
from tests.tiers import one_in

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("v", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("d", pa.date32()),
        ("l", pa.list_(pa.int64())), ("u", pa.uint8()),
    ]
)  # fmt: skip
v, f, s, d, many, u = (pl.col(name) for name in SCHEMA.names[1:])


def some(*numbers: int) -> pa.Table:
    found = [
        {
            "id": f"k{n}", "v": n, "f": n / 4, "s": f"2024-01-0{n % 9 + 1}", "d": dt.date(2024, 1, n % 9 + 1),
            "l": [n, 1], "u": n,
        }
        for n in numbers
    ]  # fmt: skip
    return pa.Table.from_pylist(found, SCHEMA)


def grown(path: Path) -> Table:
    """Twelve rows in four buckets, in base files and in logs."""
    table = Table.create(path, SCHEMA, key="id", buckets=4)
    table.upsert(some(*range(10)))
    table.maintenance.compact()
    table.upsert(some(3, 10, 11))
    return table


@pytest.fixture
def table(fast_path: Path) -> Table:
    return grown(fast_path / "t")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The same, for tests that change nothing."""
    return grown(tmp_path_factory.mktemp("shared") / "t")


OF_OTHER_ROWS: dict[str, pl.Expr | str] = {
    "max": v == v.max(),
    "max of a restored column": u == u.max(),
    "mean": v > v.mean(),
    "beside another condition": (v == v.max()) & (v < 3),
    "after another condition": (v < 3) & (v == v.max()),
    "or": (v < 3) | (v == v.max()),
    "not": ~(v == v.max()),
    "inside a when": pl.when(v < 3).then(True).otherwise(v == v.max()),
    "rank": v.rank() == 1,
    "over": v == v.max().over("s"),
    "shift": v.shift() > 0,
    "diff": v.diff() > 0,
    "cum_sum": v.cum_sum() > 3,
    "rolling": v.rolling_sum(2) > 3,
    "fill from the row before": v.fill_null(strategy="forward") > 3,
    "interpolate": v.interpolate() > 3,
    "sort": v.sort() > 3,
    "reverse": v.reverse() > 3,
    "is_duplicated": s.is_duplicated(),
    "is_unique": s.is_unique(),
    "is_first_distinct": s.is_first_distinct(),
    "int_range": pl.int_range(pl.len()) < 3,
    "len": pl.len() > 3,
    "a row's number": (pl.int_range(pl.len()) % 2 == 0) & (v > 0),
    "quantiles": v.bin_quantiles([0.5], labels=["low", "high"]) == "low",
    "shuffle": v.shuffle(seed=1) > 3,
    "sample": v.sample(fraction=1.0, seed=1) > 3,
    "rle": v.rle_id() > 0,
    "implode": v.implode().list.len() > 3,
    "in an aggregate": v.is_in(v.max().implode()),
    "in a column": v.is_in((v * 2).implode()),
    "any": (v > 3).any(),
    "first": v == v.first(),
    "unique": v.unique() > 3,
    "count": v.count() > 3,
    "a series for the rows": v > pl.lit(pl.Series(range(12))),
    "a format taken from the first rows": s.str.to_date() > dt.date(2024, 1, 3),
    "a function of a whole column": v.map_batches(lambda column: column == column.max(), return_dtype=pl.Boolean),
    "a function of whole columns": pl.map_batches(["v"], lambda found: found[0] > 3, return_dtype=pl.Boolean),
    "SQL: MAX": "v = MAX(v)",
    "SQL: COUNT": "v < 3 AND COUNT(*) > 3",
    "SQL: OVER": "SUM(v) OVER (PARTITION BY s) > 3",
    "SQL: ROW_NUMBER": "ROW_NUMBER() OVER (ORDER BY v) = 1",
    "SQL: subquery": "v = (SELECT MAX(v) FROM self)",
}  # fmt: skip


@pytest.mark.parametrize("name", OF_OTHER_ROWS)
def test_a_filter_that_looks_at_other_rows_is_refused(shared: Table, name: str) -> None:
    condition = OF_OTHER_ROWS[name]
    why = "the filter cannot be applied" if name == "SQL: subquery" else r"element-wise.*scan\(\)\.to_polars\(\)"
    with pytest.raises(InvalidInputError, match=why):
        shared.scan(filter=condition)
    with pytest.raises(InvalidInputError, match=why):
        shared.scan().narrowed(filter=condition)


@pytest.mark.parametrize("name", ["max", "over", "is_first_distinct", "SQL: MAX"])
def test_a_delete_by_a_filter_that_looks_at_other_rows_is_refused_and_deletes_nothing(table: Table, name: str) -> None:
    for attempt in (table.delete, in_a_transaction(table)):
        with pytest.raises(InvalidInputError, match=r"element-wise.*delete\(\.\.\.\)"):
            attempt(where=OF_OTHER_ROWS[name])
    assert table.scan().count() == 12
    assert not any(commit["deletes"] for commit in table.inspect.timeline().to_pylist())


def in_a_transaction(table: Table) -> Callable[..., None]:
    def delete(where: pl.Expr | str) -> None:
        with table.transaction() as tx:
            assert tx.scan(filter="v > 10").count() == 1
            tx.delete(where=where)

    return delete


def one_bit(number: int) -> bool:
    """A function in Python, of one value."""
    return number.bit_count() == 1


OF_EACH_ROW: dict[str, pl.Expr | str] = {
    "a number": v > 3,
    "a number of another type": v > 3.0,
    "in a list": v.is_in([1, 2, 40]),
    "in a series": v.is_in(pl.Series([1, 2])),
    "in a list of the row": v.is_in(many),
    "is null": v.is_null() | (v < 3),
    "null": v == pl.lit(None),
    "null or": (v == pl.lit(None)) | (v > 3),
    "an open beginning": v.is_between(None, 5),
    "an open end": ~v.is_between(5, None),
    "not null": ~(v == pl.lit(None)) ^ (v > 3),
    "beyond the type": u.eq_missing(-1) | (u == 300) | ~u.ne_missing(3),
    "SQL: null": "v = NULL OR v > 3",
    "SQL: not null": "NOT (v = NULL) OR NOT (v > 3)",
    "true": pl.lit(True),
    "false": pl.lit(False),
    "when": pl.when(v > 3).then(f > 1).otherwise(u > 1),
    "arithmetic": (v * 3 + u) % 2 == 0,
    "a cast": v.cast(pl.String).str.len_chars() > 1,
    "a strict cast": s.str.slice(0, 4).cast(pl.Int64) > 3,
    "a date of a known format": s.str.to_date("%Y-%m-%d") > dt.date(2024, 1, 3),
    "a part of a list": many.list.get(0) > 3,
    "the greatest of a list": many.list.max() > 3,
    "those of a list that are great": many.list.filter(pl.element() > 3).list.len() > 0,
    "the greatest of a row": pl.max_horizontal("v", "f") > 3,
    "any of a row": pl.any_horizontal(v > 3, f < 1),
    "replaced": v.replace_strict({1: True}, default=False, return_dtype=pl.Boolean),
    "struct": pl.struct("v", "u") == pl.struct("u", "v"),
    "a hash": v.hash() % 2 == 0,
    "between": v.is_between(2, 5),
    "a truncated date": d.dt.truncate("1mo") == dt.date(2024, 1, 1),
    "xor": (v > 3) ^ (f > 1),
    "a function of each value": v.map_elements(one_bit, return_dtype=pl.Boolean),
    "a function of rows": v.map_batches(lambda c: c % 5 == 1, return_dtype=pl.Boolean, is_elementwise=True),
    "SQL: BETWEEN": "v BETWEEN 2 AND 5 AND s LIKE '2024%'",
    "SQL: CASE": "CASE WHEN v > 3 THEN f > 1 ELSE u > 1 END",
    "SQL: 1 = 1": "1 = 1",
}  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("name", one_in(2, OF_EACH_ROW))
def test_a_filter_of_each_row_gives_what_polars_gives_of_the_whole_frame(shared: Table, name: str) -> None:
    given = OF_EACH_ROW[name]
    condition = pl.sql_expr(given) if isinstance(given, str) else given
    expected = sorted(shared.scan().to_polars().filter(condition)["id"])
    scan = shared.scan(columns=["id"], filter=given)
    assert sorted(scan.to_polars()["id"]) == expected
    assert scan.count() == len(expected)
    assert sum(part.to_arrow().num_rows for part in scan.parts(size=1)) == len(expected)
    if "function" in name:
        pytest.importorskip("cloudpickle", reason="polars gives a function to a source with it: run make setup again")
    assert sorted(scan_table(shared).filter(condition).collect()["id"]) == expected


def test_what_the_refusal_says_to_do_works(table: Table) -> None:
    assert table.delete(where="v > 3 AND v < 5").deletes == 1
    greatest = table.scan().to_polars().filter(v == v.max())
    assert greatest["id"].to_list() == ["k11"]
    assert table.delete(greatest.select("id")).deletes == 1
    assert table.scan().count() == 10


def test_polars_keeps_what_looks_at_other_rows_for_itself(shared: Table) -> None:
    assert scan_table(shared).filter(v == v.max()).collect()["id"].to_list() == ["k11"]
    assert scan_table(shared).filter((v < 5) & (v == v.max())).collect().height == 0
    assert pl.SQLContext(t=scan_table(shared)).execute("SELECT id FROM t WHERE v > 10 ORDER BY v").collect().height == 1


def test_the_command_line_refuses_a_filter_that_looks_at_other_rows(shared: Table) -> None:
    for rest in ([], ["--explain"], ["--format", "jsonl"]):
        done = CliRunner().invoke(app, ["cat", shared.uri, "--where", "v = MAX(v)", *rest])
        assert done.exit_code != 0
        assert "element-wise" in str(done.exception) + done.output
    done = CliRunner().invoke(app, ["cat", shared.uri, "--where", "v >= 11", "--format", "jsonl"])
    assert [json.loads(line)["id"] for line in done.output.splitlines()] == ["k11"]


# --- types that polars has not ----------------------------------------------------------------------------------------

INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))
MOMENT, PRICE = dt.datetime(2024, 1, 1, 5, 30, tzinfo=INDIA), Decimal("12345678901234567.50")
OFFSET, WIDE = pa.timestamp("us", "+05:30"), pa.decimal256(20, 2)
UNKNOWN: dict[str, tuple[pa.DataType, object, pl.DataType | type[pl.DataType]]] = {
    "an offset": (OFFSET, MOMENT, pl.Datetime("us", "UTC")),
    "an offset, milliseconds": (pa.timestamp("ms", "-08:00"), MOMENT, pl.Datetime("ms", "Etc/GMT+8")),
    "no zone of this world": (pa.timestamp("us", "Middle/Earth"), MOMENT, pl.Datetime("us", "UTC")),
    "a known zone": (pa.timestamp("us", "Asia/Tokyo"), MOMENT, pl.Datetime("us", "Asia/Tokyo")),
    "a wide decimal": (WIDE, PRICE, pl.Decimal(20, 2)),
    "a wide decimal, dictionary": (pa.dictionary(pa.int32(), WIDE), PRICE, pl.Decimal(20, 2)),
    "a list": (pa.list_(OFFSET), [MOMENT], pl.List(pl.Datetime("us", "UTC"))),
    "a large list": (pa.large_list(WIDE), [PRICE], pl.List(pl.Decimal(20, 2))),
    "a list of fixed size": (pa.list_(WIDE, 1), [PRICE], pl.Array(pl.Decimal(20, 2), 1)),
    "a struct": (pa.struct([("a", OFFSET), ("b", WIDE)]), {"a": MOMENT, "b": PRICE}, pl.Struct),
    "a map": (pa.map_(pa.string(), OFFSET), [("a", MOMENT)], pl.Map(pl.String(), pl.Datetime("us", "UTC"))),
}  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_type_that_polars_has_not_is_shown_to_it_as_one_that_it_has(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind, one, shown = UNKNOWN[name]
    # A machine without a database of time zones takes every name of one when a table is created.
    monkeypatch.setattr("crdt_mor.columns.kinds_times._has_zone", lambda zone: False)
    schema = pa.schema([("id", pa.string()), ("x", kind), ("n", pa.int64())])
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    values = pa.array([one, None], plain)
    values = values if plain == kind else values.dictionary_encode()
    data = pa.table({"id": ["a", "b"], "x": values, "n": [1, 2]}, schema)
    table = Table.create(fast_path / "t", schema, key="id", buckets=1)
    table.upsert(data)
    for _ in range(2):
        assert table.scan(filter="n < 2").to_arrow().equals(data.slice(0, 1))
        frame = table.scan().to_polars()
        assert frame.schema["x"] == shown
        assert table.scan(limit=0).to_polars().schema == table.changes().to_polars().select("id", "x", "n").schema
        assert [found.height for found in table.scan(filter="x IS NULL").frames()] == [1]
        for condition in (pl.col("x").is_not_null(), pl.col("x").is_null() & (pl.col("n") * 2 > 2)):
            scan = table.scan(filter=condition)
            assert scan.count() == scan.to_arrow().num_rows == frame.filter(condition).height == 1
            assert scan.explain().total.slices == 1
            assert scan_table(table).filter(condition).collect().height == 1
        if not pa.types.is_nested(kind):
            assert table.scan(filter=pl.col("x") == pl.lit(one).cast(shown)).count() == 1
            assert table.scan(filter=pl.col("x") != pl.lit(one).cast(shown)).count() == 0
        table.maintenance.compact()
    assert table.delete(where=pl.col("x").is_not_null()).deletes == 1
    assert table.scan().to_arrow()["id"].to_pylist() == ["b"]
