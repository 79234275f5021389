"""List the entries of the reference pages, each with the code of its example blocks.

    ::: crdt_mor.Table.update       an entry: `make docs` inserts the signature and the docstring
    ::: crdt_mor.store.Store        an entry with its methods
        options:
          members: true

Entries without a block between them share the blocks after the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

MODULES = ("errors", "observing", "parts", "results", "store")
"""Modules of `crdt_mor` with public names; the root has the others."""

FOLDER = Path(__file__).resolve().parents[1] / "reference"
LINE = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Entry(NamedTuple):
    """An entry. with_members: True if its members are shown too. examples: the code of its blocks."""

    page: str
    path: str
    with_members: bool
    examples: str


@cache
def homes() -> dict[str, str]:
    """Return the module of each public name. The errors that the root exports belong to the root."""
    found: dict[str, str] = {}
    for module in (*(f"crdt_mor.{name}" for name in MODULES), "crdt_mor"):
        found |= dict.fromkeys(import_module(module).__all__, module)
    return found


def public(name: str) -> object:
    """Return the object of a public name without its module."""
    return getattr(import_module(homes()[name]), name)


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
