"""Rows of the user's own files, of every format, as many as there are: exact in their types, or refused by name."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, MemoryStore, Table

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


def part(number: int) -> pa.Table:
    return pa.table({"id": [f"a{number}", f"b{number}"], "n": [number, None], "x": [0.5, 1.5]}, SCHEMA)


def ipc_stream(rows: pa.Table, path: str) -> None:
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, rows.schema) as stream:
        stream.write_table(rows)


def zipped(rows: pa.Table, path: str) -> None:
    with gzip.open(path, "wb") as file:
        pyarrow.csv.write_csv(rows, file)


WRITE: dict[str, Callable[[pa.Table, str], Any]] = {
    "parquet": pyarrow.parquet.write_table,
    "feather": pyarrow.feather.write_feather,
    "arrow": ipc_stream,
    "csv": pyarrow.csv.write_csv,
    "csv.gz": zipped,
    "jsonl": lambda rows, path: pl.DataFrame(pl.from_arrow(rows)).write_ndjson(path),
}


@pytest.fixture
def folder(fast_path: Path) -> Path:
    folder = fast_path / "files"
    folder.mkdir()
    return folder


def written(folder: Path, kind: str, *rows: pa.Table) -> list[Path]:
    paths = [folder / f"{number}.{kind}" for number in range(len(rows))]
    for path, table in zip(paths, rows, strict=True):
        WRITE[kind](table, str(path))
    return paths


def new_table() -> Table:
    return Table.create("t", SCHEMA, key="id", store=MemoryStore())


@pytest.mark.parametrize("kind", WRITE)
def test_files_of_each_format_are_read_as_often_as_they_are_asked_for_and_written(folder: Path, kind: str) -> None:
    paths = written(folder, kind, *map(part, range(3)))
    expected = pa.concat_tables(map(part, range(3)))
    for given in (paths, [str(path) for path in paths], f"{folder}/*.{kind}", folder / f"*.{kind}", iter(paths)):
        rows = mor.read_files(given)
        assert rows.schema == SCHEMA
        for _ in range(2):
            assert rows.to_arrow().equals(expected)
        table = Table.create("t", rows, key="id", store=MemoryStore())
        assert table.count() == 0
        assert table.upsert(rows).rows == 6
    assert pl.DataFrame(rows).height == 6
    assert "3 files" in repr(rows)
    with pytest.raises(TypeError, match="num_rows"):
        len(rows)


def test_dates_in_json_are_text_at_every_depth(folder: Path) -> None:
    days = pa.struct([("from", pa.date32()), ("days", pa.list_(pa.date64()))])
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("day", pa.date32()), ("open", days)])
    line = '{"id": "a", "day": "2026-02-28", "open": {"from": "1969-12-31", "days": ["2026-03-01", null]}}'
    (folder / "d.jsonl").write_text(line + '\n{"id": "b", "day": null}\n')
    first, second = mor.read_files(folder / "d.jsonl", schema=schema).to_arrow().to_pylist()
    assert first == {
        "id": "a", "day": date(2026, 2, 28), "open": {"from": date(1969, 12, 31), "days": [date(2026, 3, 1), None]},
    }  # fmt: skip
    assert second == {"id": "b", "day": None, "open": None}
    (folder / "d.jsonl").write_text('{"id": "a", "day": "yesterday"}\n')
    with pytest.raises(InvalidInputError, match=r"cannot be read.*d\.jsonl.*yesterday"):
        mor.read_files(folder / "d.jsonl", schema=schema).to_arrow()


def test_texts_are_read_in_the_types_of_the_table(folder: Path) -> None:
    (folder / "a.csv").write_text('id,n,x\n01,1,2\n"",,\nNA,3,\n')
    (folder / "b.jsonl").write_text('{"id": "02", "n": 4, "x": 1}\n')
    guessed = mor.read_files(folder / "a.csv")
    assert guessed.schema.field("x").type == pa.int64()
    table = new_table()
    both = mor.read_files([folder / "a.csv", folder / "b.jsonl"], schema=table.schema)
    assert both.to_arrow().to_pylist() == [
        {"id": "01", "n": 1, "x": 2.0}, {"id": "", "n": None, "x": None}, {"id": "NA", "n": 3, "x": None},
        {"id": "02", "n": 4, "x": 1.0},
    ]  # fmt: skip
    with pytest.raises(InvalidInputError, match="cannot be empty"):
        table.upsert(both)
    assert mor.read_files(folder / "a.csv", schema={"id": pl.String}).schema.field("id").type == pa.string()


def test_a_file_is_read_batch_by_batch(folder: Path) -> None:
    (path,) = written(folder, "parquet", pa.table({"id": [str(n) for n in range(200_000)]}))
    first = next(iter(mor.read_files(path).to_reader()))
    assert 0 < first.num_rows < 200_000


def test_many_files_become_one_commit_while_one_of_them_is_in_memory(folder: Path) -> None:
    paths, table = written(folder, "parquet", *map(part, range(4))), Table.create(folder / "t", SCHEMA, key="id")
    job = table.plan_write("upsert", mor.read_files(paths))
    receipts = [job.stage(mor.read_files(path), task=number) for number, path in enumerate(paths)]
    assert table.complete_write(job, receipts).rows == 8
    assert table.count() == 8


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ("{}/nothing.parquet", "no such file.*nothing.parquet"),
        ("{}/*.parquet", "no such file"),
        ("{}", r"a folder.*\*\.parquet"),
        ("{}/a.txt", r"ending.*\.parquet.*file=.*a\.txt"),
        ([], "no files are named"),
        (5, "by their paths. type=int"),
        ([5], "by its path. type=int"),
        (None, "type=NoneType"),
    ],
    ids=str,
)
def test_what_names_no_file_is_refused_at_once(folder: Path, paths: Any, why: str) -> None:
    (folder / "a.txt").write_text("")
    with pytest.raises(InvalidInputError, match=why):
        mor.read_files(paths.format(folder) if isinstance(paths, str) else paths)


@pytest.mark.parametrize("kind", WRITE)
def test_a_damaged_file_is_named_and_nothing_is_written(folder: Path, kind: str) -> None:
    good, bad = written(folder, kind, part(0), part(1))
    bad.write_bytes(b'\x00{"')
    table = new_table()
    with pytest.raises(InvalidInputError, match=rf"file={bad}"):
        table.upsert(mor.read_files([good, bad]))
    with pytest.raises(InvalidInputError, match=rf"file={bad}"):
        Table.create("u", mor.read_files(bad), key="id", store=MemoryStore())
    bad.write_bytes(b"")
    with pytest.raises(InvalidInputError, match=rf"file={bad}"):
        mor.read_files([good, bad]).to_polars()
    assert table.count() == 0
    assert table.version == 0 or table.inspect.timeline()["state"].to_pylist() != ["completed"]


def test_files_with_other_columns_or_values_are_named(folder: Path) -> None:
    other = [part(0), part(1).drop_columns("x"), part(1).append_column("y", [[1, 2]])]
    paths = written(folder, "parquet", *other)
    for path, why in ((paths[1], r"missing=\['x'\] more=\[\]"), (paths[2], r"missing=\[\] more=\['y'\]")):
        with pytest.raises(InvalidInputError, match=rf"same columns.*file={path}.*{why}"):
            mor.read_files([paths[0], path]).to_arrow()
    halves = written(folder, "csv", part(0), part(1).set_column(1, "n", [[1.5, 2.5]]))
    with pytest.raises(InvalidInputError, match=rf"schema=table.schema.*file={halves[1]}"):
        mor.read_files(halves).to_arrow()
    wide = written(folder, "parquet", part(0).set_column(1, "n", pa.array([1, 2], pa.int32())), part(2**40))
    with pytest.raises(InvalidInputError, match=rf"without loss.*file={wide[1]}"):
        mor.read_files(wide).to_arrow()
    assert mor.read_files(wide, schema=SCHEMA).to_arrow().num_rows == 4


def test_the_order_of_columns_does_not_matter(folder: Path) -> None:
    paths = written(folder, "parquet", part(0), part(1).select(["x", "n", "id"]))
    assert mor.read_files(paths).to_arrow().equals(pa.concat_tables([part(0), part(1)]))
