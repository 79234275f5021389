"""How the command line ends when something goes wrong: one line or one JSON document, a code, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli import failures, near_commands
from crdt_mor.cli.main import app
from crdt_mor.cli.wording import in_options
from crdt_mor.laws.allowed import allowed_class
from crdt_mor.model.merge_spec import PayloadRef


def run(*arguments: object, code: int, **options: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)  # type: ignore[arg-type]
    assert result.exit_code == code, result.output
    return result


def error_of(result: Result) -> dict[str, object]:
    """The error that a command has told programs; there is nothing else on its stdout or stderr."""
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    error = json.loads(line)["error"]
    assert list(error) == ["type", "message", "facts"]
    return dict(error)


def test_programs_get_the_type_the_message_and_the_facts_of_an_error(tmp_path: Path) -> None:
    error = error_of(run("show", tmp_path / "nothing", "--output", "json", code=1))
    assert error["type"] == "TableNotFoundError"
    assert error["facts"] == {"path": str(tmp_path / "nothing")}
    assert str(error["message"]).startswith("there is no table here")


@pytest.mark.parametrize(
    "arguments",
    [
        ["cat", "--output", "json"],
        ["cat", "t", "--output=json", "--limit", "-1"],
        ["nonsense", "--output", "json"],
        ["changes", "t", "--since", "1", "--checkpoint", "c", "--output", "json"],
    ],
)
def test_a_wrong_command_line_is_json_too(arguments: list[str]) -> None:
    assert error_of(run(*arguments, code=2))["type"] == "UsageError"


def test_help_and_the_codes_of_commands_are_the_same_for_programs() -> None:
    assert "Usage" in run("show", "--output", "json", "--help", code=0).stdout
    assert json.loads(run("laws", "crdt_mor.payloads:Max", "--examples", "2", "--output", "json", code=0).stdout)


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        ("no such table. path=/a b/c", {"path": "/a b/c"}),
        ("name it once. repeated=['a', 'b'] limit=3", {"repeated": ["a", "b"], "limit": "3"}),
        ("in one way: a frame, keys=[...] or filter=...", {}),
        ("cannot be: a =b. filter='x = 1' type=Int64", {"filter": "x = 1", "type": "Int64"}),
        ("damaged. path=x offset=12 block='[", {"path": "x", "offset": "12", "block": "'["}),
        ("nothing to say", {}),
    ],
)
def test_the_facts_of_a_message_are_at_its_end(message: str, facts: dict[str, object]) -> None:
    assert failures.facts(message) == facts


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(13, "Permission denied", "/etc/shadow"), "Permission denied. file=/etc/shadow errno=EACCES"),
        (OSError(28, "No space left on device"), "No space left on device. errno=ENOSPC"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "not UTF-8"),
        (pa.ArrowInvalid("no\nsuch thing"), "these rows cannot be handled: no such thing"),
        (pl.exceptions.ComputeError("bad cast\n\nResolved plan until failure: DF []"), "handled: bad cast"),
        (MemoryError(), "not enough memory"),
        (ZeroDivisionError("division by zero"), "--debug: ZeroDivisionError: division by zero"),
        (type("PanicException", (BaseException,), {})("index"), "PanicException: index"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_is_raised_is_one_line(
    error: BaseException, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(mor.Table, "__init__", fail)
    result = run("show", tmp_path, code=1)
    assert result.stderr.startswith("error: ")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Resolved plan" not in result.stderr
    assert error_of(run("show", tmp_path, "--output", "json", code=1))["type"] == type(error).__name__
    assert "Traceback" in run("show", tmp_path, "--debug", code=1).stderr


def test_ctrl_c_is_said_and_has_the_code_that_shells_give_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mor.Table, "__init__", interrupt)
    for words, says in {
        ("show", tmp_path): "show was interrupted. The command only reads, and changed nothing",
        ("verify", tmp_path): "changed nothing",
        ("append", tmp_path, __file__): "rolled back, unless it was committed a moment before",
        ("delete", tmp_path, "--where", "n = 1"): "rolled back",
        ("clean", tmp_path): "again to finish the work",
        ("copy", tmp_path, tmp_path / "copy"): "again to copy the missing objects",
        ("migrate", tmp_path, tmp_path / "new"): "writers may be turned away",
    }.items():
        result = run(*words, code=130)
        assert says in " ".join(result.stderr.split()), words
        assert "Traceback" not in result.stderr


def test_ctrl_c_in_any_command_names_what_it_leaves() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert failures.LEFT.keys() == group.commands.keys()


def test_a_closed_pipe_is_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def close(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(mor.Table, "__init__", close)
    assert run("show", tmp_path, code=141).output == ""


def test_the_version_is_that_of_the_installed_package() -> None:
    assert run("--version", code=0).stdout == f"crdt-mor {mor.__version__}\n"


@pytest.mark.parametrize(("shell", "speaks"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --")])
def test_completion_has_a_script_for_each_shell(shell: str, speaks: str) -> None:
    result = run(code=0, env={"_CRDT_MOR_COMPLETE": f"source_{shell}"}, prog_name="crdt-mor")
    assert speaks in result.stdout
    assert "crdt-mor" in result.stdout
    assert "--install-completion" in run("--help", code=0).stdout


def test_completion_knows_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        asked = {"_CRDT_MOR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        return run(code=0, env=asked, prog_name="crdt-mor").stdout.split()

    assert completed("crdt-mor comp") == ["compact"]
    assert completed("crdt-mor cat --for") == ["--format"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_a_reader_that_stops_early_leaves_no_word_behind(tmp_path: Path, format: str) -> None:
    table = mor.Table.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("text", pa.string())]), key="id")
    table.upsert(pl.DataFrame({"id": range(50_000)}).with_columns(text=pl.col("id").hash().cast(pl.String)))
    command = [sys.executable, "-m", "crdt_mor", "cat", table.uri, "--format", format]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(60) == 141, said
    assert said == b""


@pytest.mark.slow
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this machine has no /dev/full")
    table = mor.Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "crdt_mor", "show", table.uri], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"error: the operating system refused: No space left on device. errno=ENOSPC\n"


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("merge", "only in Python: Table.merge"),
        ("insert", "append or upsert"),
        ("vacuum", "Use clean"),
        ("OPTIMIZE", "Use compact"),
        ("describe", "Use show"),
        ("select", "Use sql"),
        ("ls", "Use list"),
        ("backup", "Use copy"),
        ("fsck", "Use verify"),
        ("scan", "Use cat"),
        ("rows", "Use cat"),
        ("export", "Use cat --format parquet"),
        ("stats", "Use show"),
        ("serve", "Use ui"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_to_say(word: str, says: str) -> None:
    message = str(error_of(run(word, "t", "--output", "json", code=2))["message"])
    assert message.startswith(f"No such command '{word}'. ")
    assert says in message
    assert "Did you mean" not in message


def test_a_word_of_others_names_no_command_and_what_it_says_names_some() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert not near_commands.COMMANDS.keys() & group.commands.keys()
    assert "Did you mean 'append'?" in str(error_of(run("appendd", "--output", "json", code=2))["message"])


def test_a_misspelt_command_that_destroys_is_never_suggested() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert group.commands.keys() >= near_commands.DESTROYING
    for name in near_commands.DESTROYING:
        message = near_commands.unknown(f"{name}x", group.commands)
        assert not [one for one in near_commands.DESTROYING if repr(one) in message]
    assert near_commands.unknown("zzzz", group.commands) == (
        "No such command 'zzzz'. crdt-mor --help lists all commands."
    )


@pytest.mark.parametrize(
    ("command", "option", "instead"),
    [("cat", "--filter", "--where"), ("erase", "--filter", "--where"), ("move", "--key", "--keys")],
)
def test_an_option_that_others_have_is_answered_with_the_one_here(command: str, option: str, instead: str) -> None:
    message = str(error_of(run(command, "t", option, "a", "--output", "json", code=2))["message"])
    assert message == f"No such option: {option}: use {instead}."


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("open it, or pass exist_ok=True. path=x", "open it, or pass --exist-ok. path=x"),
        ("add it with validate=False, which", "add it with --no-validate, which"),
        ('or with schema_mode="merge". unknown=[]', "or with --schema-mode merge. unknown=[]"),
        ('write. schema_mode="merge"', 'write. schema_mode="merge"'),
        ("call it with removed=True", "call it with removed=True"),
    ],
)
def test_parameters_in_a_message_are_said_as_options_of_the_command(message: str, said: str) -> None:
    assert in_options(message, ("uri", "exist_ok", "validate", "schema_mode")) == said


def test_a_payload_that_is_not_allowed_is_answered_with_the_option() -> None:
    with pytest.raises(mor.errors.PayloadNotAllowedError) as caught:
        allowed_class(PayloadRef("acme.longest/1", path="acme_payloads:Longest"))
    said = in_options(str(caught.value), ())
    assert "If you trust its code, allow it with --payloads acme_payloads or the environment variable" in said
    assert "import" not in said.replace("not imported", "")


def test_a_table_that_is_there_is_answered_with_the_option_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,n\na,1\n")
    create = ("create", tmp_path / "t", "--like", tmp_path / "rows.csv", "--key", "id")
    run(*create, code=0)
    assert "pass --exist-ok. path=" in run(*create, code=1).stderr
    run(*create, "--exist-ok", code=0)
