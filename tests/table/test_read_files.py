"""Rows of the user's own files, of every format, as many as there are: exact in their types, or refused by name."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.api import files_json
from crdt_mor.store import MemoryStore
from tests.tiers import slow

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
    return Table.create("t", SCHEMA, key="id", opening=Opening(store=MemoryStore()))


@pytest.mark.parametrize("kind", WRITE)
def test_files_of_each_format_are_read_as_often_as_they_are_asked_for_and_written(folder: Path, kind: str) -> None:
    paths = written(folder, kind, *map(part, range(3)))
    expected = pa.concat_tables(map(part, range(3)))
    for given in (paths, [str(path) for path in paths], f"{folder}/*.{kind}", folder / f"*.{kind}", iter(paths)):
        rows = mor.read_files(given)
        assert rows.schema == SCHEMA
        for _ in range(2):
            assert rows.to_arrow().equals(expected)
        table = Table.create("t", rows, key="id", opening=Opening(store=MemoryStore()))
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


def test_times_of_day_are_iso_text_in_csv_and_json(folder: Path) -> None:
    (folder / "times.csv").write_text("id,second,fine\n1,04:05:06,23:59:59.999999\n2,,\n")
    (folder / "times.jsonl").write_text('{"id": 1, "second": "04:05:06", "fine": "23:59:59.999999"}\n{"id": 2}\n')
    (folder / "wrong.jsonl").write_text('{"id": 1, "second": "04:05:06.5", "fine": null}\n')
    schema = pa.schema([("id", pa.int64()), ("second", pa.time32("s")), ("fine", pa.time64("us"))])
    table = Table.create("t", schema, key="id", opening=Opening(store=MemoryStore()))
    for name in ("times.csv", "times.jsonl"):
        table.overwrite(mor.read_files(str(folder / name), schema=table.schema))
        assert table.to_arrow().sort_by("id").to_pylist() == [
            {"id": 1, "second": time(4, 5, 6), "fine": time(23, 59, 59, 999999)},
            {"id": 2, "second": None, "fine": None},
        ]
    assert (
        table.scan(filter="fine > TIME '23:00:00'").count()
        == table.scan(filter=pl.col("second") == time(4, 5, 6)).count()
        == 1
    )
    with pytest.raises(InvalidInputError, match=r"cannot be read.*wrong\.jsonl"):
        mor.read_files(str(folder / "wrong.jsonl"), schema=table.schema).to_reader().read_all()


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
    job = table.jobs.plan("upsert", mor.read_files(paths))
    receipts = [job.stage(mor.read_files(path), task=number) for number, path in enumerate(paths)]
    assert table.jobs.complete(job, receipts).rows == 8
    assert table.count() == 8


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ("{}/nothing.parquet", "no such file.*nothing.parquet"),
        ("{}/*.parquet", "no such file"),
        ("{}", r"a folder.*\*\.parquet"),
        ("{}/a.txt", r"ending.*\.parquet.*file=.*a\.txt"),
        ([], "pass at least one path"),
        (5, "pass the paths of files. type=int"),
        ([5], "pass a file as a path. type=int"),
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
        Table.create("u", mor.read_files(bad), key="id", opening=Opening(store=MemoryStore()))
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
    with pytest.raises(InvalidInputError, match=rf"schema=.*file={halves[1]} cause=line 2: column 'n'"):
        mor.read_files(halves).to_arrow()
    wide = written(folder, "parquet", part(0).set_column(1, "n", pa.array([1, 2], pa.int32())), part(2**40))
    with pytest.raises(InvalidInputError, match=rf"without loss.*file={wide[1]}"):
        mor.read_files(wide).to_arrow()
    assert mor.read_files(wide, schema=SCHEMA).to_arrow().num_rows == 4


def test_no_field_inside_of_a_column_is_left_out_without_a_word(folder: Path) -> None:
    first, more = str(folder / "first.parquet"), str(folder / "more.parquet")
    pyarrow.parquet.write_table(pa.table({"id": [1], "c": [{"x": 1}]}), first)
    pyarrow.parquet.write_table(pa.table({"id": [2], "c": [{"x": 2, "z": "z"}]}), more)
    lines = folder / "more.jsonl"
    lines.write_text('{"id": 2, "c": {"x": 2, "z": "z"}}')
    table = Table.create("t", pyarrow.parquet.read_schema(first), key="id", opening=Opening(store=MemoryStore()))
    with pytest.raises(InvalidInputError, match=r"must not add fields to a column.*more\.parquet.* column=c"):
        mor.read_files([first, more]).to_reader().read_all()
    with pytest.raises(InvalidInputError, match=r"must not add fields to a column.*more\.parquet.* column=c"):
        Table.create_from("n", [first, more], key="id", opening=Opening(store=MemoryStore()))
    for path in (more, str(lines)):
        with pytest.raises(mor.errors.SchemaMismatchError, match=r'schema_mode="merge"\. column=c unknown=\[\'z\'\]'):
            table.upsert(mor.read_files(path, schema=table.schema))
    table.upsert(mor.read_files([more, first]), schema_mode="merge")
    assert table.to_arrow().sort_by("id")["c"].to_pylist() == [{"x": 1, "z": None}, {"x": 2, "z": "z"}]
    table.upsert(mor.read_files(str(lines), schema=table.schema))


def test_the_order_of_columns_does_not_matter(folder: Path) -> None:
    paths = written(folder, "parquet", part(0), part(1).select(["x", "n", "id"]))
    assert mor.read_files(paths).to_arrow().equals(pa.concat_tables([part(0), part(1)]))


# --- any bytes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "why"), [
    (b"null\n", "in line 1 null"), (b'null\n{"id":"a"}\n', "in line 1 null"), (b'{"id":"a"}\nnull\n', "in line 2 null"),
    (b'{"id":"a"} null {"id":"b"}\n', "in line 1 null"), (b'\n 1\n{"id":"a"}', "in line 2 1"),
    (b'{"id":' * 9000 + b"1" + b"}" * 9000, "levels deep"), (b'{"id":' + b"[" * 500 + b"]" * 500 + b"}", "levels deep"),
    (b'[{"id":"a"}, null]', "in line 1 null"), (b'[{"id":"a"}', "a comma or the end of"), (b"[", "has no end"),
    (b'[{"id":"a"},]', "a comma or the end of"), (b'[{"id":"a"}]\n{}', "follows the end of the array.* in line 2"),
    (b'{"id":"a"}\n{"id":"b",', "line 2"), (b'{"id":"a"}\n{"id":"\xe9"}', "in line 2"), (b"", "Empty"),
], ids=range(15))  # fmt: skip
def test_json_that_is_no_rows_is_refused(folder: Path, text: bytes, why: str) -> None:
    """A row that is null, and one of thousands of levels, took the process down; a later null was a row of nulls."""
    (folder / "a.jsonl").write_bytes(text)
    with pytest.raises(InvalidInputError, match=rf"cannot be read.*a\.jsonl.*{why}"):
        mor.read_files(folder / "a.jsonl").to_arrow()


@pytest.mark.parametrize("text", [
    '[{"id": "a", "n": 1.10}, {"id": "b",\n "n": null}]', ' [\n{"n": 1.10, "id": "a"}\n,{"id": "b"} ]\n\n',
    '{"id": "a", "n": 1.10}{"id": "b"}', '\ufeff\n{"id": "a", "n": 1.10}\r\n\r\n{"id": "b", "n": null}\r\n',
    '{"id": "a",\n"n":\n1.10}\n{"id": "b"}',
], ids=["array", "lines", "one line", "blank lines", "over lines"])  # fmt: skip
def test_rows_of_json_are_lines_or_an_array(folder: Path, text: str) -> None:
    for name, content in (("a.json", text.encode()), ("a.jsonl.gz", gzip.compress(text.encode()))):
        (folder / name).write_bytes(content)
        rows = mor.read_files(folder / name, schema={"id": pa.string(), "n": pa.decimal128(4, 2)})
        assert rows.to_arrow().sort_by("id").to_pylist() == [{"id": "a", "n": Decimal("1.10")}, {"id": "b", "n": None}]


@pytest.mark.slow
def test_a_row_of_json_may_be_long_and_have_many_parts(folder: Path) -> None:
    text, parts = "x" * 3_000_000, [{"n": n} for n in range(500)]
    (folder / "a.jsonl").write_text(json.dumps({"id": text}) + "\n" + json.dumps({"id": "b", "parts": parts}))
    assert mor.read_files(folder / "a.jsonl").to_arrow().to_pylist() == [
        {"id": text, "parts": None}, {"id": "b", "parts": parts},
    ]  # fmt: skip


@pytest.mark.parametrize("content", [
    "id,größe\n1,ja\n".encode("latin-1"), "id,s\n1,groß\n".encode("latin-1"),
    b"id,s\n" + b"1,a\n" * 300_000 + "2,ß\n".encode("latin-1"),
], ids=["a name", "a value", "far down"])  # fmt: skip
def test_csv_in_another_encoding_says_so(folder: Path, content: bytes) -> None:
    (folder / "a.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"not UTF-8.*iconv.*a\.csv"):
        mor.read_files(folder / "a.csv").to_arrow()


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.binary(2), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
)
def test_read_files_bytes_in_json_are_base64(folder: Path, kind: pa.DataType) -> None:
    (folder / "a.jsonl").write_text('{"s": "aGk=", "l": ["eP8="]}\n{"s": null, "l": null}\n')
    rows = mor.read_files(folder / "a.jsonl", schema={"s": kind, "l": pa.list_(pa.binary())}).to_arrow()
    assert rows["s"].to_pylist() == [b"hi", None]
    assert rows["l"].to_pylist() == [[b"x\xff"], None]


def test_read_files_bytes_in_json_that_are_not_base64_are_refused(folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"s": "hi!"}\n')
    with pytest.raises(InvalidInputError, match="column 's': bytes in JSON are base64 text"):
        mor.read_files(folder / "a.jsonl", schema={"s": pa.binary()}).to_arrow()


def test_bytes_in_csv_are_bytes_where_that_is_said(folder: Path) -> None:
    (folder / "a.csv").write_bytes(b"id,s\na,\xe9\n")
    rows = mor.read_files(folder / "a.csv", schema={"s": pa.binary()})
    assert rows.to_arrow()["s"].to_pylist() == [b"\xe9"]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "arrow", "parquet"])
def test_a_column_that_stands_twice_is_named(folder: Path, kind: str) -> None:
    (path,) = written(folder, kind, pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["id", "v", "v"]))
    for read in (
        lambda: mor.read_files(path).schema, lambda: mor.read_files(path).to_arrow(),
        lambda: Table.create_from("t", path, key="id", opening=Opening(store=MemoryStore())),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=rf"rename columns.*file={path} repeated=\['v'\]"):
            read()


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_texts_that_are_not_utf8_are_refused_with_the_file(folder: Path, kind: str) -> None:
    """A commit of them was accepted, and could not be read any more."""
    text = pa.StringArray.from_buffers(1, pa.py_buffer(bytes(4) + b"\1\0\0\0"), pa.py_buffer(b"\xff"))
    (path,) = written(folder, kind, pa.table({"id": ["a"], "s": text}))
    with pytest.raises(InvalidInputError, match=rf"file={path}.*UTF8"):
        mor.read_files(path).to_arrow()
    with pytest.raises(InvalidInputError, match=rf"file={path}.*UTF8"):
        Table.create_from("t", path, key="id", opening=Opening(store=MemoryStore()))


@pytest.mark.parametrize("kind", [slow("text"), slow("arrow"), slow("parquet")])
def test_whatever_bytes_a_file_has_it_is_read_or_refused(folder: Path, kind: str) -> None:
    """In a process of its own, which a parser may take down. `tests/table/any_bytes.py` says what the bytes are."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.table.any_bytes", kind, str(folder)], check=False, capture_output=True, text=True
    )
    assert told.returncode == 0, (folder / "seed").read_text() + told.stderr[-2000:]


def test_lines_as_programs_write_them_are_not_walked_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_json, "_lines_one_by_one", lambda content: pytest.fail("a loop in Python over each line"))
    for end in ("\n", "\r\n", "\n{}\n"):
        (tmp_path / "rows.jsonl").write_bytes(f'{{"id": "ä", "l": [{{"x": "}}"}}]}}{end}{{"id": "b"}}'.encode())
        assert mor.read_files(tmp_path / "rows.jsonl").to_arrow()["id"].to_pylist() in (["ä", "b"], ["ä", None, "b"])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", b"\n\n", b"{", b"}", b"\r\n", b"{}\r", b"{\r\n",
        b"{}", b"{}\n", b"{}\n\n{}", b" {}\n{}", b"{}\n[{}]", b"null\n{}",
        b'{"a": "\xff"}\n{}', b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}\n{}", b"{}\n" + b"{" * 100 + b"}" * 100,
        b'{"a": 1}\r\n{"a": "longer"}\r\n', b'{"a": 1}\n{"a":\n2}',
    ],
    ids=repr,
)  # fmt: skip
def test_lines_are_the_same_at_once_and_one_by_one(content: bytes) -> None:
    at_once = files_json._plain_lines(content)
    assert at_once is None or at_once == files_json._lines_one_by_one(content)
