"""What the pages of the reference describe: their entries, each with the code of the blocks that are its examples.

    ::: crdt_mor.Table.update       an entry: `make docs` puts the signature and the docstring there
    ::: crdt_mor.Store              one that is shown with its methods
        options:
          members: true

Entries between which no block stands share the blocks behind the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "reference"
LINE = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Entry(NamedTuple):
    """What a page describes. with_members: its members as well. examples: the code of its blocks."""

    page: str
    path: str
    with_members: bool
    examples: str


def entries() -> Iterator[Entry]:
    """The entries of all pages."""
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text()
        found = list(LINE.finditer(text))
        ends = [*(entry.start() for entry in found), len(text)][1:]
        examples = ""
        for entry, end in reversed(list(zip(found, ends, strict=True))):
            examples = "\n".join(BLOCK.findall(text[entry.end() : end])) or examples
            yield Entry(page.name, entry[1], "members: true" in entry[2], examples)
