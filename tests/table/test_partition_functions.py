"""Partitions by a function of a column. Judges: plain polars filters, and Iceberg's transforms in pyiceberg."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor import InvalidInputError, PartialUpdate, PartitionFunction, Table
from crdt_mor.cli.inputs import partition_by
from crdt_mor.cli.main import app
from crdt_mor.errors import TableExistsError
from crdt_mor.model.partition_functions import from_text, parsed, to_text
from crdt_mor.model.partition_values import function_values
from crdt_mor.payloads import Counter
from crdt_mor.read import partition_filters
from crdt_mor.store import MemoryStore
from tests.interop.readers import hudi_rs
from tests.mirror.iceberg_reading import by_pyiceberg, metadata_uri, require_pyiceberg

pytestmark = pytest.mark.filterwarnings("ignore::crdt_mor.errors.PartitionNotInKeyWarning")

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = pl.Schema({"id": pl.Int64(), "ts": pl.Datetime("us", "UTC"), "name": pl.String(), "n": pl.Int64()})
NAMES = ["Ann", "Änne", None, "", "Bob"]
DAYS = [mor.day("ts"), mor.truncate("name", 2)]


def rows(count: int = 20, n: int = 0, hours: int = 7) -> pl.DataFrame:
    ids = range(count)
    times = [BEGIN + dt.timedelta(hours=hours * place) for place in ids]
    names = [NAMES[place % len(NAMES)] for place in ids]
    return pl.DataFrame({"id": ids, "ts": times, "name": names, "n": [n] * count}, schema=SCHEMA)


def made(by: Any = None, uri: Any = "t", **given: Any) -> Table:
    opening = mor.Opening(store=MemoryStore()) if uri == "t" else None
    settings = {"key": "id", "partition_by": DAYS if by is None else by, "buckets": 2, **given}
    return Table.create(uri, SCHEMA, opening=opening, **settings)


def shown(table: Table) -> pl.DataFrame:
    return table.to_polars().sort("id")


def paths(table: Table) -> set[str]:
    return {*table.scan(meta=True).to_polars()["_hoodie_partition_path"]}


# --- the functions ----------------------------------------------------------------------------------------------------

_NAIVE = partial(dt.datetime, tzinfo=None)
_MOMENTS = st.datetimes(_NAIVE(1, 1, 1), _NAIVE(9999, 12, 31, 23, 59, 59, 999999))


def _transform(function: PartitionFunction) -> Any:
    from pyiceberg import transforms

    kind = getattr(transforms, f"{function.name.title()}Transform")
    return kind() if function.width is None else kind(function.width)


def _iceberg(function: PartitionFunction, source: Any, values: list[Any]) -> list[Any]:
    """Return pyiceberg's values, as texts of levels."""
    require_pyiceberg()
    from pyiceberg import conversions as _  # noqa: F401  a part of pyiceberg that needs no Rust

    transform = _transform(function)
    apply = transform.transform(source)
    found = [apply(value) for value in values]
    if function.name in ("bucket", "truncate"):
        return found
    return [None if one is None else transform.to_human_string(source, one) for one in found]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | _MOMENTS, max_size=8))
@example([_NAIVE(1969, 12, 31, 23, 59, 59, 999999), _NAIVE(1970, 1, 1)])
def test_times_are_icebergs(moments: list[dt.datetime | None]) -> None:
    require_pyiceberg()
    from pyiceberg.types import TimestampType
    from pyiceberg.utils.datetime import datetime_to_micros

    micros = [None if one is None else datetime_to_micros(one) for one in moments]
    for function in (mor.year("ts"), mor.month("ts"), mor.day("ts"), mor.hour("ts")):
        got = function_values(function, pa.array(moments, pa.timestamp("us")))
        texts = [
            None if one is None else f"{one:04}" if function.name == "year" else str(one) for one in got.to_pylist()
        ]
        assert texts == _iceberg(function, TimestampType(), micros), function


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.text(max_size=9)), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_buckets_and_truncations_are_icebergs(texts: list[str | None], numbers: list[int | None]) -> None:
    require_pyiceberg()
    from pyiceberg.types import LongType, StringType

    strings = pa.array(texts, pa.string())
    for function in (mor.bucket("x", 7), mor.bucket("x", 1), mor.truncate("x", 3)):
        assert function_values(function, strings).to_pylist() == _iceberg(function, StringType(), texts)
        small = [one for one in numbers if one is None or one > -(2**62)]
        longs = pa.array(small, pa.int64())
        assert function_values(function, longs).to_pylist() == _iceberg(function, LongType(), small)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_other_layouts_of_a_type_give_the_same_values(kind: pa.DataType) -> None:
    texts = pa.array(["Ann", None, "Änne"]).cast(kind)
    assert function_values(mor.truncate("x", 2), pa.chunked_array([texts])).to_pylist() == ["An", None, "Än"]
    assert function_values(mor.truncate("x", 2), pa.chunked_array([], kind)).to_pylist() == []


def test_dates_and_units_of_time() -> None:
    days = pa.array([dt.date(1969, 12, 31), None, dt.date(2026, 2, 28)])
    assert function_values(mor.month("x"), days).to_pylist() == ["1969-12", None, "2026-02"]
    by = mor.bucket("x", 100)
    assert function_values(by, days).equals(function_values(by, days.cast(pa.int32())))
    moments = pa.array([-1, 3_600_000], pa.timestamp("ms", "Europe/Berlin"))
    assert function_values(mor.hour("x"), moments).to_pylist() == ["1969-12-31-23", "1970-01-01-01"]


def test_a_year_without_four_digits_and_a_number_that_does_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"years from 1 to 9999.*column=ts"):
        function_values(mor.day("ts"), pa.array([2**62], pa.timestamp("us")))
    with pytest.raises(InvalidInputError, match=r"does not fit 64 bits.*column=n"):
        function_values(mor.truncate("n", 10), pa.array([-(2**63)]))


@pytest.mark.parametrize("function", [mor.day("ts"), mor.bucket("a b", 16), mor.truncate("n(x)", 3)])
def test_a_function_as_text(function: PartitionFunction) -> None:
    assert parsed(str(function)) == function
    assert eval(repr(function), vars(mor).copy() | {"__builtins__": {}, **_FUNCTIONS}) == function
    stored = replace(function, column="c")
    assert from_text(to_text(("plain", stored))) == {"c": stored}


_FUNCTIONS = {name: getattr(mor, name) for name in ("day", "bucket", "truncate")}


def test_the_command_line_splits_levels() -> None:
    assert partition_by('region, bucket(id, 16),"day(ts)",day(ts)') == [
        "region", mor.bucket("id", 16), "day(ts)", mor.day("ts"),
    ]  # fmt: skip
    quoted = [mor.day("at noon"), mor.truncate("na,me", 3), 'a"b']
    assert partition_by('day("at noon"), truncate("na,me", 3), "a""b"') == quoted
    assert partition_by(None) is None
    with pytest.raises(InvalidInputError, match="write a function as"):
        partition_by("bucket(id)")


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (mor.day("n"), r"day needs a date or a timestamp.*column=n type=int64"),
        (mor.truncate("ts", 2), r"truncate needs an integer or a string.*column=ts"),
        ("day", r"the function of that name takes a column, such as day\(ts\)\. column=day"),
        (mor.bucket("gone", 2), r"a partition column does not exist\. column=gone"),
        (
            "day(ts)",
            r"a partition column does not exist: the functions are .*, not as text in Python\. column=day\(ts\)",
        ),
        ([mor.day("ts"), mor.day("ts")], r"the partition has a column twice"),
        ([5], r"give columns or functions"),
    ],
    ids=str,
)
def test_what_no_table_can_have(by: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        made(by)


@pytest.mark.parametrize("make", [lambda: mor.bucket("id", 0), lambda: mor.truncate("id", None), lambda: mor.day("")])  # type: ignore[arg-type]
def test_arguments_of_functions_are_checked(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInputError):
        make()


# --- pruning ----------------------------------------------------------------------------------------------------------

_FILTERED = made([mor.day("ts"), mor.bucket("id", 4), mor.truncate("name", 2), mor.truncate("n", 10)], buckets=1)
_ROWS = rows(40).with_columns(n=pl.Series([(place * 7) % 45 - 20 for place in range(40)]))
_FILTERED.append(_ROWS)
"""Each row has a partition of its own. Null and empty names share a level, so no filter skips these 16."""

_TIMES = st.integers(-10, 300).map(lambda hours: BEGIN + dt.timedelta(hours=hours))
_LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "ts": _TIMES | _TIMES.map(lambda moment: moment.date()),
    "id": st.integers(-2, 45),
    "name": st.sampled_from(["A", "An", "Ann", "Ä", "Änn", "", "Bo", "C"]),
    "n": st.integers(-30, 40) | st.sampled_from([0.5, -10.5]),
}


@st.composite
def _conditions(draw: st.DrawFn, depth: int = 2) -> pl.Expr:
    if depth and draw(st.booleans()):
        sides = [draw(_conditions(depth - 1)) for _ in range(2)]
        return reduce(draw(st.sampled_from([and_, or_])), sides)
    name = draw(st.sampled_from([*_LITERALS]))
    column, literal = pl.col(name), draw(_LITERALS[name])
    ways: list[Callable[[], pl.Expr]] = [
        lambda: column < literal, lambda: column <= literal, lambda: column > literal, lambda: column >= literal,
        lambda: column == literal, lambda: column != literal, column.is_null, lambda: ~(column < literal),
        lambda: column.is_between(pl.lit(literal), pl.lit(draw(_LITERALS[name]))),
    ]  # fmt: skip
    if name == "name":
        ways += [lambda: column.str.starts_with(literal), lambda: column.is_in([literal, "Bob"])]
    if name == "id":
        ways += [lambda: column.is_in([literal, 3])]
    return draw(st.sampled_from(ways))()


@settings(max_examples=150, deadline=None)
@given(_conditions())
def test_a_filter_loses_no_row(condition: pl.Expr) -> None:
    assert _FILTERED.scan(filter=condition).to_polars().sort("id").equals(_ROWS.filter(condition).sort("id"))


@pytest.mark.parametrize(
    ("condition", "partitions"),
    [
        ("ts >= '2026-01-03 00:00:00+00:00' AND ts < '2026-01-04 00:00:00+00:00'", 4),
        (pl.col("ts") >= dt.date(2026, 1, 12), 2),
        (pl.col("ts").is_between(BEGIN, BEGIN + dt.timedelta(hours=7)), 4),
        ("id = 3", 11),
        ("id IN (3, 4) AND ts < '2026-01-03 00:00:00+00:00'", 3),
        ("name LIKE 'Än%'", 24),
        (pl.col("name").str.starts_with("B"), 24),
        (pl.col("name") == "Bob", 24),
        ((pl.col("ts") < BEGIN) | (pl.col("name") == "Bob"), 24),
        (pl.col("n") > 19, 5),
    ],
    ids=str,
)
def test_a_filter_on_the_source_skips_partitions(condition: Any, partitions: int) -> None:
    explained = _FILTERED.scan(filter=condition).explain()
    left = explained.total.slices - explained.by_partition.slices
    assert (explained.total.slices, left) == (40, partitions)


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random filters find a strict comparison of days: a day also holds moments after its begin."""
    monkeypatch.setitem(partition_filters._ORDERED, ">", lambda column, value: column > value)
    condition = pl.col("ts") > BEGIN
    assert not _FILTERED.scan(filter=condition).to_polars().sort("id").equals(_ROWS.filter(condition))


# --- the doors --------------------------------------------------------------------------------------------------------


def test_rows_come_back_without_the_column_of_a_function(tmp_path: Path) -> None:
    table = made(uri=tmp_path)
    table.upsert(rows())
    assert table.schema.names == [*SCHEMA]
    assert shown(Table(tmp_path)).equals(rows())
    assert "ts_day=2026-01-01/name_truncate=An" in paths(table)
    assert table.config.partition_by == tuple(DAYS)
    assert table.config.partition_sources == ("ts", "name")


@pytest.mark.parametrize("merge", [None, PartialUpdate(), {"n": Counter()}], ids=["latest", "partial", "counter"])
@pytest.mark.parametrize("hive_style", [True, False])
def test_every_way_to_write(merge: Any, hive_style: bool) -> None:
    table = made(merge=merge, hive_style=hive_style)
    table.append(rows())
    table.upsert(rows(4, n=2))
    table.delete(rows(1))
    with table.transaction() as transaction:
        transaction.upsert(rows(25, n=3).tail(5))
        transaction.delete(where="id = 1")
    job = table.jobs.plan("upsert", table.schema)
    table.jobs.complete(job, [job.stage(rows(26, n=4).tail(1), task=0)])
    table.maintenance.compact()
    expected = {**dict.fromkeys(range(4, 20), 0), 2: 2, 3: 2, **dict.fromkeys(range(20, 25), 3), 25: 4}
    assert dict(table.scan(columns=["id", "n"]).to_polars().iter_rows()) == expected
    table.overwrite(rows(1, n=9), partitions=[("2026-01-01", "An")])
    assert table.count() == 25
    assert not table.verify(deep=True).findings


def test_a_key_that_contains_the_source_names_the_partition() -> None:
    table = made(mor.bucket("id", 3))
    table.append(rows())
    table.delete(keys=[1, 2])
    table.update({"n": "n + 1"}, where="id = 3")
    assert table.count() == 18
    assert table.scan(filter="id = 3").explain().by_partition.slices > 0
    with pytest.raises(InvalidInputError, match=r"partition_by=\['day\(ts\)'"):
        made().delete(keys=[1])


def test_a_row_moves_as_its_source_changes() -> None:
    table = made(mor.day("ts"))
    table.append(rows())
    source = rows(6, n=5).with_columns(
        ts=pl.when(pl.col("id") < 3)
        .then(pl.col("ts") + pl.duration(days=30))
        .otherwise(pl.col("ts") + pl.duration(minutes=1))
    )
    table.merge(source, on="id").when_matched_update_all().execute()
    assert shown(table).equals(pl.concat([source, rows().tail(14)]))
    table.move(keys=[7, 8], partition={"ts": BEGIN})
    assert table.scan(filter=pl.col("ts") == BEGIN).to_polars().sort("id")["id"].to_list() == [7, 8]
    table.maintenance.compact()
    assert table.count() == 20


def test_an_update_may_change_a_source_within_its_partition() -> None:
    table = made()
    table.append(rows())
    table.update({"ts": pl.col("ts") + pl.duration(minutes=1), "name": "'Ann B'"}, where="id = 0")
    assert table.scan(filter="id = 0").to_polars().row(0) == (0, BEGIN + dt.timedelta(minutes=1), "Ann B", 0)
    with pytest.raises(InvalidInputError, match=r"cannot move a row.*partition_by=\['day\(ts\)'\] key="):
        table.update({"ts": pl.col("ts") + pl.duration(days=1)}, where="id < 2")
    assert table.count() == 20


def test_partitions_by_value_by_mapping_and_by_path() -> None:
    table = made()
    table.append(rows())
    table.delete_partitions([(dt.date(2026, 1, 1), "An")])
    table.delete_partitions([{"day(ts)": "2026-01-01", "truncate(name, 2)": "Än"}])
    table.delete_partitions(["ts_day=2026-01-02/name_truncate=Bo"])
    assert shown(table)["id"].to_list() == [2, 3, *range(5, 20)]
    for wrong in ({"ts_day": "2026-01-01"}, "2026-01-01", (1, 2, 3)):
        with pytest.raises(InvalidInputError, match=r"partition_by=\['day\(ts\)', 'truncate\(name, 2\)'\]"):
            table.delete_partitions([wrong])


def test_names_change_and_a_source_stays() -> None:
    table = made()
    table.append(rows())
    table.alter(rename={"ts": "time of day"})
    assert table.config.partition_by == (mor.day("time of day"), DAYS[1])
    later = rows(n=1).rename({"ts": "time of day"})
    table.upsert(later)
    assert table.scan(filter=pl.col("time of day") < dt.date(2026, 1, 2)).to_polars().height == 4
    with pytest.raises(InvalidInputError, match="cannot drop columns used by the partitions"):
        table.alter(drop=["time of day"])
    table.upsert(later.with_columns(ts_day=pl.lit("mine")), schema_mode="merge")
    assert table.scan(filter="ts_day = 'mine'").to_polars().height == 20
    assert table.count() == 20


def test_a_source_keeps_its_type() -> None:
    schema = {"id": pl.Int64, "k": pl.Int32}
    table = Table.create(
        "t", schema, key="id", partition_by=mor.truncate("k", 10), opening=mor.Opening(store=MemoryStore())
    )
    table.append(pl.DataFrame({"id": [1, 2], "k": [5, -5]}, schema=schema))
    assert paths(table) == {"k_truncate=0", "k_truncate=-10"}
    table.upsert(pl.DataFrame({"id": [3], "k": [2**40 + 5]}), schema_mode="merge")
    assert paths(table) == {"k_truncate=0", "k_truncate=-10", f"k_truncate={2**40 + 5 - (2**40 + 5) % 10}"}


def test_a_table_gets_functions_and_loses_them(tmp_path: Path) -> None:
    table = Table.create_from(tmp_path / "0", rows(), key="id", partition_by=DAYS)
    for place, by in enumerate([(), DAYS, None, [mor.month("ts")], ["name", mor.bucket("id", 2)]]):
        there = tmp_path / f"{place + 1}"
        table.maintenance.migrate(there, **({} if by is None else {"partition_by": by}))  # type: ignore[arg-type]
        table = Table(there)
        assert shown(table).equals(rows(n=place)), by
        table.upsert(rows(n=place + 1))
        assert table.count() == 20, by
    assert "name=Bob/id_bucket=0" in paths(table)


def test_ordered_deletes_move_along() -> None:
    table = made(ordering="n")
    table.append(rows(n=1))
    table.delete(rows(1, n=5))
    store = MemoryStore()
    table.maintenance.migrate("u", buckets=3, store=store)
    moved = Table("u", opening=mor.Opening(store=store))
    moved.upsert(rows(1, n=4))
    assert moved.count() == 19


def test_a_copy_and_a_comparison(tmp_path: Path) -> None:
    table = made(uri=tmp_path / "t")
    table.append(rows())
    table.copy(tmp_path / "c")
    copied = Table(tmp_path / "c")
    copied.update({"ts": pl.col("ts") + pl.duration(minutes=1)}, where="id = 1")
    found = table.diff(copied)
    assert (found.here, found.there, found.changed, found.keys_changed) == (0, 0, 1, ((1,),))


def test_the_same_table_is_opened_and_another_refused(tmp_path: Path) -> None:
    made(uri=tmp_path)
    made(uri=tmp_path, exist_ok=True)
    with pytest.raises(TableExistsError, match=r"asked=.*truncate\(name, 3\).*found=.*truncate\(name, 2\)"):
        made([DAYS[0], mor.truncate("name", 3)], uri=tmp_path, exist_ok=True)


def test_changes_name_the_source_of_a_deleted_row() -> None:
    table = made()
    table.append(rows())
    since = table.version
    table.delete(rows(1))
    found = table.changes(since=since).to_polars()
    assert found.select("id", "ts", "name").rows() == [(0, BEGIN, "Ann")]


def test_hudis_writers_do_not_get_the_table() -> None:
    with pytest.raises(InvalidInputError, match="cannot compute the partition functions"):
        made().maintenance.handover()


def test_the_command_line_makes_and_shows_such_a_table(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    uri, file = str(tmp_path / "t"), tmp_path / "columns.json"
    file.write_text(json.dumps({"id": "int64", "day": "date32"}))
    by = "month(day), bucket(id, 4)"
    run("create", uri, "--schema", str(file), "--key", "id", "--partition-by", by)
    assert Table(uri).config.partition_by == (mor.month("day"), mor.bucket("id", 4))
    assert by in run("show", uri)
    assert json.loads(run("schema", uri, "--output", "json"))["partition_by"] == ["month(day)", "bucket(id, 4)"]


# --- other readers ----------------------------------------------------------------------------------------------------


def test_icebergs_readers_see_the_functions(tmp_path: Path) -> None:
    require_pyiceberg()
    from pyiceberg.table import StaticTable

    by = [mor.year("ts"), mor.month("ts"), mor.day("ts"), mor.hour("ts"), mor.bucket("id", 4), mor.truncate("name", 2)]
    table = made(by, uri=tmp_path)
    sound = rows().filter(pl.col("name") != "")
    table.append(sound)
    table.maintenance.compact()
    table.delete(sound.head(1))
    table.mirror("iceberg")
    opened = StaticTable.from_metadata(metadata_uri(table))
    assert [str(one.transform) for one in opened.spec().fields] == [
        "year", "month", "day", "hour", "bucket[4]", "truncate[2]",
    ]  # fmt: skip
    for condition, polars in {
        "ts >= '2026-01-03T00:00:00+00:00'": pl.col("ts") >= dt.date(2026, 1, 3),
        "id = 3": pl.col("id") == 3,
        "name like 'An%'": pl.col("name").str.starts_with("An"),
        "name is null": pl.col("name").is_null(),
    }.items():
        expected = sound.tail(-1).filter(polars)
        assert len(by_pyiceberg(table, row_filter=condition)) == expected.height
        assert len([*opened.scan(condition).plan_files()]) == expected.height, condition


def test_hudi_rs_reads_the_column_of_a_function(tmp_path: Path) -> None:
    table = made(mor.day("ts"), uri=tmp_path)
    table.append(rows())
    table.maintenance.compact()
    table.delete(rows(1))
    found = hudi_rs(tmp_path)
    assert len(found) == 19
    assert {str(row["ts_day"]) for row in found.values()} == {path.removeprefix("ts_day=") for path in paths(table)}
