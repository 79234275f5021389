"""The blocks of docs/altering.md run and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides import blocks

GUIDE = Path(__file__).parents[1] / "docs" / "altering.md"


def test_the_blocks_of_the_page_run_and_show_what_they_print(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(fast_path)
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks(GUIDE.read_text()):
        if block.language == "python":
            exec(compile(block.code, f"{GUIDE}:{block.line}", "exec"), names)
            assert capsys.readouterr().out == block.shown, f"line {block.line}"
