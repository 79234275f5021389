"""Guides in docs/: reading, changes, history, tests, observing. Every block runs and prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.guides import blocks, interpreter, words

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    "guide", ["reading.md", "writing.md", "changes.md", "history.md", "testing.md", "observing.md"]
)
def test_every_block_of_the_guide_runs_and_shows_what_it_prints(guide: str, fast_path: Path) -> None:
    with interpreter(fast_path) as python:
        for block in blocks((DOCS / guide).read_text()):
            assert block.language == "python", f"line {block.line}: a {block.language!r} block is executed by nothing"
            printed = python.run(block.code)
            # Bytes depend on the version of the compressor.
            shown, found = (re.sub(r"[\d,]+ bytes|\"bytes\": \d+", "… bytes", text) for text in (block.shown, printed))
            assert words(found) == words(shown), f"docs/{guide}:{block.line}\n{printed}"
