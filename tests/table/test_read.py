"""Reading: every output, columns and filters, the past, and the order of overlapping commits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Changes, Commit, InvalidInputError, Scan, Table
from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import FutureSnapshotError
from crdt_mor.model.instant import to_datetime
from tests.table.helpers import SCHEMA, Make, Place, frame, rows
from tests.tiers import only

MANY = frame(*((f"k{i:02}", "eu" if i % 2 else "us", i, i / 2) for i in range(40)))


STATES = ["logs only", "base and logs", "base only"]


@pytest.fixture(params=STATES)
def table(make: Make, request: pytest.FixtureRequest) -> Table:
    """Forty rows, k00 to k39, in several states of compaction."""
    table = make(partition_by="region")
    table.upsert(MANY.slice(0, 25))
    if request.param == "base and logs":
        table.maintenance.compact()
    table.upsert(MANY.slice(10, 30))
    if request.param == "base only":
        table.maintenance.compact()
    return table


def by_key(found: pa.Table) -> pa.Table:
    return found.sort_by("id").combine_chunks()


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_a_scan_gives_arrow_polars_pandas_and_streams_of_the_same_rows(table: Table) -> None:
    scan = table.scan()
    arrow = by_key(scan.to_arrow())
    assert arrow == by_key(MANY)
    assert arrow.schema == SCHEMA == scan.schema
    assert by_key(pa.table(scan.to_polars()).cast(SCHEMA)) == arrow
    assert scan.to_pandas().sort_values("id")["n"].tolist() == list(range(40))
    reader = scan.to_reader()
    assert isinstance(reader, pa.RecordBatchReader)
    assert by_key(reader.read_all()) == arrow
    assert by_key(pa.RecordBatchReader.from_stream(scan).read_all()) == arrow
    assert pl.DataFrame(scan).height == 40


def test_duckdb_queries_a_scan_as_it_is(table: Table) -> None:
    connection = duckdb.connect()
    connection.register("scan", table.scan(filter="n >= 10"))
    found = connection.execute("select region, count(*), sum(n) from scan group by 1 order by 1").fetchall()
    assert found == [("eu", 15, sum(range(11, 40, 2))), ("us", 15, sum(range(10, 40, 2)))]


@pytest.mark.costly
@pytest.mark.parametrize("table", only(["base and logs"], STATES), indirect=True)
@pytest.mark.parametrize("filter", [None, "n >= 10", "n + 1 > 10", pl.col("id") == "k07"], ids=str)
def test_every_output_of_no_columns_has_as_many_rows_as_are_shown(table: Table, filter: Any) -> None:
    scan, count = table.scan(columns=[], filter=filter), table.scan(filter=filter).to_arrow().num_rows
    assert count
    assert scan.to_polars().shape == scan.to_arrow().shape == scan.to_pandas().shape == (count, 0)
    assert pl.DataFrame(scan).shape == pa.table(scan).shape == (count, 0)
    for batches in (scan.to_reader(), pa.RecordBatchReader.from_stream(scan)):
        assert sum(batch.num_rows for batch in batches) == count
    assert sum(frame.height for frame in scan.frames()) == count
    assert sum(part.to_arrow().num_rows for part in scan.parts(size=1)) == count
    assert scan.narrowed(columns=[]).count() == scan.count() == count
    assert scan.narrowed(limit=3).to_arrow().num_rows == min(count, 3)
    assert scan._repr_html_().count("<tr>") - 1 == min(count, 10)
    assert table.scan(columns=[], limit=5).to_polars().shape == (5, 0)


def test_a_scan_of_no_columns_says_what_it_reads_to_count(table: Table) -> None:
    assert table.scan(columns=[], filter="n >= 10").explain().columns[0] == "n"
    assert table.scan(columns=[]).explain().columns == ("id",)


def test_duckdb_says_that_it_takes_no_stream_without_columns(table: Table) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="at least one column"):
        duckdb.connect().register("scan", table.scan(columns=[]))


def test_a_scan_can_be_read_again_and_shows_what_it_was_sealed_to(table: Table) -> None:
    scan = table.scan()
    before = by_key(scan.to_arrow())
    table.upsert(frame(("k00", "us", -1, 0.0), ("zz", "us", 0, 0.0)))
    table.maintenance.compact()
    assert by_key(scan.to_arrow()) == before
    assert scan.count() == 40
    assert table.scan().count() == 41


# --- columns, filters, meta -------------------------------------------------------------------------------------------


def test_columns_come_in_the_order_they_are_asked_for(table: Table) -> None:
    scan = table.scan(columns=["n", "id"])
    assert scan.to_arrow().column_names == ["n", "id"]
    assert scan.to_polars().columns == ["n", "id"]
    assert scan.schema.names == ["n", "id"]


FILTERS = {
    "untouched and touched": ("n % 2 = 1", pl.col("n") % 2 == 1),
    "key": ("id = 'k07'", pl.col("id") == "k07"),
    "partition": ("region = 'eu'", pl.col("region") == "eu"),
    "none": ("n > 1000", pl.col("n") > 1000),
    "two columns": ("price > 3 AND region <> 'eu'", (pl.col("price") > 3) & (pl.col("region") != "eu")),
    "null": ("n IS NULL", pl.col("n").is_null()),
}


@pytest.mark.parametrize("table", only(["base and logs"], STATES), indirect=True)
@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_is_an_expression_or_sql_and_need_not_be_among_the_columns(table: Table, name: str) -> None:
    text, expression = FILTERS[name]
    expected = sorted(pl.DataFrame(MANY).filter(expression)["id"])
    for condition in (text, expression):
        scan = table.scan(columns=["id"], filter=condition)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == expected
        assert scan.count() == len(expected)
        assert scan.to_polars().columns == ["id"]


def test_a_filter_is_applied_to_merged_rows_not_to_the_versions_of_a_row(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1), ("b", "x", 1)))
    table.maintenance.compact()
    table.upsert(frame(("a", "x", 9)))
    table.delete(keys=["b"])
    assert rows(table, "id", filter="n = 1") == []
    assert rows(table, "id", filter="n = 9") == [("a",)]


def test_a_filter_speaks_of_declared_types(make: Make) -> None:
    """Naive timestamps are stored as UTC, and unsigned numbers wider; neither is what the user sees."""
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("ms")), ("u", pa.uint64())])
    table = make(schema=schema, key="k")
    moments = [datetime(2024, 1, 1) + timedelta(days=i) for i in range(3)]  # noqa: DTZ001
    table.upsert(pa.table({"k": ["a", "b", "c"], "at": moments, "u": [1, 2, 2**63]}, schema=schema))
    assert table.scan(filter=pl.col("at") > moments[1]).to_polars()["k"].to_list() == ["c"]
    assert table.scan(filter=pl.col("u") > 2**40).to_arrow().to_pylist() == [{"k": "c", "at": moments[2], "u": 2**63}]
    assert table.scan().to_polars().schema["at"] == pl.Datetime("ms")


def test_hudis_five_columns_come_on_request_in_front(table: Table) -> None:
    commit = table.upsert(frame(("k00", "us", 100, 0.0)))
    scan = table.scan(columns=["n"], filter="id = 'k00'", meta=True)
    assert scan.schema.names == [*META_COLUMNS, "n"]
    row = scan.to_arrow().to_pylist()[0]
    assert row["_hoodie_commit_time"] == commit.requested_at
    assert row["_hoodie_record_key"] == "k00"
    assert row["_hoodie_partition_path"] == "region=us"
    assert table.scan(filter=f"_hoodie_commit_time = '{commit.requested_at}'").count() == 1


@pytest.mark.parametrize(
    ("asked", "named"),
    [({"columns": ["id", "nope"]}, "nope"), ({"filter": "nope > 1"}, "nope"), ({"filter": pl.col("nope") > 1}, "nope")],
)
def test_unknown_columns_are_named(table: Table, asked: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"(there are|it has|the table has).*unknown=\['{named}'\]"):
        table.scan(**asked)  # type: ignore[arg-type]


# --- count ------------------------------------------------------------------------------------------------------------


def test_a_count_reads_nothing_where_files_say_it(make: Make, place: Place) -> None:
    table = make()
    table.upsert(MANY)
    table.maintenance.compact()
    reader, store = place.watched()
    scan = reader.scan()
    store.calls.clear()
    assert scan.count() == 40
    assert store.calls == [], "a file was looked at"


def test_a_count_is_that_of_merged_rows(table: Table) -> None:
    assert table.scan().count() == 40
    table.delete(where="n < 5")
    assert table.scan().count() == 35


# --- order ------------------------------------------------------------------------------------------------------------


def test_log_blocks_are_sorted_by_start_commit_time_whatever_order_they_complete_in(make: Make) -> None:
    table = make()
    overlapping = [table.transaction() for _ in range(4)]
    for i, tx in enumerate(overlapping):
        tx.__enter__()
        tx.upsert(frame(("all", f"tx{i}", i), (f"own{i}", f"tx{i}", i)))
    shown = []
    for i in (2, 0, 3, 1):
        overlapping[i].__exit__(None, None, None)
        shown.append(rows(table, "region", filter="id = 'all'")[0][0])
    assert shown == ["tx2", "tx2", "tx3", "tx3"]
    assert rows(table, "id", filter="id <> 'all'") == [(f"own{i}",) for i in range(4)]
    commits = [tx.commit for tx in overlapping]
    assert [c.requested_at for c in commits if c] == sorted(c.requested_at for c in commits if c)
    past = [rows(table, "region", filter="id = 'all'", as_of=commits[i])[0][0] for i in (2, 0, 3, 1)]
    assert past == shown


# --- the past ---------------------------------------------------------------------------------------------------------


def history(table: Table) -> list[Commit]:
    return [table.upsert(frame(("a", "x", i), (f"k{i}", "x", i))) for i in range(5)]


def test_as_of_takes_a_commit_a_version_a_completion_time_or_a_moment(make: Make) -> None:
    table = make()
    commits = history(table)
    for i, commit in enumerate(commits):
        moment = to_datetime(commit.completed_at)
        for as_of in (commit, commit.version, commit.completed_at, moment, moment.astimezone()):
            found = rows(table, "id", "n", as_of=as_of)
            assert found == [("a", i), *((f"k{j}", j) for j in range(i + 1))]
        assert rows(table, "n", as_of=commit.requested_at) == rows(table, "n", as_of=commits[i - 1] if i else 0)
    assert table.scan(as_of=commits[2]).as_of == commits[2].completed_at


def test_before_the_first_commit_there_is_nothing(make: Make) -> None:
    table = make()
    history(table)
    assert rows(table, as_of=0) == []
    assert rows(table, as_of="20200101000000000") == []
    assert rows(table, as_of=datetime(2020, 1, 1, tzinfo=UTC)) == []


def test_now_is_the_tables_clock_and_the_scan_says_which(make: Make) -> None:
    table = make()
    commit = history(table)[-1]
    scan = table.scan()
    assert scan.as_of == commit.completed_at
    assert scan.version == commit.version == table.version
    assert rows(table, as_of=scan.as_of) == rows(table)


def test_the_future_is_refused_since_it_is_not_decided_yet(make: Make) -> None:
    table = make()
    last = history(table)[-1]
    tomorrow = to_datetime(last.completed_at) + timedelta(days=1)
    for as_of in (tomorrow, last.version + 1, "29991231235959998"):
        with pytest.raises(FutureSnapshotError, match="yet"):
            table.scan(as_of=as_of)


@pytest.mark.parametrize("as_of", ["a day ago", "2024", "20241399000000000", "2024010100000000０"])
def test_a_time_that_is_none_is_refused(make: Make, as_of: str) -> None:
    with pytest.raises(InvalidInputError, match=r"17 digits|no such moment"):
        make().scan(as_of=as_of)


def test_a_naive_datetime_is_in_utc(make: Make) -> None:
    table = make()
    commits = history(table)
    naive = to_datetime(commits[1].completed_at).replace(tzinfo=None)
    assert rows(table, as_of=naive) == rows(table, as_of=naive.isoformat()) == rows(table, as_of=commits[1])


@pytest.mark.parametrize("as_of", [-1, True, 1.5, object()])
def test_what_is_no_point_in_time_is_refused(make: Make, as_of: object) -> None:
    with pytest.raises(InvalidInputError, match="as_of"):
        make().scan(as_of=as_of)  # type: ignore[arg-type]


def test_a_bare_name_is_one_column_and_a_column_comes_out_once(make: Make) -> None:
    table = make()
    first = table.upsert(frame(("a", "x", 1)))
    table.upsert(frame(("b", "y", 2)))
    scan, commit = table.scan(), first.completed_at
    reads: list[Callable[[Any], Scan | Changes]] = [
        lambda columns: table.scan(columns=columns),
        lambda columns: scan.narrowed(columns=columns),
        lambda columns: table.changes(columns=columns),
        lambda columns: table.changes(columns=columns, images=True),
        lambda columns: table.diff(0, commit, columns=columns),
    ]
    for read in reads:
        assert read("id").to_polars().equals(read(["id"]).to_polars())
        assert [name for name in read("id").schema.names if not name.startswith("_")] == ["id"]
        with pytest.raises(InvalidInputError, match=r"pass each column once\. repeated=\['id'\]"):
            read(["id", "n", "id"])
        with pytest.raises(InvalidInputError, match=r"unknown=\['idn'\]"):
            read("idn")
    with table.transaction() as tx:
        assert tx.scan(columns="id").schema.names == ["id"]
