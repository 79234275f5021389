"""CSV as others write it, and schemas in words: what commands take of files and of stdin."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli import data
from crdt_mor.cli.main import app
from crdt_mor.cli.type_names import type_of

SEMICOLONS = 'id;v\n"Jörg; der Erste";5\n007;6\n'.encode("latin-1")
HOW = ("--delimiter", ";", "--encoding", "latin-1")
ROWS = [("007", 6), ("Jörg; der Erste", 5)]


def run(*arguments: object, code: int = 0, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def rows(table: Path) -> list[tuple[object, ...]]:
    return sorted(mor.Table(table).scan().to_polars().rows())


@pytest.fixture
def semicolons(fast_path: Path) -> Path:
    (fast_path / "s.csv").write_bytes(SEMICOLONS)
    (fast_path / "s.csv.gz").write_bytes(gzip.compress(SEMICOLONS))
    return fast_path


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz"])
def test_csv_of_another_delimiter_and_encoding_is_read_by_each_command(semicolons: Path, name: str) -> None:
    table, file = semicolons / "t", semicolons / name
    run("create", table, "--like", file, "--key", "id", *HOW)
    for verb in ("append", "upsert", "overwrite"):
        run(verb, table, file, *HOW)
        assert rows(table) == ROWS
    run("delete", table, file, *HOW)
    assert rows(table) == []
    run("upsert", table, "-", *HOW, stdin=SEMICOLONS)
    assert rows(table) == ROWS
    run("create-from", semicolons / "u", file, "--key", "id", *HOW)
    assert rows(semicolons / "u") == ROWS


def test_json_in_gz_is_read_and_parquet_in_gz_is_not(fast_path: Path) -> None:
    (fast_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id": "a", "v": 1}\n'))
    run("create", fast_path / "t", "--like", fast_path / "a.jsonl.gz", "--key", "id")
    run("upsert", fast_path / "t", fast_path / "a.jsonl.gz")
    assert rows(fast_path / "t") == [("a", 1)]
    for name, why in (("a.parquet.gz", "unknown file name ending"), ("b.csv.gz", "cannot be read as gzip")):
        (fast_path / name).write_bytes(gzip.compress(b"PAR1") if "parquet" in name else b"id,v\n")
        assert why in run("upsert", fast_path / "t", fast_path / name, code=1).stderr


@pytest.mark.parametrize(("options", "why"), [
    (("--delimiter", "ab"), "an ASCII character"), (("--delimiter", '"'), "an ASCII character"),
    (("--encoding", "latin-99"), "unknown encoding"),
    (("--delimiter", ";", "--input-format", "jsonl"), "only for CSV"),
], ids=str)  # fmt: skip
def test_wrong_options_of_csv_are_refused(semicolons: Path, options: tuple[str, ...], why: str) -> None:
    mor.Table.create(semicolons / "t", pa.schema([("id", pa.string()), ("v", pa.int64())]), key="id")
    told = run("upsert", semicolons / "t", semicolons / "s.csv", *options, code=2).stderr
    assert why in " ".join(told.replace("│", " ").split())


@pytest.mark.parametrize(("text", "why"), [
    ("id,v\na,1\n\nb,x\n", "line 4: column 'v': "),
    ('id,v\n"a\nb",1\nc,x\n', "line 4: column 'v': "),
    ("id,v\na,1\nb\n", "line 3: "),
    ("id\tv\na\t1\nb\tx\n", "line 3: column 'v': "),
], ids=["blank line", "line end in quotes", "too few fields", "tabs"])  # fmt: skip
def test_error_of_csv_names_the_line_and_the_column(fast_path: Path, text: str, why: str) -> None:
    mor.Table.create(fast_path / "t", pa.schema([("id", pa.string()), ("v", pa.int64())]), key="id")
    (fast_path / "a.csv").write_text(text)
    tabs = ("--delimiter", r"\t") if "\t" in text else ()
    assert why in run("upsert", fast_path / "t", fast_path / "a.csv", *tabs, code=1).stderr
    with pytest.raises(mor.InvalidInputError, match=why):
        mor.Table(fast_path / "t").upsert(mor.read_files(fast_path / "a.csv", delimiter="\t" if tabs else ","))


# --- schemas ----------------------------------------------------------------------------------------------------------

SCALARS = [
    pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4), pa.date32(), pa.date64(), pa.time32("s"),
    pa.time64("us"), pa.timestamp("ms"), pa.timestamp("us", "+02:00"), pa.timestamp("us", "Europe/Berlin"),
    pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(38, 0), pa.decimal256(38, 2),
]  # fmt: skip
NESTED = [
    pa.large_list(pa.int8()), pa.list_(pa.field("element", pa.int64()), 3),
    pa.struct([("a b", pa.list_(pa.struct([("x", pa.timestamp("us", "UTC")), ("y", pa.decimal128(3, 1))])))]),
    pa.map_(pa.string(), pa.list_(pa.int64())), pa.map_(pa.string(), pa.int64(), keys_sorted=True),
    pa.dictionary(pa.int32(), pa.large_string(), ordered=True), pa.dictionary(pa.int32(), pa.int64()),
]  # fmt: skip


def test_type_of_reads_each_type_as_arrow_spells_it() -> None:
    for kind in [*SCALARS, *map(pa.list_, SCALARS), *NESTED]:
        assert type_of(str(kind)) == kind
        assert str(type_of(str(kind))) == str(kind)
    for text in (
        "nonsense",
        "list<x>",
        "struct<a>",
        "map<string>",
        "timestamp[xx]",
        "list<int8, int8>",
        "set<int8>",
        "",
    ):
        assert type_of(text) is None, text


def test_schema_of_a_table_as_it_is_printed_makes_a_table_of_the_same_columns(fast_path: Path) -> None:
    columns = [pa.field(f"c{number}", kind) for number, kind in enumerate([*SCALARS, *NESTED])]
    first = mor.Table.create(fast_path / "t", pa.schema([("id", pa.int64()), *columns]), key="id")
    printed = run("schema", fast_path / "t", "--output", "json").stdout
    run("create", fast_path / "u", "--schema", "-", "--key", "id", stdin=printed.encode())
    assert mor.Table(fast_path / "u").schema == first.schema


@pytest.mark.parametrize("name", ["-", "s.json", "s.jsonl"])
def test_object_of_types_is_a_schema_wherever_it_comes_from(fast_path: Path, name: str) -> None:
    text = json.dumps({"a": "int64", "b": "list<string>"}).encode()
    (fast_path / "s").write_bytes(text)
    source: object = name
    if name != "-":
        source = (fast_path / "s").rename(fast_path / name)
    run("create", fast_path / "t", "--schema", source, "--key", "a", stdin=text)
    assert mor.Table(fast_path / "t").schema == pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])


@pytest.mark.parametrize("kinds", [{"a": "in64"}, {"a": "string", "b": "number"}])
def test_schema_with_an_unknown_type_is_refused_and_makes_no_table(fast_path: Path, kinds: dict[str, str]) -> None:
    refused = run("create", fast_path / "t", "--schema", "-", "--key", "a", code=1, stdin=json.dumps(kinds).encode())
    assert "unknown type" in refused.stderr
    assert not (fast_path / "t").exists()


@pytest.mark.parametrize("row", [{"a": "x", "b": "y"}, {"a": "x", "b": "date"}])
def test_like_takes_an_object_of_texts_as_a_row(fast_path: Path, row: dict[str, str]) -> None:
    run("create", fast_path / "u", "--like", "-", "--key", "a", stdin=json.dumps(row).encode())
    assert mor.Table(fast_path / "u").schema == pa.schema([("a", pa.string()), ("b", pa.string())])


class _Freed(bytes):
    """A text that notes its end."""

    ends: ClassVar[list[int]] = []

    def __del__(self) -> None:
        self.ends.append(len(self))


class _Pipe:
    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)

    def read(self, _: int = -1) -> bytes:
        return self.parts.pop(0) if self.parts else b""


def test_piped_text_is_not_held_as_bytes_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    # Arrow reads ahead. After an error, its threads freed bytes of Python while Python ended, and the process aborted.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=_Pipe(_Freed(b"id,v\n1,x\n"))))
    opened = data.content_of(data.STDIN)
    assert opened().read() == b"id,v\n1,x\n"
    assert _Freed.ends == [9]


def test_cat_prints_bytes_that_upsert_reads_back(fast_path: Path) -> None:
    table = mor.Table.create(fast_path / "t", pa.schema([("id", pa.int64()), ("b", pa.binary())]), key="id")
    table.upsert(pa.table({"id": [1, 2], "b": [b"hi\xff", b""]}, table.schema))
    printed = run("cat", fast_path / "t", "--format", "jsonl").stdout
    before = table.to_arrow().sort_by("id")
    run("truncate", fast_path / "t", "--yes")
    run("upsert", fast_path / "t", "-", "--input-format", "jsonl", stdin=printed.encode())
    assert table.to_arrow().sort_by("id").equals(before)
