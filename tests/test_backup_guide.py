"""The programs of docs/backup.md print what they show, and its commands are those that there are."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crdt_mor.cli.main import app
from tests.guides import blocks

GUIDE = Path(__file__).parents[1] / "docs" / "backup.md"


def test_the_programs_and_commands_of_the_page_run_and_show_what_they_print(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(fast_path)
    names: dict[str, object] = {"__name__": "guide"}
    ran = 0
    for block in blocks(GUIDE.read_text()):
        if block.language == "python":
            exec(compile(block.code, str(GUIDE), "exec"), names)
            assert capsys.readouterr().out == block.shown
            continue
        for line in block.code.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["crdt-mor"] and "s3://" not in line and "monday" not in line:
                assert CliRunner().invoke(app, words[1:]).exit_code == (3 if "exit code 3: " in line else 0), line
                ran += 1
    assert ran == 5
