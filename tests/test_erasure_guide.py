"""The programs of docs/erasure.md print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides import blocks

GUIDE = Path(__file__).parents[1] / "docs" / "erasure.md"


def test_the_programs_of_the_page_run_and_show_what_they_print(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(fast_path)
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks(GUIDE.read_text()):
        exec(compile(block.code, str(GUIDE), "exec"), names)
        assert capsys.readouterr().out == block.shown
