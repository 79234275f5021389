"""Pruning and pushdown: what a filter, a limit and a choice of columns leave unread, and that no row is lost by it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from operator import and_, or_, xor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from crdt_mor import InvalidInputError, Scan, Table
from crdt_mor.cli.main import app
from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.merge import kernel
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import buckets
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import Slices
from crdt_mor.payloads import Counter, Max, ORSet, PartialUpdate
from crdt_mor.read import prune
from crdt_mor.read.explain import Files
from crdt_mor.read.expressions import conjunction, conjuncts, sql_literal
from crdt_mor.read.partition_rows import PartitionRows
from crdt_mor.read.pushdown import parquet_form
from tests.inside import session_of
from tests.stores import LOCAL_FIRST, WatchedStore
from tests.table.helpers import Make, Place, frame, rows
from tests.tiers import slow

EXAMPLES = [4, slow(25)]
"""For each shape of table; thousands were tried when this was written."""

# --- no row is lost: random filters over tables in every state --------------------------------------------------------

MIDNIGHT = dt.datetime(2024, 1, 1)  # noqa: DTZ001
DAYS = [dt.date(2024, 1, day) for day in (1, 2, 3)]
SHAPES: dict[str, dict[str, Any]] = {
    "latest, partitioned": {"key": "i", "partition_by": "p", "buckets": 5},
    "ordering, two keys, partitioned by two": {
        "key": ["i", "s"], "partition_by": ["d", "b"], "ordering": "n", "buckets": 3
    },
    "payloads": {"key": "s", "merge": {"n": Counter(), "f": Max(), "l": ORSet()}, "buckets": 4},
    "partial update, key of a narrow type": {"key": "u", "merge": PartialUpdate(), "buckets": 4, "partition_by": "i"},
    "one partition column is the key": {"key": "d", "partition_by": "d", "hive_style": False, "buckets": 2},
}  # fmt: skip
SCHEMA = pa.schema(
    [
        ("i", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("u", pa.uint16()), ("p", pa.string()),
        ("b", pa.bool_()), ("n", pa.int64()), ("f", pa.float64()), ("t", pa.timestamp("ms")),
        ("l", pa.list_(pa.string())),
    ]
)  # fmt: skip
TEXTS = ["", "a", "b,c", "x:y", "ü", "__"]


def some(*numbers: int) -> pa.Table:
    """Rows that repeat their values in other combinations, with nulls where a column may have some."""
    found = [
        {
            "i": n % 7 - 2, "s": TEXTS[1 + n % 5], "d": DAYS[n % 3], "u": 60_000 + n % 9,
            "p": [None, "eu", "us"][n % 3], "b": [True, False, None][n % 3],
            "n": n * 3 % 10, "f": [None, 0.5, float("nan"), -1.0][n % 4],
            "t": None if n % 5 == 0 else MIDNIGHT + dt.timedelta(hours=n), "l": ["q"] if n % 2 else None,
        }
        for n in numbers
    ]  # fmt: skip
    return pa.Table.from_pylist(found, SCHEMA)


def grown(place: Place, settings: dict[str, Any]) -> Table:
    """Base files that logs touch and that none does, carried rows, stragglers done and pending, logs alone."""
    table = place.create(schema=SCHEMA, **settings)
    table.upsert(some(*range(14)))
    straggler, pending = table.transaction(), table.transaction()
    for tx, n in ((straggler, 3), (pending, 5)):
        tx.__enter__()
        tx.upsert(some(n, n + 20))
    table.upsert(some(3, 5, 8))
    table.delete(some(4, 5), plain=True)
    assert table.maintenance.compact()[0].carried > 0
    straggler.__exit__(None, None, None)
    table.upsert(some(8, 30))
    grown_tables.append(pending)
    return table


grown_tables: list[object] = []
"""Writes that stay open: dropping one would roll it back."""


@pytest.fixture(scope="module", params=LOCAL_FIRST)
def tables(request: pytest.FixtureRequest, fast_module_path: Path) -> Iterator[dict[str, Table]]:
    """A table of each shape."""
    folder = fast_module_path / "shapes"
    yield {name: grown(Place.of(request.param, folder / name), settings) for name, settings in SHAPES.items()}
    for tx in grown_tables:
        tx.__exit__(ValueError, None, None)  # type: ignore[attr-defined]
    grown_tables.clear()


@pytest.fixture(scope="module")
def contents(tables: dict[str, Table]) -> dict[str, pl.DataFrame]:
    """All rows of each."""
    return {shape: table.scan(meta=True).to_polars() for shape, table in tables.items()}


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.one_of(st.integers(-3, 6), st.just(2**40), st.none()),
    "s": st.one_of(st.sampled_from(TEXTS), st.none()),
    "d": st.sampled_from([*DAYS, dt.date(2030, 1, 1)]),
    "u": st.one_of(st.integers(59_999, 60_009), st.just(-1), st.just(70_000)),
    "p": st.sampled_from(["eu", "us", "", "nowhere"]),
    "b": st.booleans(),
    "n": st.integers(-1, 11),
    "f": st.sampled_from([0.5, -1.0, 0.0, float("nan")]),
    "_hoodie_partition_path": st.sampled_from(["p=eu", "", "nowhere"]),
    "_hoodie_record_key": st.sampled_from(["1", "a", "i:1,s:a", "nothing"]),
}
INTEGERS = [None, None, pl.Int64, pl.Int32, pl.UInt64, pl.Float64, pl.Int128]


@st.composite
def atoms(draw: st.DrawFn, names: list[str]) -> pl.Expr:
    """A condition on one column, in one of the many ways to write it."""
    name = draw(st.sampled_from(names))
    column, value = pl.col(name), VALUES[name].filter(lambda v: v is not None)
    kind = draw(st.sampled_from(INTEGERS)) if name in ("i", "n") else None
    one = draw(value)
    assume(kind not in (pl.Int32, pl.UInt64) or 0 <= one < 2**31)
    one = pl.lit(one, kind)
    many = draw(st.lists(VALUES[name], max_size=4).filter(lambda vs: not vs or any(v is not None for v in vs)))
    full = [v for v in many if v is not None]
    texts = [v for v in full if not isinstance(v, float)]
    ways: list[Callable[[], pl.Expr]] = [
        lambda: column == one, lambda: one == column, lambda: column != one, lambda: column < one,
        lambda: column >= one, lambda: column.eq_missing(one), column.is_null, column.is_not_null,
        lambda: column.is_in(many), lambda: column.is_in(full, nulls_equal=True), lambda: ~column.is_in(many),
        lambda: column.is_between(one, pl.lit(draw(value))),
        lambda: pl.when(column == one).then(True).otherwise(None),
        lambda: (column == one).fill_null(True),
    ]  # fmt: skip
    if many:
        ways.append(lambda: column.is_in(pl.Series(many).implode()))
    if texts:
        said = ", ".join(sql_literal(v) for v in texts)
        ways += [lambda: pl.sql_expr(f'"{name}" IN ({said})'), lambda: pl.sql_expr(f'"{name}" NOT IN ({said})')]
        ways += [lambda: pl.sql_expr(f'"{name}" = {sql_literal(texts[0])}')]
    return draw(st.sampled_from(ways))()


def conditions(shape: str) -> st.SearchStrategy[pl.Expr]:
    """Conditions on a table of this shape, mostly on what its files are told apart by."""
    found = [name for said in (SHAPES[shape][what] for what in ("key", "partition_by") if what in SHAPES[shape])
             for name in ([said] if isinstance(said, str) else said)]  # fmt: skip
    return st.recursive(
        atoms(4 * found + sorted(VALUES)),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from([and_, and_, or_, or_, xor]), inner, inner).map(lambda c: c[0](c[1], c[2])),
            inner.map(lambda e: ~e),
        ),
        max_leaves=4,
    )


def text_of(found: pl.DataFrame) -> list[str]:
    """Rows that can be compared although NaN is not itself."""
    return sorted(map(repr, found.rows()))


@pytest.mark.costly
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_filter_gives_the_rows_that_it_holds_for_whatever_it_rules_out(
    tables: dict[str, Table], contents: dict[str, pl.DataFrame], shape: str, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(condition=conditions(shape), limit=st.integers(0, 12))
    def check(condition: pl.Expr, limit: int) -> None:
        try:
            expected = contents[shape].filter(condition)
        except pl.exceptions.PolarsError:
            return  # polars itself makes nothing of it
        check_filter(tables[shape], condition, expected, limit)

    check()


def check_filter(table: Table, condition: pl.Expr, expected: pl.DataFrame, limit: int) -> None:
    """A scan with this condition gives these rows, with and without a limit, and says what became of every slice."""
    scan = table.scan(filter=condition, meta=True)
    assert text_of(scan.to_polars()) == text_of(expected)
    assert scan.count() == expected.height
    said = scan.explain()
    assert said.total.slices == sum(
        files.slices for files in (said.by_partition, said.by_bucket, said.by_statistics, said.merging, said.passing)
    )
    first = table.scan(filter=condition, meta=True, limit=limit)
    found = text_of(first.to_polars())
    assert len(found) == first.count() == min(limit, expected.height)
    assert set(found) <= set(text_of(expected))


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("shape", SHAPES)
def test_conjuncts_hold_together_where_the_condition_holds(
    tables: dict[str, Table], contents: dict[str, pl.DataFrame], shape: str, examples: int
) -> None:
    every, schema = contents[shape], tables[shape].scan()._snapshot.schema

    @settings(max_examples=examples)
    @given(condition=conditions(shape))
    def check(condition: pl.Expr) -> None:
        try:
            expected = every.filter(condition)
        except pl.exceptions.PolarsError:
            return
        parts = conjuncts(condition)
        forms = [parquet_form(part, schema) for part in parts]
        again = conjunction([part if form is None else form for part, form in zip(parts, forms, strict=True)])
        assert again is not None
        assert text_of(every.filter(again)) == text_of(expected)

    check()


@pytest.mark.costly
@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_is_found_by_its_key(tables: dict[str, Table], contents: dict[str, pl.DataFrame], shape: str) -> None:
    table, every = tables[shape], contents[shape]
    fields = table.config.key
    for row in every.iter_rows(named=True):
        condition = reduce(and_, (pl.col(name) == row[name] for name in fields))
        wanted = every.filter(condition)
        scan = table.scan(filter=condition, meta=True)
        assert text_of(scan.to_polars()) == text_of(wanted)
        assert wanted.height > 0
        groups = {bucket_of_file_id(found.file_id) for found in scan._pruning.kept}
        assert len(groups) == 1, "one key is in one bucket of each partition"
        if row["_hoodie_record_key"] is not None:
            by_text = table.scan(filter=pl.col("_hoodie_record_key") == row["_hoodie_record_key"], meta=True)
            assert row["_hoodie_record_key"] in by_text.to_polars()["_hoodie_record_key"]
            assert {bucket_of_file_id(found.file_id) for found in by_text._pruning.kept} == groups


# --- what is ruled out ------------------------------------------------------------------------------------------------

MANY = frame(*((f"k{i:03}", "eu" if i % 2 else "us", i, i / 2) for i in range(400)))


LAYOUTS = ["base only", "base and logs", "a straggler across a compaction"]


@contextmanager
def many(place: Place, layout: str) -> Iterator[Table]:
    """400 rows, k000 to k399, in 2 partitions of 8 buckets; in two of three layouts with logs or carries in some."""
    table = place.create(schema=MANY.schema, key="id", partition_by="region", buckets=8)
    straggler = table.transaction()
    if layout.startswith("a straggler"):
        straggler.__enter__()
        straggler.upsert(frame(("k007", "eu", -7), ("k008", "us", -8)))
    table.upsert(MANY)
    table.upsert(frame(("k999", "eu", 0)))
    table.delete(frame(("k999", "eu", 0)))
    table.maintenance.compact()
    if layout == "base and logs":
        table.upsert(frame(("k007", "eu", 7), ("k008", "us", 8)))
    yield table
    if layout.startswith("a straggler"):
        straggler.__exit__(None, None, None)
        assert rows(table, "n", filter="id IN ('k007', 'k008')") == [(7,), (8,)]


@pytest.fixture(scope="module", params=LOCAL_FIRST)
def store_of_module(request: pytest.FixtureRequest) -> str:
    """The kind of store that the tables of this module are in."""
    return str(request.param)


@pytest.fixture(scope="module", params=LAYOUTS)
def watched(
    request: pytest.FixtureRequest, store_of_module: str, fast_module_path: Path
) -> Iterator[tuple[Table, WatchedStore]]:
    """A table of each layout, which no test changes, and its store, which notes what it is asked."""
    place = Place.of(store_of_module, fast_module_path / store_of_module / request.param)
    with many(place, request.param):
        yield place.watched()


@pytest.fixture
def table(watched: tuple[Table, WatchedStore]) -> Table:
    return watched[0]


def opened(scan: Scan, store: WatchedStore) -> int:
    """How many file slices a scan opens, as it says itself and as it does."""
    explained = scan.explain()
    store.calls.clear()
    scan.to_arrow()
    expected = explained.merging.slices + explained.passing.slices + explained.by_statistics.slices
    assert len(set(store.paths("parquet"))) == expected
    return expected


@pytest.mark.costly
@pytest.mark.parametrize(
    ("condition", "slices"),
    [
        ("region = 'eu'", 8),
        ("region = 'eu' AND n > 3", 8),
        ("n > 3 AND region <> 'eu' AND price IS NOT NULL", 8),
        ("region IN ('eu', 'us')", 16),
        ("region IN ('nowhere')", 0),
        ("region = 'eu' OR n > 3", 16),
        ("_hoodie_partition_path = 'region=us'", 8),
        ("id = 'k007'", 2),
        ("'k007' = id", 2),
        ("id = 'k007' AND region = 'eu'", 1),
        ("id = 'k007' AND id = 'k008'", 0),
        ("id IN ('k007', 'k008') AND id IN ('k008', 'k009')", 2),
        ("id = 'k007' OR id = 'k007'", 2),
        ("(id = 'k007' AND n = 7) OR (id = 'k007' AND n = 8)", 2),
        ("id = 'k007' OR n = 3", 16),
        ("id <> 'k007'", 16),
        ("NOT id = 'k007'", 16),
        ("id = ''", 0),
        ("_hoodie_record_key = 'k007'", 2),
        ("upper(id) = 'K007'", 16),
        ("n = 7", 16),
    ],
)
def test_partitions_and_buckets_are_ruled_out(watched: tuple[Table, WatchedStore], condition: str, slices: int) -> None:
    table, store = watched
    scan = table.scan(filter=condition)
    assert opened(scan, store) == slices
    assert scan.to_polars().height == table.scan(meta=True).to_polars().filter(pl.sql_expr(condition)).height


def test_the_buckets_of_a_list_of_keys_are_those_of_its_keys(watched: tuple[Table, WatchedStore]) -> None:
    table, store = watched
    keys = [f"k{i:03}" for i in (1, 5, 9, 13)]
    wanted = set(buckets(pa.array(keys), session_of(table).config.key, 8).tolist())
    for condition in (pl.col("id").is_in(keys), pl.col("id").is_in(pl.Series(keys).implode())):
        assert opened(table.scan(filter=condition & (pl.col("region") == "eu")), store) == len(wanted)
        assert rows(table, "id", filter=condition) == [(key,) for key in keys]


def test_all_columns_of_a_key_have_to_be_known(make: Make) -> None:
    table = make(key=["id", "region"], buckets=16)
    table.upsert(MANY)
    assert opened_slices(table, pl.col("id") == "k007") == 16
    assert opened_slices(table, (pl.col("id") == "k007") & (pl.col("region") == "eu")) == 1
    assert opened_slices(table, (pl.col("id") == "k007") & pl.col("region").is_in(["eu", "us"])) == 2
    assert rows(table, "n", filter="id = 'k007' AND region = 'eu'") == [(7,)]


def opened_slices(table: Table, condition: pl.Expr) -> int:
    said = table.scan(filter=condition).explain()
    return said.merging.slices + said.passing.slices


@pytest.mark.parametrize("value", [pl.lit(7.0), pl.lit(7, pl.UInt64), pl.lit(7, pl.Float32), pl.col("price")])
def test_values_that_are_no_literals_of_the_columns_kind_rule_out_nothing(make: Make, value: pl.Expr) -> None:
    table = make(key="n", buckets=4)
    table.upsert(MANY)
    assert opened_slices(table, pl.col("n") == value) == 4


def test_a_float_that_stands_for_several_keys_loses_none(make: Make) -> None:
    table = make(key="n", buckets=64)
    big = 2**53
    table.upsert(frame(*((str(i), "x", big + i) for i in range(3))))
    for value in (pl.lit(float(big)), pl.lit(big, pl.UInt64), pl.lit(big)):
        condition = pl.col("n") == value
        assert table.scan(filter=condition).count() == table.scan().to_polars().filter(condition).height


def test_hudis_tables_and_groups_that_are_no_buckets_are_never_ruled_out_by_key(make: Make) -> None:
    table = make(buckets=4)
    table.upsert(MANY)
    snapshot = table.scan()._snapshot
    config, condition = session_of(table).config, pl.col("id") == "k007"

    def kept(slices: Slices, config: TableConfig) -> int:
        return len(prune.prune(slices, condition, config, snapshot.schema, PartitionRows()).kept)

    assert kept(snapshot.slices, config) == 1
    assert kept(snapshot.slices, replace(config, properties={})) == 4
    renamed = Slices(replace(found, file_id="0000000a-1111-2222-3333-444455556666-0") for found in snapshot.slices)
    assert kept(renamed, config) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("path")  # over one store: it takes seconds
def test_very_long_conditions_are_no_trouble(make: Make) -> None:
    table = make(buckets=4)
    table.upsert(MANY)
    keys = [f"k{i:03}" for i in range(400)]
    either = reduce(or_, (pl.col("id") == key for key in keys))
    assert table.scan(filter=either).count() == 400
    both = reduce(and_, (pl.col("id") != key for key in keys[1:]))
    assert rows(table, "id", filter=both) == [("k000",)]
    many = [f"x{i}" for i in range(prune.KEYS_MAX + 1)]
    assert rows(table, "id", filter=pl.col("id").is_in(["k003", *many])) == [("k003",)]


@pytest.mark.parametrize("condition", ["n < 0", "price < -1", "n IS NULL", "id > 'l'", "region = 'eu' AND n = 1000"])
def test_files_are_ruled_out_by_least_and_greatest_of_any_column(table: Table, condition: str) -> None:
    said = table.scan(filter=condition).explain()
    assert said.passing.slices == 0
    assert said.by_statistics.slices + said.by_partition.slices + said.merging.slices == 16
    assert said.row_groups == 0
    assert said.column_bytes == 0
    assert rows(table, filter=condition) == []


def test_an_in_of_sql_reaches_the_statistics(table: Table) -> None:
    said = table.scan(filter="n IN (1000, 2000)").explain()
    assert said.by_statistics.slices + said.merging.slices == 16
    assert said.pushed is not None
    assert "is_in" in said.pushed
    assert "sql" not in said.pushed
    assert rows(table, "id", filter="n IN (7, 8)") == [("k007",), ("k008",)]


@pytest.mark.parametrize("values", [["k007", None], [None], ["k007", "k008", None]])
def test_a_list_with_a_null_that_equals_nulls_is_no_trouble_for_parquet(table: Table, values: list[str | None]) -> None:
    for column, found in (("id", values), ("n", [v and int(v[1:]) for v in values])):
        condition = pl.col(column).is_in(found, nulls_equal=True)
        assert table.scan(filter=condition).count() == len(values) - 1
        assert table.scan(filter=condition & (pl.col("n") >= 8)).count() == max(0, len(values) - 2)


def test_partitions_whose_path_says_nothing_are_read(make: Make) -> None:
    table = make(partition_by="region")
    table.upsert(frame(("a", None, 1), ("b", "", 2), ("c", "eu", 3)))
    assert rows(table, "id", filter="region IS NULL") == [("a",)]
    assert rows(table, "id", filter="region = ''") == [("b",)]
    assert rows(table, "id", filter="region = 'eu' AND n = 3") == [("c",)]


def test_partition_columns_are_tried_as_they_were_declared(make: Make) -> None:
    schema = pa.schema([("k", pa.int64()), ("u", pa.uint8()), ("day", pa.date32())])
    table = make(schema=schema, key="k", partition_by=["u", "day"])
    days = [day for day in DAYS for _ in range(3)]
    table.upsert(pa.table({"k": range(9), "u": [0, 1, 255] * 3, "day": days}, schema))
    condition = (pl.col("u").cast(pl.Int8, strict=False).is_null()) & (pl.col("day").dt.day() < 3)
    scan = table.scan(filter=condition)
    assert sorted(scan.to_polars()["k"]) == [2, 5]
    assert {found.partition for found in scan._pruning.kept} == {"u=255/day=2024-01-01", "u=255/day=2024-01-02"}


# --- what goes down to Parquet ----------------------------------------------------------------------------------------


def test_only_conditions_on_restored_columns_wait(make: Make) -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("ms")), ("n", pa.int64())])
    table = make(schema=schema, key="k", buckets=1)
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(days=i) for i in range(5)]  # noqa: DTZ001
    table.upsert(pa.table({"k": list("abcde"), "at": moments, "n": range(5)}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"k": ["e"], "at": moments[4:], "n": [40]}, schema))
    scan = table.scan(columns=["k"], filter=(pl.col("n") > 1) & (pl.col("at") < moments[4]) & (pl.col("k") != "c"))
    said = scan.explain()
    assert "at" in str(said.late)
    assert "at" not in str(said.pushed)
    assert '"n"' in str(said.pushed)
    assert '"k"' in str(said.pushed)
    assert set(said.columns) == {"k", "n", "at"}
    assert scan.to_polars().rows() == [("d",)]
    assert scan.to_polars().columns == ["k"]
    assert scan.count() == 1
    late = table.scan(columns=["k"], filter=(pl.col("at") > moments[0]) | (pl.col("_hoodie_commit_time") == "never"))
    assert sorted(late.to_polars()["k"]) == ["b", "c", "d", "e"]
    assert late.to_arrow().num_rows == late.count() == 4


@pytest.mark.parametrize(("value", "expected"), [("eu", ["a", "b", "c"]), ("us", [])])
def test_a_late_condition_is_asked_of_each_row_where_all_rows_have_one_value(
    make: Make, value: str, expected: list[str]
) -> None:
    """polars joins log blocks of one row that have the same text to a constant column."""
    table = make(schema=pa.schema([("k", pa.string()), ("p", pa.string())]), key="k", buckets=1)
    for key in "abc":
        table.upsert(pa.table({"k": [key], "p": ["eu"]}))
    for condition in (~~(pl.lit(value) == pl.col("p")), f"'{value.upper()}' = UPPER(p)"):
        scan = table.scan(columns=["k"], filter=condition)
        assert scan.explain().late is not None
        assert sorted(scan.to_polars()["k"]) == expected
        assert scan.to_arrow().num_rows == scan.count() == len(expected)


@pytest.mark.parametrize("every", [pl.all_horizontal(pl.all() > 0), pl.col("n", "price") > 0, pl.col("^n$") > 0])
def test_a_filter_without_names_is_refused_since_it_would_mean_other_columns_each_time(
    make: Make, every: pl.Expr
) -> None:
    with pytest.raises(InvalidInputError, match="must be a single expression"):
        make().scan(filter=every)


# --- explain ----------------------------------------------------------------------------------------------------------


def test_an_explanation_says_what_is_opened_with_bytes_and_reads_no_rows(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(partition_by="region", buckets=2)
    table.upsert(MANY)
    table.maintenance.compact()
    table.upsert(frame(("k001", "eu", 1)))
    sizes = pl.DataFrame(table.inspect.files()).group_by("partition").agg(pl.col("bytes").sum())
    eu, us = (sizes.filter(partition=f"region={region}")["bytes"].item() for region in ("eu", "us"))
    reader, store = place.watched()
    scan = reader.scan(columns=["price"], filter="region = 'eu' AND n >= 0", limit=3)
    for name in ("passed_through", "merge"):
        monkeypatch.setattr(kernel, name, lambda *_, **__: pytest.fail("rows were read"))
    store.calls.clear()
    said = scan.explain()
    assert {operation for operation, _ in store.calls} == {"parquet"}, "footers of base files, and nothing else"
    assert said.total == Files(4, eu + us)
    assert said.by_partition == Files(2, us)
    assert (said.by_bucket.slices, said.by_statistics.slices) == (0, 0)
    assert said.merging.slices == said.passing.slices == 1
    assert said.merging.bytes + said.passing.bytes == eu
    assert (said.row_groups, said.row_groups_total) == (2, 2)
    assert 0 < said.column_bytes < eu
    assert said.columns == ("price", "region", "n", "id")
    assert said.late is None
    text = str(said)
    for words in ("4 file slices", "ruled out by partition", "2 of 2 row groups", "price, region", "3 rows"):
        assert words in text
    assert "bucket" not in text
    assert "limit=3" in repr(scan)


def test_the_command_line_explains(make: Make, path: str) -> None:
    table = make(partition_by="region", buckets=2)
    table.upsert(MANY)
    asked = ["cat", path, "--where", "region = 'eu' AND id = 'k001'", "--columns", "n", "--explain"]
    said = table.scan(columns=["n"], filter="region = 'eu' AND id = 'k001'").explain()
    text = CliRunner().invoke(app, asked)
    assert (text.exit_code, text.stdout) == (0, f"{said}\n")
    found = json.loads(CliRunner().invoke(app, [*asked, "--output", "json"]).stdout)
    assert found["by_partition"] == {"slices": 2, "bytes": said.by_partition.bytes}
    assert found["columns"] == ["n", "region", "id"]


def test_an_explanation_of_nothing(make: Make) -> None:
    said = make().scan(filter="n > 1").explain()
    assert said.total == Files(0, 0)
    assert "0 of 0 row groups" in str(said)
    assert "filter in Parquet" in str(said)


def test_an_explanation_takes_statistics_of_every_type(make: Make) -> None:
    at, tz = MIDNIGHT, MIDNIGHT.replace(tzinfo=dt.UTC)
    values: dict[str, tuple[pa.DataType, object]] = {
        "k": (pa.int8(), 1), "s": (pa.string(), "x"), "y": (pa.binary(), b"x"), "b": (pa.bool_(), True),
        "f": (pa.float32(), 0.5), "g": (pa.float64(), float("nan")), "d": (pa.date32(), at.date()),
        "t": (pa.timestamp("us", "UTC"), tz), "m": (pa.timestamp("ms"), at),
        "c": (pa.decimal128(9, 2), Decimal("1.50")), "w": (pa.decimal128(38, 3), Decimal("-1.5")),
        "u": (pa.uint64(), 2**63), "l": (pa.list_(pa.int64()), [1]),
        "r": (pa.struct([("a", pa.int64())]), {"a": 1}), "z": (pa.string(), None),
    }  # fmt: skip
    schema = pa.schema([(name, kind) for name, (kind, _) in values.items()])
    table = make(schema=schema, key="k", buckets=1)
    row = {name: value for name, (_, value) in values.items()}
    table.upsert(pa.Table.from_pylist([row], schema))
    table.maintenance.compact()
    frame = table.scan().to_polars()
    for name in values:
        column = pl.col(name)
        for condition in (column.is_null(), column.is_not_null(), column == pl.lit(row[name], frame.schema[name])):
            said = table.scan(filter=condition).explain()
            if frame.filter(condition).height:
                assert said.passing.slices == 1, name
        assert table.scan(filter=pl.col(name).is_null()).count() == (name == "z")


def test_columns_that_a_file_lacks_have_no_statistics_and_lose_no_row(make: Make) -> None:
    table = make(buckets=1)
    table.upsert(MANY)
    table.maintenance.compact()
    table.upsert(frame(("z", "eu", 1)).append_column("new", pa.array([5])), schema_mode="merge")
    counts = {"new = 5": 1, "new IS NULL": 400, "new IN (5, 6)": 1, "new IS NULL AND n < 10": 10}
    for condition, count in counts.items():
        scan = table.scan(filter=condition)
        assert scan.count() == count
        assert scan.explain().merging.slices == 1


# --- limit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 7, 399, 400, 10_000])
def test_a_limit_gives_so_many_rows_in_every_output(table: Table, limit: int) -> None:
    scan = table.scan(columns=["id"], limit=limit)
    count = min(limit, 400)
    assert scan.count() == scan.to_arrow().num_rows == scan.to_polars().height == count
    assert sum(batch.num_rows for batch in scan.to_reader()) == count
    assert len(set(scan.to_polars()["id"])) == count
    assert scan.to_arrow().schema == scan.schema
    assert table.scan(filter="n >= 10 AND region = 'eu'", limit=limit).count() == min(limit, 195)
    assert table.scan(filter="n % 100 = 0", limit=limit).to_polars().height == min(limit, 4)


def test_a_limit_stops_reading(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def noted(real: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any, **keywords: Any) -> Any:
            begun.append(1)
            return real(*arguments, **keywords)

        return noting

    monkeypatch.setattr(kernel, "merge", noted(kernel.merge))
    monkeypatch.setattr(kernel, "passed_through", noted(kernel.passed_through))
    assert table.scan(limit=0).to_polars().height == 0
    assert begun == []
    assert table.scan(limit=5).to_polars().height == 5
    assert len(begun) == 1, "the first file slice has them"
    begun.clear()
    table.scan(limit=30).to_polars()
    assert 1 < len(begun) < 8
    begun.clear()
    reader = table.scan().to_reader()
    reader.read_next_batch()
    del reader
    assert len(begun) < 8, "a stream that is left early, too"


@pytest.mark.parametrize("limit", [-1, 1.5, "3", True, [1]])
def test_a_limit_that_is_none_is_refused(make: Make, limit: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"0 or more\. limit="):
        make().scan(limit=limit)


# --- narrowed ---------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_scan_can_be_narrowed_on_the_same_snapshot(place: Place, layout: str) -> None:
    with many(place, layout) as table:
        check_narrowing(table)


def check_narrowing(table: Table) -> None:
    scan = table.scan(columns=["id", "n"], filter="n < 100", meta=True)
    table.upsert(frame(("zzz", "eu", 0)))
    less = scan.narrowed(columns=["n", META_COLUMNS[2]], filter=pl.col("n") > 97)
    assert less.as_of == scan.as_of
    assert sorted(less.to_polars().rows()) == [(98, "k098"), (99, "k099")]
    assert scan.narrowed(limit=3).schema == scan.schema
    assert scan.narrowed(limit=3).count() == 3
    assert scan.narrowed().count() == scan.count() == 100
    with pytest.raises(InvalidInputError, match=r"there are.*unknown=\['region'\]"):
        scan.narrowed(columns=["region"])
    with pytest.raises(InvalidInputError, match="narrow first"):
        table.scan(limit=3).narrowed(filter="n > 1")
