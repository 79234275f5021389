"""docs/reading.md and docs/changes.md, held to the code: every block runs, and what it shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_payload_guide import Block, interpreter, words

DOCS = Path(__file__).parents[1] / "docs"


def blocks(text: str) -> list[Block]:
    """The blocks of a guide, each with what it shows."""
    fences = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
    found = [Block(text[: m.start()].count("\n") + 1, "python", m[1], m[2] or "") for m in fences.finditer(text)]
    assert text.count("```") == sum(4 if block.shown else 2 for block in found), "a block that nothing holds"
    return found


@pytest.mark.parametrize("guide", ["reading.md", "changes.md"])
def test_every_block_of_the_guide_runs_and_shows_what_it_prints(guide: str, fast_path: Path) -> None:
    with interpreter(fast_path) as python:
        for block in blocks((DOCS / guide).read_text()):
            printed = python.run(block.code)
            # Bytes depend on the version of the compressor.
            shown, found = (re.sub(r"[\d,]+ bytes", "… bytes", text) for text in (block.shown, printed))
            assert words(found) == words(shown), f"docs/{guide}:{block.line}\n{printed}"
