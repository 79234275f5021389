"""Rows in and out of the command line: files, stdin, deletes by condition and by key, and pipes from table to table."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.main import app

ROWS = [{"id": "a", "views": 5}, {"id": "b", "views": 15}, {"id": "c", "views": 25}]
SCHEMA = pa.schema([("id", pa.string()), ("views", pa.int64())])


def run(*arguments: object, code: int = 0, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def said(result: Result) -> str:
    """What a wrong use was told, without the frame around it."""
    return " ".join(result.stderr.replace("│", " ").split())


def rows(table: Path) -> list[tuple[object, ...]]:
    return sorted(mor.Table(table).scan().to_polars().rows())


def in_each_format() -> dict[str, bytes]:
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    parquet, arrow, feather = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pa.parquet.write_table(table, parquet)
    with pa.ipc.new_stream(arrow, SCHEMA) as writer:
        writer.write_table(table)
    with pa.ipc.new_file(feather, SCHEMA) as writer:
        writer.write_table(table)
    return {
        "parquet": parquet.getvalue(),
        "arrow": arrow.getvalue(),
        "arrow file": feather.getvalue(),
        "csv": b"id,views\na,5\nb,15\nc,25\n",
        "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
        "json array": json.dumps(ROWS, indent=1).encode(),
    }


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    mor.Table.create(tmp_path / "t", SCHEMA, key="id")
    return tmp_path / "t"


@pytest.fixture
def table(empty: Path) -> Path:
    mor.Table(empty).upsert(pa.Table.from_pylist(ROWS, SCHEMA))
    return empty


# --- in ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", in_each_format())
def test_stdin_says_by_its_first_bytes_what_it_is(empty: Path, format: str) -> None:
    assert "3 rows written" in run("upsert", empty, "-", stdin=in_each_format()[format]).stderr
    assert rows(empty) == [("a", 5), ("b", 15), ("c", 25)]


def test_dates_in_json_are_text(tmp_path: Path) -> None:
    mor.Table.create(tmp_path / "t", {"id": pa.string(), "day": pa.date32()}, key="id")
    run("upsert", tmp_path / "t", "-", stdin=b'{"id": "a", "day": "2026-02-28"}')
    assert mor.Table(tmp_path / "t").to_arrow()["day"].to_pylist() == [date(2026, 2, 28)]


def test_the_format_may_be_said(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes(in_each_format()["csv"])
    assert "--input-format" in run("append", empty, tmp_path / "rows.txt", code=1).stderr
    run("append", empty, tmp_path / "rows.txt", "--input-format", "csv")
    run("upsert", empty, "-", "--input-format", "jsonl", stdin=b'{"id": "d", "views": 0}')
    assert rows(empty) == [("a", 5), ("b", 15), ("c", 25), ("d", 0)]


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (b"", "the input is empty"),
        (gzip.compress(b"id,views\n", mtime=0), "gunzip -c"),
        (b"id,views\na,many\n", "cannot be read as csv"),
        (b"id,views\n\xff\xfe,1\n", "cannot be read as csv; the text is not UTF-8"),
        (b"id,views\xe9\na,1\n", "iconv -f latin1"),
        (b'{"id": "a"', "cannot be read as jsonl"),
        (b"[1, 2]", "must be an object"),
        (b"[1,", "cannot be read as jsonl"),
        (b'{"id": "a"}\nnull', "in line 2 null"),
        (b"PAR1 and no more", "cannot be read as parquet"),
    ],
    ids=["empty", "gzip", "csv", "latin-1", "latin-1 name", "jsonl", "numbers", "array", "null", "parquet"],
)
def test_what_cannot_be_read_is_one_line_and_nothing_is_written(empty: Path, stdin: bytes, says: str) -> None:
    refused = run("upsert", empty, "-", code=1, stdin=stdin).stderr
    assert says in refused
    assert refused.count("\n") == 1
    assert rows(empty) == []


@pytest.mark.parametrize(("name", "content", "says"), [
    ("a.jsonl", b'null\n{"id": "a"}\n', "in line 1 null"), ("a.csv", b"id,views,views\na,1,2\n", r"repeated=['views']"),
    ("a.parquet", b"PAR1" + bytes(64) + b"PAR1", "cannot be read as parquet"),
    ("a.arrow", b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(64), "cannot be read as arrow"),
], ids=["null", "twice", "parquet", "arrow"])  # fmt: skip
def test_a_damaged_file_is_one_line(empty: Path, tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    refused = run("upsert", empty, tmp_path / name, code=1).stderr
    assert says in refused
    assert (tmp_path / name).name in refused
    assert rows(empty) == []


def test_stdin_is_read_once_and_not_from_a_keyboard(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pass - once" in said(run("upsert", empty, "-", "-", code=2, stdin=b"x"))
    monkeypatch.setattr("crdt_mor.cli.data._is_keyboard", lambda: True)
    assert "stdin is a terminal" in said(run("upsert", empty, "-", code=2))


def test_a_pipe_that_has_a_name_is_read_like_stdin(empty: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, in_each_format()["csv"])
    os.close(write)
    if not Path(f"/dev/fd/{read}").exists():
        pytest.skip("this machine has no /dev/fd")
    run("append", empty, f"/dev/fd/{read}")
    os.close(read)
    assert len(rows(empty)) == 3


def test_several_files_are_one_commit_and_the_command_says_so(empty: Path, tmp_path: Path) -> None:
    for name in "de":
        (tmp_path / f"{name}.csv").write_text(f"id,views\n{name},1\n")
    result = run("append", empty, tmp_path / "d.csv", "-", tmp_path / "e.csv", stdin=in_each_format()["jsonl"])
    assert "5 rows written, 3 files in one commit" in result.stderr
    assert mor.Table(empty).inspect.timeline().num_rows == 1


def test_text_in_views_goes_in_and_out_as_csv_and_json(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string_view()), ("raw", pa.binary_view()), ("n", pa.int32())])
    mor.Table.create(tmp_path / "v", schema, key="id")
    run("upsert", tmp_path / "v", "-", stdin=b"id,raw,n\na,x,1\n")
    run("upsert", tmp_path / "v", "-", stdin=b'{"id": "b", "raw": null, "n": 2}')
    text = run("cat", tmp_path / "v", "--format", "csv").stdout
    assert sorted(text.splitlines()) == ['"a","x",1', '"b",,2', '"id","raw","n"']
    assert run("changes", tmp_path / "v", "--columns", "id", "--format", "csv").stdout.count("upsert") == 2


# --- out --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["arrow", "parquet", "csv", "jsonl"])
def test_what_cat_prints_another_table_takes(table: Path, tmp_path: Path, format: str) -> None:
    printed = run("cat", table, "--format", format).stdout_bytes
    run("create", tmp_path / "copy", "--like", table, "--key", "id")
    run("append", tmp_path / "copy", "-", stdin=printed)
    assert rows(tmp_path / "copy") == rows(table)


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_bytes_do_not_go_to_a_terminal(table: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.cli.rows._is_terminal", lambda: True)
    refused = run("cat", table, "--format", format, code=2)
    assert refused.stdout == ""
    assert "stdout is a terminal" in said(refused)


def test_count_counts_what_a_condition_or_a_moment_leaves(table: Path) -> None:
    version = mor.Table(table).version
    run("delete", table, "--keys", "a")
    assert run("count", table).stdout == "2\n"
    assert run("count", table, "--as-of", version).stdout == "3\n"
    assert json.loads(run("count", table, "--where", "views > 15", "--output", "json").stdout) == {"rows": 1}


# --- create -----------------------------------------------------------------------------------------------------------


def test_a_table_is_made_like_a_file_like_stdin_or_like_a_table(tmp_path: Path, table: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(in_each_format()["csv"])
    run("create", tmp_path / "f", "--like", tmp_path / "rows.csv", "--key", "id")
    run("create", tmp_path / "s", "--like", "-", "--key", "id", stdin=in_each_format()["arrow"])
    run("create", tmp_path / "u", "--like", table, "--key", "id")
    for name in "fsu":
        assert mor.Table(tmp_path / name).schema == SCHEMA
        assert rows(tmp_path / name) == []


def test_the_columns_of_a_new_table_come_from_one_place(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(in_each_format()["csv"])
    both = ["--like", tmp_path / "rows.csv", "--schema", tmp_path / "rows.csv"]
    for sources in ([], both):
        assert "exactly one of" in said(run("create", tmp_path / "t", *sources, "--key", "id", code=2))
    assert not (tmp_path / "t").exists()


def test_a_damaged_file_to_be_like_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1, and then something else")
    for option in ("--like", "--schema"):
        refused = run("create", tmp_path / "t", option, tmp_path / "rows.parquet", "--key", "id", code=1).stderr
        assert "cannot be read as parquet" in refused


def test_the_schema_that_is_printed_makes_the_same_table(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("ms")),
            ("price", pa.decimal128(10, 2)), ("tags", pa.list_(pa.string())), ("x", pa.float64()), ("b", pa.binary()),
            ("ok", pa.bool_()), ("n", pa.int64()),
        ]
    )  # fmt: skip
    mor.Table.create(tmp_path / "t", schema, key=["id", "day"], partition_by="day", merge={"n": "counter"})
    (tmp_path / "schema.json").write_text(run("schema", tmp_path / "t", "--output", "json").stdout)
    run("create", tmp_path / "again", "--schema", tmp_path / "schema.json", "--key", "id")
    assert mor.Table(tmp_path / "again").schema == schema
    said = json.loads((tmp_path / "schema.json").read_text())
    assert {name: value for name, value in said.items() if name != "columns"} == {
        "key": ["id", "day"], "partition_by": ["day"], "ordering": None, "merge": "latest (n: counter/1)",
        "ttl": None, "payloads": {"n": "counter/1"}, "comments": {},
        "rules": {"not_null": [], "check": {}, "default": {}, "unproven": []},
    }  # fmt: skip
    lines = [line.split() for line in run("schema", tmp_path / "t").stdout.splitlines()]
    assert ["day", "date32[day]", "key,", "partition"] in lines
    assert any(line[:3] == ["n", "int64", "counter/1"] for line in lines)


# --- delete -----------------------------------------------------------------------------------------------------------


def test_delete_by_a_condition_says_how_many_rows(table: Path) -> None:
    assert "2 rows deleted: version" in run("delete", table, "--where", "views > 10").stderr
    assert rows(table) == [("a", 5)]
    assert "no rows: version" in run("delete", table, "--where", "views > 10").stderr
    assert json.loads(run("delete", table, "--where", "id = 'a'", "--output", "json").stdout)["deletes"] == 1


def test_update_sets_columns_and_says_how_many_rows(table: Path) -> None:
    said_so = run("update", table, "--set", "views=views + 1", "--where", "views > 10", "--message", "more").stderr
    assert "2 rows written: version" in said_so
    assert rows(table) == [("a", 5), ("b", 16), ("c", 26)]
    done = json.loads(run("update", table, "--set", "views = 0", "--wait", "0s", "--output", "json").stdout)
    assert (done["rows"], done["deletes"]) == (3, 0)
    assert rows(table) == [("a", 0), ("b", 0), ("c", 0)]
    token = ["--token", "job:1"]
    assert "3 rows written" in run("update", table, "--set", "views=views + 1", *token).stderr
    assert "this token was used before" in run("update", table, "--set", "views=views + 1", *token).stderr


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ([], 2, "--set"),
        (["--set", "views"], 2, "an equals sign"),
        (["--set", "views=1", "--set", "views=2"], 2, "set each column once"),
        (["--set", "id='x'"], 1, "cannot change key columns"),
        (["--set", "views=text"], 1, "names unknown columns"),
        (["--set", "views=1", "--where", "nothing = 1"], 1, "the filter names unknown columns"),
        (["--set", "views=1", "--wait", "soon"], 2, "a duration must be like"),
    ],
    ids=str,
)
def test_an_update_that_cannot_be_says_why_and_changes_nothing(
    table: Path, options: list[str], code: int, says: str
) -> None:
    assert says in said(run("update", table, *options, code=code))
    assert rows(table) == [("a", 5), ("b", 15), ("c", 25)]


@pytest.mark.parametrize("keys", [["a,c"], ["a", "c"], ["@keys"], ["-"], ["a", "@more"]])
def test_delete_by_keys_takes_values_a_file_or_stdin(
    table: Path, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    Path("keys").write_text("a\n\nc\n")
    Path("more").write_text('"c"')
    options = [word for key in keys for word in ("--keys", key)]
    assert "2 rows deleted" in run("delete", table, *options, stdin=b"a\nc\n").stderr
    assert rows(table) == [("b", 15)]


def test_keys_of_several_columns_have_their_types(tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("n", pa.int32()), ("name", pa.string())])
    made = mor.Table.create(tmp_path / "t", schema, key=["day", "n", "name"])
    made.upsert(
        pl.DataFrame({"day": ["2026-01-01"] * 3, "n": [1, 2, 3], "name": ["x", "y, z", "w"]}).with_columns(
            pl.col("day").str.to_date()
        )
    )
    run("delete", tmp_path / "t", "--keys", "2026-01-01,1,x", "--keys", '2026-01-01,2,"y, z"')
    assert [row[1:] for row in rows(tmp_path / "t")] == [(3, "w")]
    assert (
        "a key is the comma-separated values of ['day', 'n', 'name']"
        in run("delete", tmp_path / "t", "--keys", "2026-01-01,1", code=1).stderr
    )
    refused = run("delete", tmp_path / "t", "--keys", "monday,1,x", code=1).stderr
    assert "a key must match its column's type: 'monday' is not a date32[day]" in refused


def test_keys_alone_are_refused_where_they_do_not_name_the_partition(tmp_path: Path) -> None:
    mor.Table.create(tmp_path / "t", SCHEMA, key="id", partition_by="views")
    refused = run("delete", tmp_path / "t", "--keys", "a", code=1).stderr
    assert "use --where, or a file" in refused
    assert "partition_by=['views']" in refused
    assert "1 row deleted" in run("delete", tmp_path / "t", "-", stdin=b"id,views\na,5\n").stderr


def test_delete_takes_files_of_keys(table: Path) -> None:
    assert "1 row deleted" in run("delete", table, "-", stdin=b'{"id": "b"}').stderr
    assert rows(table) == [("a", 5), ("c", 25)]


@pytest.mark.parametrize(
    "options", [[], ["--where", "views > 1", "--keys", "a"], ["-", "--keys", "a"], ["-", "--where", "views > 1"]]
)
def test_what_to_delete_is_said_in_exactly_one_way(table: Path, options: list[str]) -> None:
    assert "exactly one of" in said(run("delete", table, *options, code=2, stdin=b"id\na\n"))
    assert len(rows(table)) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keys", "@nowhere"], "file=nowhere errno=ENOENT"),
        (["--keys", "-"], "the file of keys is empty"),
        (["--keys", "a\rb"], "a line break in double quotes"),
        (["--keys", '"a'], "a line break in double quotes"),
        (["--where", "nothing = 1"], "nothing"),
        (["--where", "views >"], "filter"),
    ],
)
def test_a_delete_that_cannot_be_is_one_line_and_deletes_nothing(
    table: Path, options: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    refused = run("delete", table, *options, code=1, stdin=b"").stderr
    assert says in refused
    assert refused.count("\n") == 1
    assert len(rows(table)) == 3


def test_a_delete_with_a_token_counts_once(table: Path) -> None:
    for _ in range(2):
        result = run("delete", table, "--where", "views > 10", "--token", "clean:1")
    assert "this token was used before" in result.stderr


@pytest.mark.slow
def test_a_table_is_piped_into_another_by_real_processes(table: Path, tmp_path: Path) -> None:
    run("create", tmp_path / "copy", "--like", table, "--key", "id")
    command = [sys.executable, "-m", "crdt_mor"]
    cat = subprocess.run([*command, "cat", table, "--format", "arrow"], stdout=subprocess.PIPE, check=True)
    done = subprocess.run(
        [*command, "upsert", tmp_path / "copy", "-"], input=cat.stdout, stderr=subprocess.PIPE, check=True
    )
    assert b"3 rows written" in done.stderr
    assert rows(tmp_path / "copy") == rows(table)


def test_columns_of_files_are_renamed(tmp_path: Path) -> None:
    options = [
        word for old, new in {"Total Sales": "sales", "@id": "id"}.items() for word in ("--rename", f"{old}={new}")
    ]
    frame = pl.DataFrame({"@id": ["a", "b"], "Total Sales": [1, 2]})
    frame.write_csv(tmp_path / "x.csv")
    frame.write_parquet(tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        uri, path = tmp_path / name.replace(".", "-"), tmp_path / name
        run("create-from", uri, path, "--key", "id", *options)
        run("upsert", uri, path, *options)
        run("overwrite", uri, path, *options)
        run("delete", uri, path, *options)
        run("append", uri, path, *options)
        assert rows(uri) == [("a", 1), ("b", 2)]
        assert "a column and its new name" in said(run("upsert", uri, path, "--rename", "sales", code=2))
        assert "rename each column once" in said(run("upsert", uri, path, *options, "--rename", "@id=x", code=2))


def test_a_mark_at_the_start_of_a_key_is_a_part_of_it_and_at_the_start_of_a_file_is_not(tmp_path: Path) -> None:
    """Another row was deleted, as a mark is left out where a file of CSV starts with it."""
    made = mor.Table.create(tmp_path / "t", pa.schema([("id", pa.string())]), key="id", buckets=1)
    made.upsert(pa.table({"id": ["a", "\ufeffa", "b"]}))
    run("delete", tmp_path / "t", "--keys", "\ufeffa")
    assert sorted(rows(tmp_path / "t")) == [("a",), ("b",)]
    (tmp_path / "keys.txt").write_text("a\n", encoding="utf-8-sig")
    run("delete", tmp_path / "t", "--keys", f"@{tmp_path / 'keys.txt'}")
    assert rows(tmp_path / "t") == [("b",)]


def test_rows_expire_by_the_column_of_ttl(tmp_path: Path) -> None:
    table, now = tmp_path / "sessions", datetime.now(UTC)
    (tmp_path / "schema.json").write_text('{"id": "string", "created": "timestamp[us, UTC]"}')
    run("create", table, "--schema", tmp_path / "schema.json", "--key", "id", "--ttl", "created=30d")
    assert mor.Table(table).config.ttl == ("created", timedelta(days=30))
    assert json.loads(run("schema", table, "--output", "json").stdout)["ttl"] == "created=30d"
    lines = [line.split() for line in run("schema", table).stdout.splitlines()]
    assert [line[-2:] for line in lines if line[:1] == ["created"]] == [["ttl", "created=30d"]]
    mor.Table(table).upsert(pl.DataFrame({"id": ["b"], "created": [now]}))
    since = mor.Table(table).scan().checkpoint
    mor.Table(table).upsert(pl.DataFrame({"id": ["a", "b"], "created": [now, now - timedelta(days=31)]}))
    assert [row[0] for row in rows(table)] == ["a"]
    assert json.loads(run("count", table, "--output", "json").stdout)["rows"] == 1
    changes = run("changes", table, "--since", since, "--expired", "--format", "jsonl").stdout.splitlines()
    assert {json.loads(line)["id"]: json.loads(line)["_change_type"] for line in changes} == {
        "a": "upsert",
        "b": "delete",
    }
    assert "a duration must be like" in said(
        run("create", tmp_path / "x", "--schema", tmp_path / "schema.json", "--key", "id", "--ttl", "created=x", code=2)
    )


def test_a_refused_file_leaves_no_trace_and_another_is_one_version(table: Path, tmp_path: Path) -> None:
    before = mor.Table(table).version
    (tmp_path / "wrong.csv").write_text("unknown\na\n")
    for verb in ("append", "upsert", "delete"):
        run(verb, table, tmp_path / "wrong.csv", code=1)
    assert mor.Table(table).version == before
    for number, verb in enumerate(("append", "upsert", "delete"), 1):
        run(verb, table, "-", "--message", verb, "--token", f"job:{number}", stdin=b"id,views\na,7\n")
        assert mor.Table(table).version == before + number
    assert mor.Table(table).history(3)["message"].to_pylist() == ["delete", "upsert", "append"]
