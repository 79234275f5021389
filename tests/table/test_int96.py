"""Times that Parquet files keep as INT96, as Spark, Hive and Impala wrote them: of every year, through every door."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.cli.main import app
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.store import MemoryStore

TIMES = [
    text and datetime.fromisoformat(text)
    for text in ("2024-01-01T00:00:00.000001", "9999-12-31", None, "0001-01-01", "1500-06-01")
]
"""Among them the usual open end, which has no place in 64 bits of nanoseconds."""

US = pa.timestamp("us")
ROWS = pa.table({"id": list(range(len(TIMES))), "until": pa.array(TIMES, US)})


def write_as_spark(rows: pa.Table, path: Path) -> Path:
    """A file with INT96 times, and without Arrow's own schema, which would tell their unit."""
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, store_schema=False, row_group_size=2)
    return path


@pytest.fixture
def file(fast_path: Path) -> Path:
    return write_as_spark(ROWS, fast_path / "a.parquet")


def until(table: Table) -> list[datetime | None]:
    return table.to_arrow().sort_by("id")["until"].to_pylist()  # type: ignore[no-any-return]


def upserted(rows: Any) -> Table:
    table = Table.create("t", ROWS, key="id", opening=Opening(store=MemoryStore()))
    table.upsert(rows)
    return table


DOORS: dict[str, Callable[[Path], Table]] = {
    "read_files": lambda path: upserted(mor.read_files(path)),
    "with types": lambda path: upserted(mor.read_files([path], schema=ROWS.schema)),
    "create_from": lambda path: Table.create_from("t", path, key="id", opening=Opening(store=MemoryStore())),
    "create_from of a folder": lambda path: Table.create_from(
        "t", path.parent, key="id", opening=Opening(store=MemoryStore())
    ),
    "Arrow": lambda _: upserted(ROWS),
    "polars": lambda _: upserted(pl.from_arrow(ROWS)),
    "lazy": lambda _: upserted(pl.DataFrame(pl.from_arrow(ROWS)).lazy()),
    "a reader in batches": lambda _: upserted(ROWS.to_reader(2)),
}


@pytest.mark.parametrize("door", DOORS)
def test_times_of_every_year_are_what_the_file_says(file: Path, door: str) -> None:
    table = DOORS[door](file)
    assert table.schema.field("until").type == US
    assert until(table) == TIMES


def test_the_command_line_reads_them_alike(file: Path, tmp_path: Path) -> None:
    for command in (
        ("create", tmp_path / "t", "--key", "id", "--schema", file), ("upsert", tmp_path / "t", file),
        ("create-from", tmp_path / "c", file, "--key", "id"),
    ):  # fmt: skip
        result = CliRunner().invoke(app, [str(part) for part in command])
        assert result.exit_code == 0, result.output
    assert until(Table(tmp_path / "t")) == until(Table(tmp_path / "c")) == TIMES


def test_they_are_found_at_every_depth(fast_path: Path) -> None:
    kind = pa.struct([("a", US), ("many", pa.list_(US)), ("named", pa.map_(pa.string(), US))])
    rows = [{"a": t, "many": [t, None], "named": [("x", t)]} for t in TIMES] + [None]
    path = write_as_spark(pa.table({"id": list(range(len(rows))), "s": pa.array(rows, kind)}), fast_path / "a.parquet")
    assert mor.read_files(path).to_arrow()["s"].to_pylist() == rows


@pytest.mark.parametrize("odd", [1, -1, 999, 1001], ids=str)
def test_nanoseconds_are_refused_and_not_cut_off(fast_path: Path, odd: int) -> None:
    times = pa.array([1000, 0, odd], pa.timestamp("ns"))
    write_as_spark(pa.table({"id": [1, 2, 3], "until": times}), fast_path / "a.parquet")
    for read in (
        lambda: mor.read_files(fast_path / "a.parquet").to_arrow(),
        lambda: Table.create_from("t", fast_path / "a.parquet", key="id", opening=Opening(store=MemoryStore())),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=r"file=.*a\.parquet.*nanoseconds.*'until'"):
            read()


def test_what_another_reader_has_made_of_them_is_refused_with_the_way_to_read_them(file: Path) -> None:
    """Frames of such a file have 1816-03-29, or the last time that nanoseconds reach: no one can tell from a frame."""
    table = Table.create(
        "t", {"id": "int64", "until": pa.timestamp("ns")}, key="id", opening=Opening(store=MemoryStore())
    )
    for rows in (pl.scan_parquet(file), pl.read_parquet(file), ds.dataset(file), pq.read_table(file)):
        with pytest.raises(SchemaMismatchError, match=r"INT96.*read_files.*column=until"):
            table.upsert(rows)


def test_a_base_file_of_hudi_with_them_is_read_filtered_and_compacted(fast_path: Path) -> None:
    """Hudi's bulk insert writes them where `spark.sql.parquet.outputTimestampType` is INT96."""
    table = Table.create_from(fast_path / "t", ROWS, key="id", buckets=1)
    (base,) = (fast_path / "t").rglob("*.parquet")
    pq.write_table(pq.read_table(base), base, use_deprecated_int96_timestamps=True, store_schema=False)
    table = Table(fast_path / "t")
    assert until(table) == TIMES
    assert table.to_polars().sort("id")["until"].to_list() == TIMES
    assert table.scan(filter="until > DATE '9000-01-01'").count() == table.scan(filter="id = 1").count() == 1
    table.upsert(ROWS.slice(0, 1).set_column(1, "until", pa.array([TIMES[1]], US)))
    assert until(table) == [TIMES[1], *TIMES[1:]]
    table.maintenance.compact()
    assert until(table) == [TIMES[1], *TIMES[1:]]


def test_a_table_of_delta_lake_with_them_is_a_source(fast_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")
    (fast_path / "delta").mkdir()
    write_as_spark(ROWS, fast_path / "delta" / "a.parquet")
    deltalake.convert_to_deltalake(str(fast_path / "delta"))
    assert until(Table.create_from("t", fast_path / "delta", key="id", opening=Opening(store=MemoryStore()))) == TIMES


def test_a_table_of_iceberg_with_them_is_a_source(fast_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="the extra `iceberg` is not installed")
    catalog = catalogs.SqlCatalog("own", uri=f"sqlite:///{fast_path}/c.db", warehouse=f"file://{fast_path}/w")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", schema=ROWS.schema)
    table.append(ROWS)
    table.delete("id = 0")
    table.append(ROWS.slice(0, 1))
    for data in (fast_path / "w").rglob("*.parquet"):
        rows = pq.read_table(data)
        write_as_spark(rows, data)
    for source in (table, table.scan(), table.location().removeprefix("file://")):
        assert until(Table.create_from("t", source, key="id", opening=Opening(store=MemoryStore()))) == TIMES
    catalog.engine.dispose()
