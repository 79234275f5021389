"""The lazy polars source: what goes down, what comes back, and that a frame shows one snapshot for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from crdt_mor import InvalidInputError, Scan, Table
from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import TableNotFoundError
from crdt_mor.payloads import Counter
from crdt_mor.readers.polars import scan_table
from tests.tiers import one_in, only, slow

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("ms")), ("small", pa.uint16()), ("n", pa.int64())]
)
Engine = Literal["in-memory", "streaming"]
MIDNIGHT = datetime(2024, 1, 1)  # noqa: DTZ001


def some(*numbers: int) -> pa.Table:
    found = [
        {
            "id": f"k{i:03}", "day": (MIDNIGHT + timedelta(days=i % 3)).date(), "at": MIDNIGHT + timedelta(hours=i),
            "small": i, "n": None if i % 10 == 0 else i,
        }
        for i in numbers
    ]  # fmt: skip
    return pa.Table.from_pylist(found, SCHEMA)


MERGES: dict[str, Any] = {"latest": None, "payload": {"n": Counter()}}


@contextmanager
def layered(path: Path, merge: str) -> Iterator[Table]:
    """100 rows, in base files, in logs, and across a compaction that passed over a write that is still open."""
    table = Table.create(path, SCHEMA, key="id", partition_by="day", buckets=2, merge=MERGES[merge])
    straggler = table.transaction()
    straggler.__enter__()
    straggler.upsert(some(7, 1000))
    table.upsert(some(*range(60), 1001))
    table.delete(some(1001))
    assert table.maintenance.compact()[0].carried > 0
    table.upsert(some(*range(60, 100)))
    yield table
    straggler.__exit__(ValueError, None, None)


@pytest.fixture(scope="module", params=MERGES)
def table(fast_module_path: Path, request: pytest.FixtureRequest) -> Iterator[Table]:
    """A table of each merge, which no test changes."""
    with layered(fast_module_path / request.param, request.param) as found:
        yield found


@pytest.fixture(params=MERGES)
def own_table(fast_path: Path, request: pytest.FixtureRequest) -> Iterator[Table]:
    """Another one, for a test that changes it."""
    with layered(fast_path / "t", request.param) as found:
        yield found


ENGINES: list[Engine] = ["in-memory", "streaming"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Both of polars' engines."""
    found: Engine = request.param
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked of the scan below a lazy frame."""
    found: list[dict[str, Any]] = []
    narrowed = Scan.narrowed

    def noted(self: Scan, **said: Any) -> Scan:
        found.append(said)
        return narrowed(self, **said)

    monkeypatch.setattr(Scan, "narrowed", noted)
    return found


QUERIES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "all": lambda f: f,
    "columns": lambda f: f.select("n", "id"),
    "no column": lambda f: f.select(pl.len()),
    "a constant": lambda f: f.select(pl.lit(1).alias("one")),
    "numbers of rows": lambda f: f.with_row_index().select("index"),
    "the greatest number of a row": lambda f: f.with_row_index().select(pl.col("index").max()),
    "the last numbers of rows": lambda f: f.with_row_index().select("index").tail(3),
    "a part of the numbers of rows": lambda f: f.with_row_index().slice(7, 20).select("index"),
    "numbers of rows, grouped": lambda f: f.with_row_index().group_by(pl.col("index") % 7).agg(pl.len()),
    "numbers of rows, filtered": lambda f: f.with_row_index().filter(pl.col("index") % 10 == 0).select("index"),
    "numbers of filtered rows": lambda f: f.filter(pl.col("n") > 50).with_row_index().select("index"),
    "numbers of the first rows": lambda f: f.head(20).with_row_index().select("index"),
    "a range as long as the rows": lambda f: f.select(pl.int_range(pl.len())),
    "as many as there are rows": lambda f: f.select(pl.repeat(1, pl.len())),
    "each row with another frame": lambda f: f.join(pl.LazyFrame({"a": [1, 2]}), how="cross").select("a"),
    "another frame with each row": lambda f: pl.LazyFrame({"a": [1, 2]}).join(f, how="cross").select("a"),
    "numbers of two of it": lambda f: pl.concat([f, f]).with_row_index().select("index"),
    "a filter": lambda f: f.filter(pl.col("n") > 50),
    "filters on restored columns": lambda f: f.filter(pl.col("at") > MIDNIGHT, pl.col("small") < 70).select("id"),
    "the same column twice": lambda f: f.filter((pl.col("small") > 9) & (pl.col("small") < 12)),
    "a key": lambda f: f.filter(pl.col("id").is_in(["k007", "k070", "nobody"])),
    "a partition": lambda f: f.filter(pl.col("day") == MIDNIGHT.date()).select("n"),
    "nothing left": lambda f: f.filter(id="nobody").select("n", "at"),
    "a filter over all rows": lambda f: f.filter(pl.col("n") == pl.col("n").max()),
    "a filter over neighbours": lambda f: f.sort("id").filter(pl.col("n").shift() > 50),
    "nulls": lambda f: f.filter(pl.col("n").is_null() | (pl.col("n") == 3)),
    "a group": lambda f: f.filter(pl.col("n") > 3).group_by("day").agg(pl.col("n").sum(), pl.len()),
    "a join with itself": lambda f: f.join(f.filter(pl.col("n") > 90), on="id", how="semi"),
    "two of it": lambda f: pl.concat([f.filter(pl.col("n") < 5), f.filter(pl.col("n") > 95)]),
    "a column of its own": lambda f: f.with_columns(twice=pl.col("n") * 2).filter(pl.col("twice") > 180),
}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("query", "engine"),
    [
        *one_in(3, ((query, ENGINES[number // 2 % 2]) for number, query in enumerate(QUERIES))),
        *(slow(query, ENGINES[1 - number // 2 % 2]) for number, query in enumerate(QUERIES)),
    ],
)
def test_a_query_gives_what_it_gives_of_the_rows_in_memory(table: Table, engine: Engine, query: str) -> None:
    ask = QUERIES[query]
    found = ask(scan_table(table)).collect(engine=engine)
    assert_frame_equal(found, ask(table.scan().to_polars().lazy()).collect(), check_row_order=False)


def test_types_are_the_declared_ones(table: Table) -> None:
    lazy = scan_table(table)
    assert lazy.collect_schema() == lazy.collect().schema == table.scan().to_polars().schema
    assert lazy.collect_schema()["small"] == pl.UInt16
    assert lazy.collect_schema()["at"] == pl.Datetime("ms")


def test_columns_and_filters_go_down(table: Table, engine: Engine, asked: list[dict[str, Any]]) -> None:
    scan_table(table).filter(pl.col("n") > 50, pl.col("id") != "k060").select("day").collect(engine=engine)
    assert [sorted(said["columns"]) for said in asked] == [["day", "id", "n"]]
    assert set(asked[0]["filter"].meta.root_names()) == {"n", "id"}
    assert asked[0]["limit"] is None
    plan = scan_table(table).filter(pl.col("n") > 50).select("id").explain()
    for words in ("crdt_mor", table.uri, "PROJECT 2/5", 'col("n") > 50'):
        assert words in plan


def test_a_row_limit_goes_down(table: Table, engine: Engine, asked: list[dict[str, Any]]) -> None:
    assert scan_table(table).head(7).collect(engine=engine).height == 7
    assert scan_table(table).select("n").head(7).collect(engine=engine).shape == (7, 1)
    assert [said["limit"] for said in asked] == [7, 7]


@pytest.mark.costly
def test_rows_are_counted_before_a_later_filter_and_after_an_earlier_one(table: Table, engine: Engine) -> None:
    lazy = scan_table(table)
    first = lazy.head(20).collect()
    before = lazy.head(20).filter(pl.col("n") % 2 == 0).select("id").collect(engine=engine)
    assert_frame_equal(before, first.filter(pl.col("n") % 2 == 0).select("id"), check_row_order=False)
    counted = lazy.head(20).filter(pl.col("n") % 2 == 0).with_row_index().select("index").collect(engine=engine)
    assert counted.height == before.height
    after = lazy.filter(pl.col("n") % 2 == 0).head(20).collect(engine=engine)
    assert after.height == 20
    assert (after["n"] % 2 == 0).all()
    assert lazy.filter(pl.col("n") > 97).head(20).collect(engine=engine).height == 2
    assert lazy.head(0).collect(engine=engine).height == 0
    assert lazy.filter(pl.col("n") > 1).head(20).filter(pl.col("n") < 0).collect(engine=engine).height == 0


@pytest.mark.costly
@pytest.mark.parametrize("own_table", only(["payload"], MERGES), indirect=True)
def test_a_frame_shows_one_snapshot_for_ever(own_table: Table, engine: Engine) -> None:
    table = own_table
    lazy = scan_table(table)
    before = lazy.collect()
    table.upsert(some(5, 500))
    table.upsert(some(501).append_column("new", pa.array([1])), schema_mode="merge")
    table.maintenance.compact()
    assert_frame_equal(lazy.collect(engine=engine), before, check_row_order=False)
    assert lazy.filter(id="k500").select(pl.len()).collect(engine=engine).item() == 0
    assert scan_table(table).select("new", "id").collect(engine=engine).height == 102


def test_a_table_is_given_by_itself_or_by_its_address(table: Table) -> None:
    for given in (table, table.uri, Path(table.uri)):
        assert scan_table(given).select(pl.len()).collect().item() == 100
    with pytest.raises(TableNotFoundError):
        scan_table(f"{table.uri}/nothing")


def test_the_past_and_hudis_columns(own_table: Table, engine: Engine) -> None:
    table = own_table
    commit = table.upsert(some(5, 500))
    table.delete(some(5))
    past = scan_table(table, as_of=commit, meta=True)
    assert past.collect_schema().names() == [*META_COLUMNS, *SCHEMA.names]
    found = past.filter(pl.col("_hoodie_record_key") == "k500").select("_hoodie_commit_time").collect(engine=engine)
    assert found["_hoodie_commit_time"].to_list() == [commit.requested_at]
    assert past.select(pl.len()).collect(engine=engine).item() == 101
    assert scan_table(table).select(pl.len()).collect(engine=engine).item() == 100
    with pytest.raises(InvalidInputError):
        scan_table(table, as_of="a day ago")


def test_an_empty_table(fast_path: Path, engine: Engine) -> None:
    lazy = scan_table(Table.create(fast_path / "empty", SCHEMA, key="id"))
    assert lazy.collect(engine=engine).shape == (0, 5)
    assert lazy.filter(pl.col("n") > 1).select("at").collect(engine=engine).schema == {"at": pl.Datetime("ms")}


def test_sql_of_polars(table: Table, engine: Engine) -> None:
    query = "SELECT day, count(*) AS c FROM t WHERE n BETWEEN 10 AND 19 AND id IN ('k011', 'k012', 'k099') GROUP BY day"
    found = pl.SQLContext(t=scan_table(table)).execute(query).collect(engine=engine)
    assert found["c"].sum() == 2


def test_a_table_can_be_sunk_to_a_file(table: Table, tmp_path: Path) -> None:
    scan_table(table).sink_parquet(tmp_path / "copy.parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "copy.parquet"), table.scan().to_polars(), check_row_order=False)


@pytest.mark.costly
@pytest.mark.parametrize("table", only(["payload"], MERGES), indirect=True)
def test_many_tables_in_one_query(table: Table, engine: Engine) -> None:
    joined = scan_table(table).select("id", "n")
    for i in range(4):
        joined = joined.join(scan_table(table).select("id", pl.col("n").alias(f"n{i}")), on="id")
    assert joined.collect(engine=engine).shape == (100, 6)
    every = pl.collect_all([scan_table(table).filter(pl.col("small") >= i) for i in range(8)], engine=engine)
    assert [frame.height for frame in every] == [100 - i for i in range(8)]


def test_frames_are_cut_to_the_size_that_polars_asks_for(table: Table) -> None:
    sizes = [batch.height for batch in scan_table(table).collect_batches(chunk_size=10)]
    assert sum(sizes) == 100
    assert max(sizes) <= 10


# --- memory -----------------------------------------------------------------------------------------------------------

STREAM = """
import sys
from pathlib import Path
import polars as pl, pyarrow.compute as pc
import crdt_mor as mor
from crdt_mor.ground import threads
from crdt_mor.readers.polars import scan_table

threads.THREADS = 2  # whatever the machine has
uri, way = sys.argv[1:]

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

table = mor.Table(uri)
table.scan(limit=1).to_arrow()
before = peak()
if way == "batches":
    total = sum(pc.sum(batch["n0"]).as_py() for batch in table.scan().to_reader())
elif way == "polars":
    total = scan_table(table).select(pl.all().sum()).collect(engine="streaming")["n0"].item()
else:
    copy = mor.Table.create(uri + "-copy", table.schema, key="id", buckets=1)
    for frame in table.scan().frames():
        copy.upsert(frame)
    total = sum(log.rows for log in copy.scan()._snapshot.slices[0].logs)
print(total, peak() - before)
"""

# The allocators of polars (jemalloc) and Arrow (mimalloc) keep freed pages for a while, by the clock; a busy machine
# makes that more. Told to give them back at once, the peak is what the reader and the writer hold.
GIVES_BACK = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0", "MIMALLOC_PURGE_DELAY": "0"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, int, int]:
    """A table of 48 file slices, its rows, and its bytes when it is decoded; `n0` is 1 everywhere."""
    numbers = [f"n{i}" for i in range(12)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in numbers)])
    table = Table.create(tmp_path_factory.mktemp("large") / "t", schema, key="id", buckets=48)
    count, parts = 4_800_000, 6
    for part in range(parts):
        ids = pl.int_range(part * count // parts, (part + 1) * count // parts, eager=True)
        values = {name: ids if name != "n0" else ids * 0 + 1 for name in numbers}
        table.upsert(pl.DataFrame({"id": ids, **values}))
    table.maintenance.compact()
    table.upsert(table.scan(filter="id % 100 = 0").to_arrow())
    return table, count, count * 8 * len(schema)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say what a process took")
@pytest.mark.parametrize(("way", "part"), [("batches", 8), ("polars", 8), ("copy", 4)])
def test_a_table_is_streamed_in_a_part_of_its_size(large: tuple[Table, int, int], way: str, part: int) -> None:
    table, total, size = large
    asked = [sys.executable, "-c", STREAM, table.uri, way]
    environment = {**os.environ, **GIVES_BACK, "POLARS_MAX_THREADS": "2", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found, peak = map(int, done.stdout.split())
    assert found == total
    assert peak < size / part, f"{peak:,} of {size:,} bytes"
