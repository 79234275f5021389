"""The program of docs/erasure.md prints what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides import blocks

GUIDE = Path(__file__).parents[1] / "docs" / "erasure.md"


def test_the_program_of_the_page_runs_and_shows_what_it_prints(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(fast_path)
    (block,) = blocks(GUIDE.read_text())
    exec(compile(block.code, str(GUIDE), "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out == block.shown
