"""Guides in docs/ to what changes a table as a whole: columns, layout. Their blocks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides import blocks

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(("page", "not_run"), [("altering.md", {"sh"}), ("migrating.md", set())])
def test_the_blocks_of_the_page_run_and_show_what_they_print(
    page: str, not_run: set[str], fast_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(fast_path)
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks((DOCS / page).read_text()):
        if block.language not in not_run:
            exec(compile(block.code, f"{page}:{block.line}", "exec"), names)
            assert capsys.readouterr().out == block.shown, f"line {block.line}"
