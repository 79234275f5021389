"""List the entries of the reference pages, each with the code of its example blocks.

    ::: crdt_mor.Table.update       an entry: `make docs` inserts the signature and the docstring
    ::: crdt_mor.Store              an entry with its methods
        options:
          members: true

Entries without a block between them share the blocks after the last of them.
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
    """An entry. with_members: True if its members are shown too. examples: the code of its blocks."""

    page: str
    path: str
    with_members: bool
    examples: str


def entries() -> Iterator[Entry]:
    """Yield the entries of all pages."""
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text()
        found = list(LINE.finditer(text))
        ends = [*(entry.start() for entry in found), len(text)][1:]
        examples = ""
        for entry, end in reversed(list(zip(found, ends, strict=True))):
            examples = "\n".join(BLOCK.findall(text[entry.end() : end])) or examples
            yield Entry(page.name, entry[1], "members: true" in entry[2], examples)
