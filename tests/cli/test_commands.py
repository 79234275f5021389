"""The commands, as a user meets them: what they print where, and how they end."""

from __future__ import annotations

import inspect
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import get_args

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli.data import read_schema
from crdt_mor.cli.main import _documentation, app
from crdt_mor.columns.kinds_variants import VARIANT
from crdt_mor.payloads import PartialUpdate
from docs.site.man import commands

COMMANDS = (
    "create", "create-from", "append", "upsert", "update", "delete", "move", "overwrite", "delete-partitions",
    "truncate", "cat", "sql", "count", "changes", "readers", "forget-reader", "diff", "why", "ui", "list", "show",
    "schema", "add-columns", "alter", "history", "timeline", "files", "compact", "properties", "rules", "clean",
    "archive", "drop-metadata-table", "maintain", "metrics", "rollback", "savepoint", "savepoints",
    "drop-savepoint", "restore", "erase", "handover", "takeback", "copy", "mirror", "register", "migrate",
    "cancel-migration", "drop", "laws", "simulate", "verify", "repair", "check-store", "doctor", "demo",
    "cdc postgres", "cdc kafka",
)  # fmt: skip
README = Path(__file__).parent.parent.parent / "README.md"
PAGE = README.parent / "docs" / "cli.md"

EVENTS = pl.DataFrame({"id": ["a", "b", "c"], "views": [5, 15, 25], "note": ["x", None, "[bold]"]})


def crdt_mor(*arguments: object, code: int = 0) -> Result:
    """Run a command; its exit code is part of the claim."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def rows(*arguments: object) -> list[dict[str, object]]:
    """The rows that `cat` gives as JSON."""
    found = [json.loads(line) for line in crdt_mor("cat", *arguments, "--output", "json").stdout.splitlines()]
    return sorted(found, key=lambda row: str(row["id"]))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    EVENTS.write_parquet(tmp_path / "events.parquet")
    return tmp_path / "events.parquet"


@pytest.fixture
def table(tmp_path: Path, data: Path) -> Path:
    """A table with three rows, made by the command line alone."""
    crdt_mor("create", tmp_path / "t", "--schema", data, "--key", "id")
    crdt_mor("append", tmp_path / "t", data)
    return tmp_path / "t"


# --- the command line itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    shown = crdt_mor(*command.split(), "--help").stdout
    assert "Usage" in shown
    assert "--output" in shown
    assert "--debug" in shown
    assert f"Example: crdt-mor {command} " in " ".join(shown.split())


def test_every_parameter_has_help_and_no_help_is_for_another() -> None:
    for name, callback in commands(app).items():
        helps = {one.name: get_args(one.annotation)[1].help for one in inspect.signature(callback).parameters.values()}
        assert all(helps.values()), name
        assert _documentation(callback.__wrapped__)[1].keys() <= helps.keys(), name  # type: ignore[attr-defined]


def test_help_shows_texts_in_brackets() -> None:
    for name, callback in commands(app).items():
        parameters = inspect.signature(callback).parameters.values()
        texts = [inspect.getdoc(callback) or "", *(get_args(one.annotation)[1].help or "" for one in parameters)]
        bracketed = [word for text in texts for word in re.findall(r"\[[a-z_]+\]", text)]
        if bracketed:
            shown = crdt_mor(*name.split(), "--help").stdout
            assert [word for word in bracketed if word not in shown] == [], name
            assert "\\[" not in shown
    assert "'crdt-mor[metrics]'" in crdt_mor("metrics", "--help").stdout


def test_the_page_of_the_command_line_lists_the_commands_as_their_help_does() -> None:
    rows = []
    for name, callback in commands(app).items():
        says, _, rest = (inspect.getdoc(callback) or "").partition("\n\n")
        example = rest.partition("Example: ")[2].strip()
        rows.append(f"| `crdt-mor {name}` | {says.rstrip('.')} | `{example}` |")
    page = [line for line in PAGE.read_text().splitlines() if line.startswith("| `crdt-mor ")]
    assert page == rows


def test_the_list_of_commands_is_complete() -> None:
    assert tuple(commands(app)) == COMMANDS


def test_the_commands_that_the_readme_names_exist() -> None:
    named = set(re.findall(r"`crdt-mor ([a-z-]+)", README.read_text()))
    assert named
    assert named <= set(COMMANDS)


def test_an_error_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    result = crdt_mor("show", tmp_path / "nothing", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: there is no table here; create it")
    assert result.stderr.count("\n") == 1


def test_verbose_adds_the_traceback(tmp_path: Path) -> None:
    assert "Traceback" in crdt_mor("show", tmp_path / "nothing", "--verbose", code=1).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["append", "t"],
        ["cat"],
        ["cat", "t", "--as-of", "a day ago"],
        ["changes", "t", "--since", "started:1"],
        ["diff", "t", "0", "2026-01-32"],
        ["cat", "t", "--limit", "-1"],
        ["show", "t", "--output", "yaml"],
    ],
)
def test_wrong_usage_exits_with_two(
    arguments: list[str], table: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    crdt_mor(*arguments, code=2)


def test_a_malformed_token_is_wrong_usage(table: Path, data: Path) -> None:
    crdt_mor("upsert", table, data, "--token", "17", code=2)


@pytest.mark.parametrize("where", ["views >", "nothing = 1", "views > 'x' +"])
def test_a_filter_that_cannot_be_is_one_line(table: Path, where: str) -> None:
    assert crdt_mor("cat", table, "--where", where, code=1).stderr.count("\n") == 1


# --- create -----------------------------------------------------------------------------------------------------------


def test_create_twice_is_refused_and_says_so(table: Path, data: Path) -> None:
    assert "open it" in crdt_mor("create", table, "--schema", data, "--key", "id", code=1).stderr
    crdt_mor("create", table, "--schema", data, "--key", "id", "--exist-ok")


def test_create_takes_every_setting(tmp_path: Path, data: Path) -> None:
    crdt_mor(
        "create", tmp_path / "p", "--schema", data, "--key", "id,note", "--partition-by", "note", "--buckets", 2,
        "--merge", "partial_update?nulls=keep",
    )  # fmt: skip
    config = mor.Table(tmp_path / "p").config
    assert (config.key, config.partition_by, config.buckets) == (("id", "note"), ("note",), 2)
    assert str(config.merge) == "partial_update/1?nulls=keep"
    marked = ("--merge", "partial_update?nulls=keep&unavailable=?=&", "--merge", "views=counter")
    crdt_mor("create", tmp_path / "m", "--schema", data, "--key", "id", *marked)
    merge = mor.Table(tmp_path / "m").config.merge
    assert str(merge) == "partial_update/1?nulls=keep (views: counter/1; all columns: unavailable is '?=&')"
    crdt_mor("create", tmp_path / "o", "--schema", data, "--key", "id", "--ordering", "views")
    assert mor.Table(tmp_path / "o").config.ordering == "views"


def test_a_schema_comes_from_any_kind_of_file(tmp_path: Path) -> None:
    table = pa.table({"id": ["a"], "n": [1]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    pa.csv.write_csv(table, tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text('{"id": "a", "n": 1}\n')
    (tmp_path / "a.json").write_text('{"id": "string", "n": "int64"}')
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.csv", "a.jsonl", "a.json", "a.arrow"):
        assert read_schema(tmp_path / name) == table.schema, name


def test_a_spelled_schema_knows_the_types_that_need_parameters(tmp_path: Path) -> None:
    spelled = {"a": "timestamp[us, UTC]", "b": "decimal(10, 2)", "c": "list<string>", "d": "date", "e": "timestamp"}
    (tmp_path / "s.json").write_text(json.dumps(spelled))
    kinds = pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.list_(pa.string()), pa.date32(), pa.timestamp("us")
    assert read_schema(tmp_path / "s.json").types == list(kinds)
    (tmp_path / "w.json").write_text('{"a": "string", "b": "number"}')
    with pytest.raises(mor.InvalidInputError, match=r"column='b' type='number'"):
        read_schema(tmp_path / "w.json")


# --- write ------------------------------------------------------------------------------------------------------------


def test_write_upserts_and_deletes_in_the_types_of_the_table(table: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text('id,views,note\na,100,""\nd,7,\n')
    (tmp_path / "gone.jsonl").write_text('{"id": "b"}\n')
    crdt_mor("upsert", table, tmp_path / "new.csv")
    crdt_mor("delete", table, tmp_path / "gone.jsonl")
    assert rows(table) == [
        {"id": "a", "views": 100, "note": ""},
        {"id": "c", "views": 25, "note": "[bold]"},
        {"id": "d", "views": 7, "note": None},
    ]


def test_several_files_are_one_commit(table: Path, tmp_path: Path) -> None:
    for name in ("d", "e"):
        EVENTS.head(1).with_columns(id=pl.lit(name)).write_parquet(tmp_path / f"{name}.parquet")
    commit = json.loads(
        crdt_mor("append", table, tmp_path / "d.parquet", tmp_path / "e.parquet", "--output", "json").stdout
    )
    assert commit["rows"] == 2
    assert len(rows(table)) == 5


def test_a_token_written_twice_counts_once(table: Path, data: Path) -> None:
    first, second = (
        json.loads(crdt_mor("upsert", table, data, "--token", "app:1", "--output", "json").stdout) for _ in range(2)
    )
    assert second == first | {"repeated": True}


def test_json_lines_of_a_partial_update_leave_other_columns_alone(tmp_path: Path, data: Path) -> None:
    table = tmp_path / "p"
    crdt_mor("create", table, "--schema", data, "--key", "id", "--merge", "partial_update")
    crdt_mor("append", table, data)
    (tmp_path / "some.jsonl").write_text('{"id": "a", "views": 6}\n')
    crdt_mor("upsert", table, tmp_path / "some.jsonl")
    assert rows(table)[0] == {"id": "a", "views": 6, "note": "x"}


def test_a_new_column_needs_schema_mode_merge(table: Path, tmp_path: Path) -> None:
    EVENTS.with_columns(more=1.5).write_parquet(tmp_path / "more.parquet")
    assert "more" in crdt_mor("upsert", table, tmp_path / "more.parquet", code=1).stderr
    crdt_mor("upsert", table, tmp_path / "more.parquet", "--schema-mode", "merge")
    assert rows(table)[0]["more"] == 1.5


def test_a_file_of_an_unknown_kind_is_named(table: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_text("")
    assert "rows.xlsx" in crdt_mor("upsert", table, tmp_path / "rows.xlsx", code=1).stderr


# --- cat --------------------------------------------------------------------------------------------------------------


def test_cat_selects_columns_and_rows(table: Path) -> None:
    assert rows(table, "--columns", "id", "--where", "views > 10") == [{"id": "b"}, {"id": "c"}]


def test_cat_shows_a_table_and_says_when_there_is_more(table: Path) -> None:
    shown = crdt_mor("cat", table)
    assert {"id", "views", "note", "25", "null", "[bold]"} <= set(shown.stdout.split())
    assert shown.stderr == ""
    assert "the first 2 rows" in crdt_mor("cat", table, "--limit", 2).stderr


@pytest.mark.parametrize("limit", [None, 0, 2, 2**70])
def test_cat_gives_the_same_rows_in_every_format(table: Path, limit: int | None) -> None:
    asked = [] if limit is None else ["--limit", limit]
    lines = crdt_mor("cat", table, *asked, "--format", "jsonl").stdout
    comma = pl.read_csv(io.BytesIO(crdt_mor("cat", table, *asked, "--format", "csv").stdout_bytes))
    parquet = pl.read_parquet(io.BytesIO(crdt_mor("cat", table, *asked, "--format", "parquet").stdout_bytes))
    assert len(lines.splitlines()) == comma.height == parquet.height == min(3 if limit is None else limit, 3)
    assert len(crdt_mor("cat", table, *asked).stdout.splitlines()) == 2 + comma.height
    if parquet.height == 3:
        assert parquet.sort("id").equals(EVENTS)


@pytest.mark.parametrize("format", ["jsonl", "arrow", "table", "csv", "parquet"])
def test_cat_of_no_columns_tells_the_rows_or_says_that_the_format_cannot(table: Path, format: str) -> None:
    if format in ("jsonl", "arrow"):
        printed = crdt_mor("cat", table, "--columns", "", "--format", format)
        if format == "jsonl":
            assert printed.stdout == "{}\n" * 3
        else:
            assert pa.ipc.open_stream(printed.stdout_bytes).read_all().num_rows == 3
        return
    refused = crdt_mor("cat", table, "--columns", "", "--format", format, code=1)
    assert "pass --columns, count the rows with crdt-mor count, or use --format jsonl" in refused.stderr
    assert refused.stdout == ""
    changed = crdt_mor("changes", table, "--columns", "", "--format", format)
    assert changed.stdout_bytes


def test_cat_refuses_nested_columns_as_csv_by_name(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string())), ("s", pa.struct([("l", pa.int64())]))])
    mor.Table.create(tmp_path / "t", schema, key="id")
    refused = crdt_mor("cat", tmp_path / "t", "--format", "csv", code=1)
    assert refused.stdout == ""
    assert "CSV cannot hold nested values" in refused.stderr
    assert "['tags', 's']" in refused.stderr
    assert crdt_mor("cat", tmp_path / "t", "--columns", "id", "--format", "csv").stdout == '"id"\n'


def test_cat_prints_csv_that_upsert_takes(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("took", pa.duration("ms")), ("v", VARIANT)])
    table = mor.Table.create(tmp_path / "t", schema, key="id", merge=PartialUpdate())
    table.upsert(pa.table({"id": ["a", "b"], "took": pa.array([90_500, None], pa.duration("ms")), "v": pa.nulls(2)}))
    assert "columns=['v']" in crdt_mor("cat", tmp_path / "t", "--format", "csv", code=1).stderr
    printed = crdt_mor("cat", tmp_path / "t", "--columns", "id,took", "--format", "csv").stdout
    assert printed == '"id","took"\n"a","PT90.5S"\n"b",\n'
    (tmp_path / "rows.csv").write_text(printed)
    before = table.to_arrow()
    crdt_mor("upsert", tmp_path / "t", tmp_path / "rows.csv")
    assert mor.Table(tmp_path / "t").to_arrow() == before


def test_cat_prints_json_where_floats_are_no_numbers_to_it(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("x", pa.float64()), ("s", pa.struct([("l", pa.list_(pa.float32()))]))])
    table = mor.Table.create(tmp_path / "t", schema, key="id")
    nan, inf = float("nan"), float("inf")
    table.upsert(pa.table({"id": ["a"], "x": [nan], "s": [{"l": [inf, -inf, 1.5, None]}]}, schema))

    def refuse(constant: str) -> object:
        raise AssertionError(f"{constant} is no JSON")

    for command in (["cat", table.uri, "--format", "jsonl"], ["changes", table.uri, "--output", "json"]):
        row = json.loads(crdt_mor(*command).stdout, parse_constant=refuse)
        assert (row["x"], row["s"]) == ("NaN", {"l": ["Infinity", "-Infinity", 1.5, None]})


def test_cat_travels_in_time(table: Path, data: Path) -> None:
    version = json.loads(crdt_mor("show", table, "--output", "json").stdout)["version"]
    before = pl.DataFrame(mor.Table(table).inspect.timeline())["completed_at"].item()
    crdt_mor("delete", table, data)
    assert rows(table) == []
    assert len(rows(table, "--as-of", version)) == len(rows(table, "--as-of", before)) == 3
    assert rows(table, "--as-of", "2001-01-01T00:00:00Z") == []
    assert "not decided yet" in crdt_mor("cat", table, "--as-of", "2999-01-01T00:00:00Z", code=1).stderr


def test_cat_with_meta_puts_hudis_columns_in_front(table: Path) -> None:
    assert next(iter(rows(table, "--meta")[0])) == "_hoodie_commit_time"


# --- looking inside ---------------------------------------------------------------------------------------------------


def test_show_says_what_the_table_is(table: Path) -> None:
    shown = json.loads(crdt_mor("show", table, "--output", "json").stdout)
    assert (shown["key"], shown["merge"], shown["buckets"], shown["rows"]) == (["id"], "latest", 4, 3)
    assert "see these rows at every moment" in shown["other_readers"]
    text = crdt_mor("show", table).stdout
    assert "views int64" in text


def test_show_tells_who_must_wait_for_compaction(tmp_path: Path, data: Path) -> None:
    table = tmp_path / "p"
    crdt_mor("create", table, "--schema", data, "--key", "id", "--merge", "partial_update")
    crdt_mor("append", table, data)
    assert "no other engine while" in crdt_mor("show", table).stdout
    crdt_mor("compact", table)
    assert "fully compacted" in crdt_mor("show", table).stdout


def test_show_and_history_say_that_hudis_writers_have_the_table_and_the_way_back(table: Path) -> None:
    assert json.loads(crdt_mor("show", table, "--output", "json").stdout)["handed_over"] is None
    assert "takeback" not in crdt_mor("show", table).stdout
    crdt_mor("handover", table)
    since = mor.Table(table).inspect.handed_over()
    assert since is not None
    shown = json.loads(crdt_mor("show", table, "--output", "json").stdout)
    assert mor.Table(table).version == shown["version"]
    assert shown["handed_over"][:19] == f"{since:%Y-%m-%dT%H:%M:%S}"
    assert "data source may write until takeback" in shown["other_readers"]
    said = f"to Hudi's writers since {since:%Y-%m-%d %H:%M:%S} UTC"
    assert said in crdt_mor("show", table).stdout
    for told in (crdt_mor("show", table).stdout, crdt_mor("history", table).stderr):
        assert said in told
        assert "until crdt-mor takeback URI" in told
    assert "taken back, with 0 commits of Hudi's" in crdt_mor("takeback", table).stderr
    assert "takeback" not in crdt_mor("show", table).stdout
    again = crdt_mor("takeback", table).stderr
    assert "nothing to take back: the table is not handed over" in again
    assert "commits" not in again
    assert crdt_mor("history", table).stderr == ""


def test_show_counts_pending_writes_and_timeline_lists_them(table: Path) -> None:
    with mor.Table(table).transaction() as tx:
        tx.upsert(EVENTS)
        assert json.loads(crdt_mor("show", table, "--output", "json").stdout)["pending_writes"] == 1
        (line,) = crdt_mor("timeline", table, "--pending", "--output", "json").stdout.splitlines()
        assert json.loads(line)["state"] == "pending"


def test_timeline_since_leaves_out_what_was_over(table: Path, data: Path) -> None:
    (first,) = [json.loads(line) for line in crdt_mor("timeline", table, "--output", "json").stdout.splitlines()]
    crdt_mor("upsert", table, data)
    since = crdt_mor("timeline", table, "--since", first["completed_at"], "--output", "json").stdout.splitlines()
    assert [json.loads(line)["operation"] for line in since] == ["UPSERT"]
    mor.Table(table).maintenance.savepoint("now-named")
    crdt_mor("upsert", table, data)
    for point, later in ((first["version"], 2), ("now-named", 1), ("2020-01-01", 3), ("now", 0)):
        since = crdt_mor("timeline", table, "--since", point, "--output", "json").stdout.splitlines()
        assert len(since) == later
    assert "a version" in crdt_mor("timeline", table, "--since", "last-week!", code=2).stderr
    assert "this version does not exist yet" in crdt_mor("timeline", table, "--since", "99999", code=1).stderr
    assert first["requested_at"] in crdt_mor("timeline", table).stdout
    (newest,) = crdt_mor("timeline", table, "--limit", "1", "--output", "json").stdout.splitlines()
    assert json.loads(newest)["requested_at"] == max(mor.Table(table).inspect.timeline()["requested_at"].to_pylist())
    assert crdt_mor("timeline", table, "--limit", "0", "--output", "json").stdout == ""


def test_files_lists_a_snapshot_of_then_and_now(table: Path) -> None:
    version = json.loads(crdt_mor("show", table, "--output", "json").stdout)["version"]
    crdt_mor("compact", table)

    def kinds(*options: object) -> set[str]:
        lines = crdt_mor("files", table, *options, "--output", "json").stdout.splitlines()
        return {json.loads(line)["kind"] for line in lines}

    assert kinds() == {"base"}
    assert kinds("--as-of", version) == {"log"}
    assert "this table has no partitions" in crdt_mor("files", table, "--partition", "x", code=1).stderr


def test_words_of_a_newcomer_are_answered(table: Path) -> None:
    assert "put text in single quotes, 'DE'" in crdt_mor("cat", table, "--where", "note = DE", code=1).stderr
    assert "find tables with crdt-mor list" in crdt_mor("maintain", table.parent, code=1).stderr
    assert "an age like 12h" in crdt_mor("cat", table, "--as-of", "yesterday", code=1).stderr
    for word, said in {"rm": "drop for a table", "tail": "Use changes --follow"}.items():
        assert said in " ".join(crdt_mor(word, code=2).stderr.replace("│", "").split())


def test_a_warning_is_in_words_of_the_command_line(tmp_path: Path, data: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = crdt_mor("create", tmp_path / "p", "--schema", data, "--key", "id", "--partition-by", "note").stderr
    assert "or move rows with crdt-mor move URI" in said


def test_files_are_summed_by_partition(tmp_path: Path, data: Path) -> None:
    table = tmp_path / "p"
    crdt_mor("create", table, "--schema", data, "--key", "id,note", "--partition-by", "note", "--buckets", 2)
    assert crdt_mor("files", table, "--by", "partition", "--json").stdout == ""
    crdt_mor("append", table, data)
    crdt_mor("compact", table)
    crdt_mor("upsert", table, data)

    def lines(*options: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in crdt_mor("files", table, *options, "--json").stdout.splitlines()]

    files = pl.DataFrame(lines()).with_columns(log_files=pl.col("kind") == "log")
    sums = files.group_by("partition").agg(
        pl.len().alias("files"), pl.sum("log_files", "bytes", "rows", "deletes")
    )  # fmt: skip
    by_partition = lines("--by", "partition")
    assert len(by_partition) > 1
    assert by_partition == sums.sort("partition").to_dicts()
    name = str(by_partition[1]["partition"])
    assert lines("--by", "partition", "--partition", name) == by_partition[1:2]
    assert lines("--by", "partition", "--as-of", "0") == []
    assert name in crdt_mor("files", table, "--by", "partition").stdout


# --- compact ----------------------------------------------------------------------------------------------------------


def test_compact_merges_and_then_has_nothing_to_do(table: Path) -> None:
    before = rows(table)
    (done,) = json.loads(crdt_mor("compact", table, "--output", "json").stdout)["compactions"]
    assert done["rows"] == 3
    assert rows(table) == before
    assert "nothing to compact" in crdt_mor("compact", table).stderr


def test_a_plan_is_left_for_a_later_run(table: Path) -> None:
    assert "scheduled compaction" in crdt_mor("compact", table, "--plan-only").stderr
    assert json.loads(crdt_mor("show", table, "--output", "json").stdout)["open_plans"] == 1
    crdt_mor("compact", table)
    assert json.loads(crdt_mor("show", table, "--output", "json").stdout)["open_plans"] == 0


def test_clean_says_what_goes_and_what_history_is_left(table: Path) -> None:
    crdt_mor("compact", table)
    said = crdt_mor("clean", table, "--keep", "0s", "--readers", "0s", "--dry-run").stderr
    assert re.search(r"would remove [1-9]\d* files.*history is kept from 2", said)
    done = json.loads(crdt_mor("clean", table, "--keep", "0s", "--readers", "0s", "--output", "json").stdout)
    assert (done["files"], done["spared"], done["dry_run"]) == (int(said.split()[2]), 0, False)
    assert "removed 0 files" in crdt_mor("clean", table, "--commits", "100").stderr


def test_a_table_without_a_metadata_table_has_none_to_drop(table: Path) -> None:
    assert json.loads(crdt_mor("drop-metadata-table", table, "--output", "json").stdout) == {"files": 0}
    assert "removed 0 files" in crdt_mor("drop-metadata-table", table).stderr


def test_archive_says_what_went_and_what_holds_the_rest(table: Path) -> None:
    found = json.loads(crdt_mor("archive", table, "--output", "json").stdout)
    assert (found["instants"], found["until"]) == (0, None)
    assert f"archived 0 instants; then: {found['held_by']}" in crdt_mor("archive", table).stderr


def test_compact_spares_groups_with_few_logs(table: Path) -> None:
    assert "nothing" in crdt_mor("compact", table, "--log-files-min", 5).stderr


def test_compact_of_the_logs_alone_says_so(table: Path, data: Path) -> None:
    crdt_mor("compact", table)
    for _ in range(2):
        crdt_mor("upsert", table, data)
    before = rows(table)
    said = crdt_mor("compact", table, "--logs-only").stderr
    assert "only logs: 3 rows and deletes" in said
    assert rows(table) == before
    assert "nothing to compact" in crdt_mor("compact", table, "--logs-only").stderr
    assert "3 rows" in crdt_mor("compact", table).stderr


# --- changes ----------------------------------------------------------------------------------------------------------


def changed(*arguments: object) -> list[tuple[object, ...]]:
    """What `changes` or `diff` give as JSON: kind, id and views."""
    found = [json.loads(line) for line in crdt_mor(*arguments, "--output", "json").stdout.splitlines()]
    return sorted((row["_change_type"], row["id"], row["views"]) for row in found)


def test_changes_go_on_where_a_file_says(table: Path, tmp_path: Path) -> None:
    state = tmp_path / "events.checkpoint"
    assert len(changed("changes", table, "--checkpoint", state)) == 3
    assert changed("changes", table, "--checkpoint", state) == []
    mor.Table(table).upsert(EVENTS.with_columns(views=pl.col("views") + 1).head(1))
    mor.Table(table).delete(keys=["b"])
    before = state.read_text()
    want = [("delete", "b", None), ("upsert", "a", 6)]
    assert changed("changes", table, "--checkpoint", state) == want
    assert changed("changes", table, "--since", before.strip()) == want
    assert "continue with --since completed:" in crdt_mor("changes", table, "--since", before.strip()).stderr


def test_changes_show_images_raw_rows_and_columns(table: Path) -> None:
    first = mor.Table(table).version
    mor.Table(table).upsert(EVENTS.with_columns(views=pl.col("views") + 1).head(1))
    images = changed("changes", table, "--since", first, "--images")
    assert images == [("update_postimage", "a", 6), ("update_preimage", "a", 5)]
    assert changed("changes", table, "--since", first, "--raw", "--columns", "id,views") == [("upsert", "a", 6)]
    assert changed("diff", table, first, mor.Table(table).version) == images


def test_stable_changes_stop_before_a_pending_write_and_show_says_so(table: Path) -> None:
    with mor.Table(table).transaction():
        mor.Table(table).upsert(EVENTS.with_columns(views=0))
        assert [views for _, _, views in changed("changes", table, "--stable")] == [5, 15, 25]
        assert "because the write that began then is pending" in crdt_mor("show", table).stdout
    assert [views for _, _, views in changed("changes", table, "--stable")] == [0, 0, 0]


def test_following_needs_lines(table: Path) -> None:
    assert "--format jsonl" in crdt_mor("changes", table, "--follow", code=2).stderr


def test_a_checkpoint_is_refused_by_the_table_that_came_in_the_place_of_its_own(
    table: Path, data: Path, tmp_path: Path
) -> None:
    state = tmp_path / "events.checkpoint"
    changed("changes", table, "--checkpoint", state)
    checkpoint = state.read_text().strip()
    shutil.rmtree(table)
    crdt_mor("create", table, "--schema", data, "--key", "id")
    crdt_mor("append", table, data)
    for begin in (["--since", checkpoint], ["--checkpoint", state], ["--checkpoint", state, "--follow"]):
        said = crdt_mor("changes", table, *begin, "--format", "jsonl", code=1)
        assert "this checkpoint belongs to another table" in said.stderr
        assert said.stdout == ""
    assert state.read_text().strip() == checkpoint


def test_a_checkpoint_file_and_since_contradict(table: Path, tmp_path: Path) -> None:
    said = crdt_mor("changes", table, "--since", "1", "--checkpoint", tmp_path / "c", code=2).stderr
    assert "the file contains the start: omit --since" in " ".join(said.replace("│", " ").split())


@pytest.mark.slow
def test_follow_prints_what_comes_until_it_is_stopped(table: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "crdt_mor.cli.main", "changes", str(table), "--follow", "--format", "jsonl"]
    with subprocess.Popen([*command, "--checkpoint", str(state), "--every", "0.05"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline())["id"] for _ in range(3)]
        mor.Table(table).delete(keys=["b"])
        assert json.loads(process.stdout.readline())["_change_type"] == "delete"
        while not state.exists() or state.read_text().strip() != mor.Table(table).changes().checkpoint:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
    assert sorted(first) == ["a", "b", "c"]
    assert changed("changes", table, "--checkpoint", state) == []


def test_values_that_python_has_not_are_printed(tmp_path: Path) -> None:
    """Days after the year 9999, at any depth; a table may hold them, and Arrow's CSV prints them."""
    kinds = [pa.string(), pa.date32(), pa.list_(pa.date32()), pa.struct([("t", pa.timestamp("us"))])]
    schema = pa.schema(list(zip(["id", "d", "l", "s"], kinds, strict=True)))
    days = pa.array([2**30, 5], pa.date32())
    lists = pa.ListArray.from_arrays([0, 2, 2], days)
    structs = pa.StructArray.from_arrays([pa.array([2**61, None], pa.timestamp("us"))], names=["t"])
    table = mor.Table.create(tmp_path / "t", schema, key="id", buckets=1)
    table.upsert(pa.table([pa.array(["a", "b"]), days, lists, structs], schema=schema))
    far, late = f"<value out of range: {2**30}>", f"<value out of range: {2**61}>"
    assert rows(tmp_path / "t") == [
        {"id": "a", "d": far, "l": [far, "1970-01-06"], "s": {"t": late}},
        {"id": "b", "d": "1970-01-06", "l": [], "s": {"t": None}},
    ]
    assert far in crdt_mor("cat", tmp_path / "t").stdout
    assert far in crdt_mor("why", tmp_path / "t", "a").stdout
    (line,) = crdt_mor("why", tmp_path / "t", "a", "--output", "json").stdout.splitlines()
    assert json.loads(line)["result"]["l"] == [far, "1970-01-06"]
