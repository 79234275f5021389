"""docs/reading.md, held to the code: every block of it runs, and what it shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_payload_guide import Block, interpreter, words

GUIDE = Path(__file__).parents[1] / "docs" / "reading.md"
TEXT = GUIDE.read_text()


def blocks() -> list[Block]:
    """The blocks of the guide, each with what it shows."""
    fences = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
    found = [Block(TEXT[: m.start()].count("\n") + 1, "python", m[1], m[2] or "") for m in fences.finditer(TEXT)]
    assert TEXT.count("```") == sum(4 if block.shown else 2 for block in found), "a block that nothing holds"
    return found


def test_every_block_of_the_guide_runs_and_shows_what_it_prints(fast_path: Path) -> None:
    with interpreter(fast_path) as python:
        for block in blocks():
            printed = python.run(block.code)
            # Bytes depend on the version of the compressor.
            shown, found = (re.sub(r"[\d,]+ bytes", "… bytes", text) for text in (block.shown, printed))
            assert words(found) == words(shown), f"docs/reading.md:{block.line}\n{printed}"
