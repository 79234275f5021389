"""A table that is made with its first rows: from each kind of source, whole or not there, in bounded memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.errors import SchemaMismatchError, TableExistsError
from crdt_mor.log.paths import LOADS, VERSIONS
from crdt_mor.payloads import Counter, LatestBy, ORSet
from crdt_mor.results import LoadProgress
from crdt_mor.store import MemoryStore
from crdt_mor.testing.faults import FaultyStore, InterruptedStore, ProcessDied
from crdt_mor.write import load, load_sorting
from crdt_mor.write.load_sorting import RUN_ROWS
from tests.inside import look_for_hudi
from tests.stores import ScriptedStore, as_it_is
from tests.tiers import slow

ROWS = pl.DataFrame(
    {"id": [f"k{n:02}" for n in range(40)], "n": list(range(40)), "day": [("mon", "tue")[n % 2] for n in range(40)]}
)
NOW = timedelta(0)


def loaded(source: Any, uri: str | Path = "t", **settings: Any) -> Table:
    """A table in memory, unless an address on a disk is given."""
    if uri == "t":
        settings = {"opening": Opening(store=MemoryStore())} | settings
    usual: dict[str, Any] = {"key": "id", "buckets": 2}
    return Table.create_from(uri, source, **(usual | settings))


def content(table: Table) -> list[tuple[object, ...]]:
    return sorted(table.to_polars().rows())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are many for the sort: several runs, and several merges of them."""
    monkeypatch.setattr(load, "RUN_ROWS", 7)
    monkeypatch.setattr(load_sorting.Sorting.__init__, "__defaults__", (7, 3, 2))


# --- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    "source",
    [
        lambda: ROWS, ROWS.lazy, ROWS.to_pandas, ROWS.to_arrow, lambda: ROWS.to_arrow().to_batches()[0],
        lambda: pa.RecordBatchReader.from_batches(ROWS.to_arrow().schema, ROWS.to_arrow().to_batches(5)),
        lambda: ds.dataset(ROWS.to_arrow()), lambda: ds.dataset(ROWS.to_arrow()).scanner(),
        lambda: duckdb.sql("select * from ROWS"), lambda: loaded(ROWS), lambda: loaded(ROWS).scan(),
    ],
    ids=["polars", "lazy", "pandas", "arrow", "batch", "reader", "dataset", "scanner", "duckdb", "table", "scan"],
)  # fmt: skip
def test_a_table_has_the_rows_of_each_kind_of_source(source: Callable[[], object], small: None) -> None:
    table = loaded(source(), partition_by="day")
    assert content(table) == sorted(ROWS.rows())
    assert [str(kind) for kind in loaded(ROWS).schema.types] == ["string", "int64", "string"]
    assert set(table.inspect.files()["kind"].to_pylist()) == {"base"}
    (commit,) = table.history().to_pylist()
    assert (commit["kind"], commit["rows"]) == ("write", 40)


def test_files_patterns_and_lists_of_files_are_sources(tmp_path: Path) -> None:
    for name, part in (("a", ROWS.head(10)), ("b", ROWS.slice(10))):
        part.write_parquet(tmp_path / f"{name}.parquet")
        part.write_csv(tmp_path / f"{name}.csv")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "c.parquet").write_bytes(b"half")
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for source in (paths, tmp_path, f"{tmp_path}/*.parquet", [str(path.with_suffix(".csv")) for path in paths]):
        assert content(loaded(source)) == sorted(ROWS.rows()), source
    assert loaded(paths[0]).schema.field("id").type == pa.string()


def test_levels_of_folders_are_columns(tmp_path: Path) -> None:
    for n, (day, year, who) in enumerate([("2026-01-31", "2025", "a b"), ("2026-02-28", "2026", None)]):
        folder = tmp_path / f"day={day}" / f"year={year}" / f"who={'a%20b' if who else '__HIVE_DEFAULT_PARTITION__'}"
        folder.mkdir(parents=True)
        pl.DataFrame({"id": [str(n)]}).write_parquet(folder / "part.parquet")
    expected = [("0", date(2026, 1, 31), 2025, "a b"), ("1", date(2026, 2, 28), 2026, None)]
    for source in (tmp_path, f"{tmp_path}/*/*/*/*.parquet", f"{tmp_path}/**/*.parquet"):
        assert content(loaded(source)) == expected
    assert content(loaded(f"{tmp_path}/day=2026-01-31/*/*/*.parquet")) == [("0", 2025, "a b")]
    (tmp_path / "loose.parquet").write_bytes((folder / "part.parquet").read_bytes())
    with pytest.raises(InvalidInputError, match=r"different columns.*loose\.parquet"):
        loaded(tmp_path)


def test_types_may_be_others_than_the_sources_where_nothing_is_lost() -> None:
    table = loaded(ROWS, schema={"id": pa.string(), "n": pa.int16(), "day": pa.string()})
    assert table.schema.field("n").type == pa.int16()
    with pytest.raises((InvalidInputError, SchemaMismatchError), match="n"):
        loaded(ROWS.with_columns(pl.col("n") + 1_000_000), schema=table.schema)


def test_texts_are_read_in_the_types_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\n007,1\n")
    assert content(loaded(tmp_path / "a.csv", schema={"id": pa.string(), "n": pa.int32()})) == [("007", 1)]
    assert content(loaded(tmp_path / "a.csv")) == [("007", 1)]


def test_a_table_is_not_made_in_the_folder_that_its_rows_come_from(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="a folder of its own"):
        loaded(tmp_path, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (5, "not a table"), ("no/such.parquet", "no such file"), ([], "not a table"),
        (pl.DataFrame({"id": ["a"], "n": [1]}).lazy().select("gone"), "cannot be computed"),
    ],
)  # fmt: skip
def test_what_has_no_rows_is_refused_before_anything_is_put(source: Any, why: str) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInputError, match=why):
        loaded(source, opening=Opening(store=store))
    assert everything(store) == []


def test_a_file_with_other_columns_or_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "a.parquet")
    ROWS.drop("n").write_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match=r"same columns.*b\.parquet.*missing=\['n'\]"):
        loaded(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(InvalidInputError, match=r"cannot be read.*b\.parquet"):
        loaded(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="no Parquet files"):
        loaded(tmp_path / "empty")
    Table.create(tmp_path / "ours", ROWS, key="id")
    with pytest.raises(InvalidInputError, match=r"Table"):
        loaded(tmp_path / "ours")


@pytest.mark.parametrize(("folder", "name", "package"), [
    ("_delta_log", "00000000000000000000.json", "delta"), ("metadata", "v1.metadata.json", "iceberg"),
])  # fmt: skip
def test_a_missing_package_is_named(
    tmp_path: Path, folder: str, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / name).write_text("{}")
    for module in ("deltalake", "pyiceberg", "pyiceberg.table"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=rf"pip install 'crdt-mor\[{package}\]'"):
        loaded(tmp_path)


def test_a_table_of_delta_lake_is_a_source(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")
    deltalake.write_deltalake(tmp_path / "delta", ROWS.to_arrow(), partition_by=["day"])
    deltalake.DeltaTable(tmp_path / "delta").delete("n = 3")
    expected = sorted(ROWS.filter(pl.col("n") != 3).rows())
    for source in (tmp_path / "delta", deltalake.DeltaTable(tmp_path / "delta")):
        table = loaded(source)
        assert sorted(table.scan(columns=["id", "n", "day"]).to_polars().rows()) == expected
        assert {str(kind) for kind in table.schema.types} == {"string", "int64"}


def test_a_table_of_iceberg_is_a_source(tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="the extra `iceberg` is not installed")
    rows = ROWS.to_arrow().cast(pa.schema([("id", pa.string()), ("n", pa.int64()), ("day", pa.string())]))
    catalog = catalogs.SqlCatalog("own", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("ns")
    events = catalog.create_table("ns.events", schema=rows.schema)
    events.append(rows.slice(0, 25))
    events.append(rows.slice(25))
    for source in (events, events.scan(), events.location().removeprefix("file://")):
        assert content(loaded(source)) == sorted(ROWS.rows())
    assert loaded(events.scan(row_filter="n < 7", selected_fields=("id",))).count() == 7
    catalog.engine.dispose()


class PanicException(BaseException):
    """What libraries in Rust raise for what they did not foresee."""


@pytest.mark.parametrize("library", ["deltalake", "pyiceberg.table"])
@pytest.mark.parametrize("error", [PanicException, RuntimeError, KeyboardInterrupt])
def test_whatever_the_library_of_a_lake_raises_is_told_in_one_line(library: str, error: type[BaseException]) -> None:
    def fail(self: object, *_: object, **__: object) -> None:
        raise error("\x1b[31m\n  no such file: a.parquet\x1b[0m\nbacktrace: 1\n2")

    lake = type("Table", (), {"__module__": library, "to_pyarrow_dataset": fail, "scan": fail})()
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            loaded(lake)
        return
    with pytest.raises(InvalidInputError, match=r"this table format failed.*cause=no such file: a\.parquet$"):
        loaded(lake)


def remove_data(table: Path) -> None:
    for file in table.rglob("*.parquet"):
        file.unlink()


def tear(pattern: str) -> Callable[[Path], None]:
    def torn(table: Path) -> None:
        for file in table.glob(pattern):
            file.write_bytes(file.read_bytes()[:90])

    return torn


def remove(pattern: str) -> Callable[[Path], None]:
    def removed(table: Path) -> None:
        for file in table.glob(pattern):
            file.unlink()

    return removed


def damage_data(table: Path) -> None:
    for file in table.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:4] + b"x" * (file.stat().st_size - 4))


BROKEN_DELTA = {
    "data removed": remove_data, "data damaged": damage_data, "log torn": tear("_delta_log/*.json"),
    "first commit removed": remove("_delta_log/*0.json"), "no log": remove("_delta_log/*.json"),
}  # fmt: skip
BROKEN_ICEBERG: dict[str, Callable[[Path], object]] = {
    "data removed": remove_data, "data damaged": damage_data, "metadata torn": tear("metadata/*.metadata.json"),
    "manifest list removed": remove("metadata/snap-*.avro"), "manifest list torn": tear("metadata/snap-*.avro"),
    "manifests removed": remove("metadata/*-m*.avro"), "moved": lambda table: table.rename(table.with_name("moved")),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN_DELTA)
def test_a_broken_table_of_delta_lake_is_refused_by_name(tmp_path: Path, broken: str) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")
    deltalake.write_deltalake(tmp_path / "delta", ROWS.to_arrow().slice(0, 20), partition_by=["day"])
    deltalake.write_deltalake(tmp_path / "delta", ROWS.to_arrow().slice(20), mode="append")
    BROKEN_DELTA[broken](tmp_path / "delta")
    require_refused(tmp_path / "delta")


@pytest.mark.parametrize("broken", BROKEN_ICEBERG)
def test_a_broken_table_of_iceberg_is_refused_by_name(tmp_path: Path, broken: str) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="the extra `iceberg` is not installed")
    catalog = catalogs.SqlCatalog("own", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("ns")
    rows = ROWS.to_arrow().cast(pa.schema([("id", pa.string()), ("n", pa.int64()), ("day", pa.string())]))
    events = catalog.create_table("ns.events", schema=rows.schema)
    events.append(rows)
    events.delete("n = 3")
    home = Path(events.location().removeprefix("file://"))
    BROKEN_ICEBERG[broken](home)
    catalog.engine.dispose()
    require_refused(home if home.exists() else home.with_name("moved"))


def require_refused(source: Path) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInputError, match="the library of this table format failed") as refused:
        loaded(source, opening=Opening(store=store))
    assert source.name in str(refused.value)
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 800
    assert everything(store) == []


# --- what the table is afterwards -------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    "settings",
    [
        {}, slow({"ordering": "n"}), {"partition_by": "day", "hive_style": False}, slow({"merge": {"n": Counter()}}),
        slow({"merge": mor.PartialUpdate("keep")}), slow({"merge": {"tags": ORSet(), ("n", "day"): LatestBy("n")}}),
    ],
    ids=["latest", "ordering", "partitions", "counter", "partial", "states"],
)  # fmt: skip
def test_it_goes_on_as_a_table_that_was_made_and_appended_to(settings: dict[str, Any], small: None) -> None:
    rows = ROWS.with_columns(tags=pl.lit(["x"]))
    other = Table.create("t", rows, key="id", buckets=2, opening=Opening(store=MemoryStore()), **settings)
    other.append(rows)
    tables = [other, loaded(rows, **settings)]
    later = rows.head(5).with_columns(pl.col("n") - 2, tags=pl.lit(["y"]))
    for table in tables:
        first = table.version
        table.upsert(later)
        table.delete(rows[20:22].select("id", "day", "n"))
        table.changes(since=first).to_arrow()
    for step in (lambda _: None, lambda table: table.maintenance.compact()):
        for table in tables:
            step(table)
        one, two = (table.to_polars().sort("id") for table in tables)
        assert one.equals(two)
        assert one.height == 38
    images = [table.changes(images=True).to_polars().drop("_commit_version", "_commit_timestamp") for table in tables]
    key = ["id", "_change_type", "n"]
    assert images[0].sort(key).equals(images[1].sort(key))
    raw = [table.changes(raw=True).to_polars().height for table in tables]
    assert raw[0] == raw[1]


def test_states_are_kept_as_later_writes_need_them() -> None:
    rows = pl.DataFrame({"id": ["a"], "tags": [["x", "y"]]})
    table = loaded(rows, merge={"tags": ORSet()})
    table.upsert(pl.DataFrame({"id": ["a"], "tags": [["z"]]}))
    other = Table.create("o", rows, key="id", merge={"tags": ORSet()}, opening=Opening(store=MemoryStore()))
    other.append(rows)
    other.upsert(pl.DataFrame({"id": ["a"], "tags": [["z"]]}))
    assert table.to_polars().equals(other.to_polars())


def test_rows_that_are_erased_are_gone_for_good(tmp_path: Path) -> None:
    table = loaded(ROWS, tmp_path / "t")
    table.maintenance.erase(keys=["k07"])
    assert table.count() == 39
    table.maintenance.compact()
    table.maintenance.clean(commits=1)
    assert table.scan(filter="id = 'k07'").count() == 0


def test_base_files_that_no_later_commit_touches_outlive_all_upkeep(tmp_path: Path) -> None:
    table = loaded(ROWS, tmp_path / "t", buckets=4)
    for n in range(3):
        table.upsert(ROWS.head(1).with_columns(n=pl.lit(100 + n, pl.Int64)))
        table.maintenance.compact()
        table.maintenance.clean(commits=1)
        table.maintenance.archive()
        table.maintenance.maintain()
        again = Table(tmp_path / "t")
        assert content(again)[1:] == sorted(ROWS.rows())[1:]
        assert content(again)[0][1] == 100 + n
    assert not (tmp_path / "t" / LOADS).exists()


def test_a_source_without_rows_makes_an_empty_table() -> None:
    table = loaded(ROWS.clear())
    assert table.count() == 0
    assert table.upsert(ROWS).rows == 40


def test_the_commit_says_what_it_is_told_and_progress_is_told(small: None) -> None:
    told: list[LoadProgress] = []
    table = loaded(ROWS, commit_info={"message": "first"}, on_progress=told.append)
    assert table.history()["message"].to_pylist() == ["first"]
    assert [p.phase for p in told] == sorted(p.phase for p in told)
    assert [p.rows for p in told if p.phase == "read"] == [7, 14, 21, 28, 35, 40]
    assert told[-1] == LoadProgress("written", 40, 40)
    assert {p.total for p in told} == {40}
    told.clear()
    loaded(ROWS.lazy(), on_progress=told.append)
    assert {p.total for p in told if p.phase == "read"} == {None}


# --- whole, or not there ----------------------------------------------------------------------------------------------


def everything(store: mor.store.Store) -> list[str]:
    return [stat.path for stat in (*store.walk(""), *store.walk(".hoodie"))]


def failing(after: int) -> pa.RecordBatchReader:
    """A reader whose source fails after some batches."""
    rows = ROWS.to_arrow()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches(5)[:after]
        raise OSError("the disk has gone")

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (lambda: pl.concat([ROWS, ROWS[11:12]]), "twice.*key='k11'"),
        (lambda: ROWS.vstack(ROWS[39:40]), "twice.*key='k39'"),
        (lambda: ROWS.with_columns(id=pl.when(pl.col("n") == 9).then(None).otherwise("id")), "null"),
        (lambda: failing(4), "reading the source failed.*the disk has gone"),
    ],
    ids=["far", "near", "null", "source"],
)  # fmt: skip
def test_a_load_that_fails_leaves_nothing_and_can_be_run_again(
    source: Callable[[], object], why: str, small: None
) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInputError, match=why):
        loaded(source(), opening=Opening(store=store), partition_by="day")
    assert everything(store) == []
    assert loaded(ROWS, opening=Opening(store=store), key=["id", "n"]).count() == 40


def test_one_key_in_two_partitions_is_two_rows(small: None) -> None:
    twice = pl.concat([ROWS, ROWS.with_columns(day=pl.lit("wed"))])
    assert loaded(twice, partition_by="day").count() == 80
    with pytest.raises(InvalidInputError, match="twice"):
        loaded(twice)


def test_what_progress_raises_gives_the_load_up() -> None:
    store = MemoryStore()

    def stop(progress: LoadProgress) -> None:
        if progress.phase == "written":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loaded(ROWS, opening=Opening(store=store), on_progress=stop)
    assert everything(store) == []


def test_a_table_that_exists_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    store = MemoryStore()
    table = loaded(ROWS, opening=Opening(store=store))
    before = everything(store)
    with pytest.raises(TableExistsError, match="a table exists at this address"):
        loaded(ROWS, opening=Opening(store=store))
    assert everything(store) == before
    assert table.count() == 40
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with pytest.raises(TableExistsError, match="Delta Lake"):
        loaded(ROWS, tmp_path)


def test_nobody_sees_a_table_and_nobody_makes_one_by_mistake_while_it_is_loaded() -> None:
    store, seen = MemoryStore(), 0

    def others(_: LoadProgress) -> None:
        nonlocal seen
        seen += 1
        with pytest.raises(mor.errors.TableNotFoundError):
            Table("t", opening=Opening(store=store))
        for exist_ok in (False, True):
            with pytest.raises(TableExistsError, match=r"Table\.create_from is loading a table here"):
                Table.create("t", ROWS, key="id", opening=Opening(store=store), exist_ok=exist_ok)

    table = loaded(ROWS, opening=Opening(store=store), on_progress=others)
    assert seen > 1
    assert table.count() == 40
    assert store.walk(LOADS) == []
    assert Table.create("t", ROWS, key="id", buckets=2, opening=Opening(store=store), exist_ok=True).count() == 40


def test_a_table_that_hudi_makes_meanwhile_stays_as_it_is() -> None:
    other = MemoryStore()
    Table.create("t", ROWS, key="id", opening=Opening(store=other))
    theirs = other.read(".hoodie/hoodie.properties")
    assert theirs is not None
    store = MemoryStore()

    def appear(_: LoadProgress) -> None:
        store.put(".hoodie/hoodie.properties", theirs)

    with pytest.raises(TableExistsError, match="another process"):
        loaded(ROWS, opening=Opening(store=store), on_progress=appear)
    assert everything(store) == [".hoodie/hoodie.properties"]


def at_each_step(stride: int) -> Iterator[tuple[MemoryStore, InterruptedStore, int]]:
    """A fresh store for each step of what the test does, as long as it has that many."""
    for at in count(1, stride):
        store = MemoryStore()
        interrupted = InterruptedStore(store)
        yield store, interrupted, at
        if interrupted.count < at:
            assert at > 20
            return


def require_whole(table: Table, rows: pl.DataFrame, store: mor.store.Store) -> None:
    """The table has these rows, in one commit, and no other data files; Hudi's timeline has the commit."""
    assert content(table) == sorted(rows.rows())
    paths = [path for path in everything(store) if not path.startswith(LOADS)]
    assert {path for path in paths if path.endswith(".parquet")} == set(table.inspect.files()["path"].to_pylist())
    (commit,) = table.history().to_pylist()
    assert commit["rows"] == rows.height
    assert sum(path.endswith(".deltacommit") for path in paths) == 1
    partitions = {path.rpartition("/")[0] for path in table.inspect.files()["path"].to_pylist()}
    assert {path.rpartition("/")[0] for path in paths if path.endswith(".hoodie_partition_metadata")} == partitions


@pytest.mark.costly
@pytest.mark.parametrize("stride", [7, slow(1)])
@pytest.mark.parametrize("after", [False, True])
def test_a_load_that_dies_at_any_step_leaves_a_whole_table_or_none(stride: int, after: bool, small: None) -> None:
    rows, whole = ROWS.head(9), 0
    for store, dying, at in at_each_step(stride):
        dying.arm(at, dying.die, after=after)
        with suppress(ProcessDied):
            loaded(rows, opening=Opening(store=dying), buckets=1, partition_by="day")
        try:
            table = Table("t", opening=Opening(store=store))
            whole += 1
        except mor.errors.TableNotFoundError:
            table = loaded(rows, opening=Opening(store=store), partition_by="day")
            assert store.walk(LOADS) == []
        require_whole(table, rows, store)
        with pytest.raises(TableExistsError):
            loaded(rows, opening=Opening(store=store))
        table.upsert(rows.head(1).with_columns(n=pl.lit(-1, pl.Int64)))
        assert table.scan(filter="n = -1").count() == 1
    assert whole


@pytest.mark.costly
@pytest.mark.parametrize("stride", [7, slow(1)])
@pytest.mark.parametrize("kind", ["load", "create"])
def test_of_two_who_make_a_table_exactly_one_does(kind: str, stride: int, small: None) -> None:
    mine, theirs, winners = ROWS.head(9), ROWS.tail(9), set()
    for store, interrupted, at in at_each_step(stride):

        def other(store: MemoryStore = store) -> None:
            with suppress(TableExistsError):
                if kind == "load":
                    loaded(theirs, opening=Opening(store=store), buckets=1, partition_by="day")
                else:
                    Table.create(
                        "t", theirs, key="id", partition_by="day", opening=Opening(store=store, writer_expiry=NOW)
                    )
                winners.add("theirs")

        winners.clear()
        interrupted.arm(at, other)
        with suppress(TableExistsError):
            loaded(mine, opening=Opening(store=interrupted), buckets=1, partition_by="day")
            winners.add("mine")
        (winner,) = winners
        table = Table("t", opening=Opening(store=store))
        if winner == "mine" or kind == "load":
            require_whole(table, mine if winner == "mine" else theirs, store)
        else:
            assert table.count() == 0
            table.append(theirs)
            assert content(table) == sorted(theirs.rows())
        assert store.walk(LOADS) == []


@pytest.mark.slow
@pytest.mark.parametrize("stride", [3, slow(1)])
def test_who_opens_a_table_whose_load_died_at_its_end_may_stall(stride: int) -> None:
    """The load dies as soon as its table is there; who puts its timeline in place is overtaken at each step."""
    appeared = step_of_the_settings()
    for at in count(1, stride):
        store = MemoryStore()
        dying = InterruptedStore(store)
        dying.arm(appeared, dying.die, after=True)
        with pytest.raises(ProcessDied):
            loaded(ROWS, opening=Opening(store=dying), partition_by="day")
        assert store.list(VERSIONS) == []
        stalled = InterruptedStore(store)

        def overtake(store: MemoryStore = store) -> None:
            table = Table("t", opening=Opening(store=store))
            table.upsert(ROWS.head(1).with_columns(n=pl.lit(-1, pl.Int64)))
            table.maintenance.compact()

        stalled.arm(at, overtake)
        table = Table("t", opening=Opening(store=stalled))
        overtaken = stalled.count >= at
        look_for_hudi(table)
        assert table.count() == 40
        assert table.scan(filter="n = -1").count() == (1 if overtaken else 0)
        assert content(Table("t", opening=Opening(store=store))) == content(table)
        if not overtaken:
            assert at > 5
            return


def step_of_the_settings() -> int:
    """The number of the step by which the table of a load is there."""
    for at in count(1):
        counting = InterruptedStore(store := MemoryStore())
        counting.arm(at, counting.die, after=True)
        with suppress(ProcessDied):
            loaded(ROWS, opening=Opening(store=counting), partition_by="day")
        if store.stat(".hoodie/hoodie.properties") is not None:
            return at
    raise AssertionError


@pytest.mark.costly
@pytest.mark.parametrize("lost", range(4))
def test_a_load_whose_replies_get_lost_says_the_truth(lost: int, small: None) -> None:
    for seed in range(lost * 10, lost * 10 + 10):
        store = MemoryStore()
        try:
            loaded(ROWS, opening=Opening(store=FaultyStore(store, seed, failures=0.01, lost_replies=0.05)))
            assert content(Table("t", opening=Opening(store=store))) == sorted(ROWS.rows())
        except TableExistsError:
            raise
        except (mor.StorageUnavailableError, mor.errors.CommitUnknownError):
            with suppress(mor.errors.TableNotFoundError):
                assert content(Table("t", opening=Opening(store=store))) == sorted(ROWS.rows())


DYING = """
import os, signal, sys
import polars as pl
import crdt_mor as mor

rows = pl.DataFrame({"id": [str(n) for n in range(1000)], "n": range(1000)})
kill = lambda p: p.phase == "written" and p.rows == 1000 and os.kill(os.getpid(), signal.SIGKILL)
mor.Table.create_from(sys.argv[1], rows, key="id", on_progress=kill)
"""


@pytest.mark.slow
def test_what_a_killed_process_has_left_stops_nobody(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    died = subprocess.run([sys.executable, "-c", DYING, str(uri)], check=False, env=os.environ, cwd=Path.cwd())
    assert died.returncode == -signal.SIGKILL
    assert list(uri.rglob("*.parquet"))
    table = loaded(ROWS, uri)
    files = {str(path.relative_to(uri)) for path in uri.rglob("*.parquet")}
    assert files == set(table.inspect.files()["path"].to_pylist())
    assert table.count() == 40


# --- memory -----------------------------------------------------------------------------------------------------------

BATCH = 16_384


@pytest.mark.slow
@pytest.mark.parametrize("rows", [600_000, slow(2_000_000)])
def test_few_of_the_batches_of_a_large_source_are_alive_at_once(rows: int) -> None:
    alive = most = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal alive, most
        for start in range(0, rows, BATCH):
            ids = np.arange(start, min(start + BATCH, rows), dtype=np.int64)
            alive += 1
            most = max(most, alive)
            weakref.finalize(ids, gone)
            yield pa.RecordBatch.from_pydict({"id": pa.array(ids)})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())
    assert loaded(reader).count() == rows
    assert most * BATCH <= 1.3 * RUN_ROWS, "a part of the rows is read, sorted and let go before the next one"


PLACES = st.tuples(st.sampled_from(["", "eu", "é/😀", "z"]), st.integers(0, 3), st.text("ab\0é😀", max_size=20))


@pytest.mark.slow
@given(st.lists(PLACES, min_size=1, unique=True), st.integers(1, 4), st.data())
def test_rows_are_sorted_by_partition_bucket_and_the_bytes_of_their_keys(
    places: list[tuple[str, int, str]], pieces: int, data: st.DataObject
) -> None:
    types = zip(load_sorting.ORDER, (pl.String, pl.Int32, pl.String), strict=True)
    rows = pl.DataFrame(places, schema=dict(types), orient="row")
    chunks = pl.concat(rows.iter_slices(-(-rows.height // pieces)), rechunk=False)
    found = load_sorting.in_order(chunks)
    assert found.rows() == sorted(places)
    assert found.equals(rows.sort(load_sorting.ORDER))
    bound = data.draw(st.sampled_from(places) | PLACES)
    cursor = load_sorting._Cursor(iter(()), found)
    assert cursor.take(bound).rows() == [place for place in found.rows() if place <= bound]
    assert cursor.rows.rows() == [place for place in found.rows() if place > bound]


@pytest.mark.slow
def test_a_sort_holds_a_piece_of_each_run_that_it_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    fill = load_sorting._Cursor.fill

    def counted(cursor: load_sorting._Cursor) -> bool:
        filled = fill(cursor)
        held.append(cursor.rows.height)
        return filled

    monkeypatch.setattr(load_sorting._Cursor, "fill", counted)
    store, number = MemoryStore(), count()
    sort = load_sorting.Sorting(store, lambda: f"runs/{next(number)}", run_rows=50, piece_rows=5, fan_in=3)
    rows = pl.DataFrame({"id": np.random.default_rng(1).permutation(1000)}).select(
        pl.col("id").cast(pl.String).alias("_hoodie_record_key"),
        pl.lit("").alias("_hoodie_partition_path"),
        (pl.col("id") % 3).cast(pl.Int32).alias("__bucket"),
    )
    runs = [sort.run([part.sort(load_sorting.ORDER)]) for part in rows.iter_slices(40)]
    merged = list(sort.merged(runs))
    assert pl.concat(merged).equals(rows.sort(load_sorting.ORDER))
    assert max(held) <= 5
    assert max(frame.height for frame in merged) <= 15
    assert everything(store) == [], "a run is removed once it is read"


def test_the_newest_version_of_a_load_is_removed_last() -> None:
    """Who brings a timeline into place takes the newest version that it finds, so an earlier one never stands alone."""
    store = ScriptedStore(MemoryStore(), as_it_is)
    loaded(ROWS, opening=Opening(store=store))
    removed = [path for operation, path in store.calls if operation == "delete" and path.startswith(LOADS)]
    versions = [path for path in removed if VERSIONS in path]
    assert len(versions) > 1
    assert removed[-1] == max(versions)
