"""Docstrings as Markdown, for the pages of the reference.

A docstring of ours is prose, with a line for each parameter, field or column of a result:

    keep: the history of so much time. commits: views as of each of the last so many commits.
    readers: readers that began less than this long ago keep
        their files.

Such lines become a list. Names of the public API between backticks become links to where they are described, and names
of pages, such as docs/stores.md, links to these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import griffe

import crdt_mor
from crdt_mor import payloads

ITEM = re.compile(r"(?:^|(?<=[.;)] ))([a-z]\w*(?:, [a-z]\w*)*): (?=\S)")
CODE = re.compile(r"(?<![`\[\w])`([A-Za-z_][\w.]*)`(?![`\w])")
PAGE = re.compile(r"(?<![`\w/(\[])docs/([\w/-]+)\.md\b")
OWNERS = {"maintenance": "Maintenance", "inspect": "Inspect", "table": "Table"}
"""The classes of what prose calls so."""


class Readable(griffe.Extension):
    """Makes docstrings of the project Markdown when they are loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Once a package is read."""
        for described in _described(pkg):
            assert described.docstring is not None
            described.docstring.value = with_links(as_list(described.docstring.value), _class_of(described))


def _described(of: griffe.Object) -> Iterator[griffe.Object]:
    """Whatever has a docstring within a package; not the package, nor its modules."""
    for member in of.members.values():
        if not isinstance(member, griffe.Alias):
            if member.docstring is not None and not member.is_module:
                yield member
            yield from _described(member)


def as_list(text: str) -> str:
    """A docstring of which the lines that say what a name is are a list."""
    found: list[str] = []
    for paragraph in re.split(r"\n{2,}", text):
        if paragraph.startswith(" "):
            found.append(paragraph)  # a picture, or code
            continue
        pieces = [piece for chunk in _chunks(paragraph) for piece in _pieces(chunk)]
        for number, piece in enumerate(pieces):
            is_next = number > 0 and piece.startswith("- ") and pieces[number - 1].startswith("- ")
            found.append(piece)
            if is_next:
                found[-2:] = [f"{found[-2]}\n{piece}"]
    return "\n\n".join(found)


def _chunks(paragraph: str) -> Iterator[str]:
    """The lines of a paragraph, each that says what a name is with those that are indented below it."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        if lines and not line.startswith(" ") and (ITEM.match(line) or ITEM.match(lines[0])):
            yield " ".join(lines)
            lines = []
        lines.append(line.strip())
    yield " ".join(lines)


def _pieces(chunk: str) -> Iterator[str]:
    """A sentence or several, and behind them the names that are explained in the same line, each an item of a list."""
    items = list(ITEM.finditer(chunk))
    starts = [item.start() for item in items]
    if not starts or starts[0] > 0:
        yield chunk[: starts[0] if starts else None].strip()
    for item, (start, end) in zip(items, pairwise([*starts, len(chunk)]), strict=True):
        names = ", ".join(f"`{name}`" for name in item[1].split(", "))
        yield f"- {names}: {chunk[start + len(item[0]) : end].strip()}"


def _class_of(described: griffe.Object) -> str:
    """The public class that something belongs to, or to whose methods; "": none."""
    of = described if described.is_class else described.parent
    if of is None or not of.is_class:
        return ""
    if of.name in crdt_mor.__all__:
        return of.name
    is_of_table = of.name in {base.__name__ for base in crdt_mor.Table.__mro__}
    return "Table" if is_of_table else ""


def with_links(text: str, owner: str) -> str:
    """A docstring with links. owner: the class whose methods it names without saying so."""

    def linked(code: re.Match[str]) -> str:
        path = public_path(code[1], owner)
        return f"[{code[0]}][{path}]" if path else code[0]

    return PAGE.sub(r"[docs/\1.md](../\1.html)", CODE.sub(linked, text))


def public_path(name: str, owner: str) -> str:
    """The full name of something public; "" where a name is none, or that of a parameter."""
    first, _, rest = name.removeprefix("crdt_mor.").partition(".")
    first = OWNERS.get(first, first) if rest else first
    if first in crdt_mor.__all__ and (not rest or _has(first, rest)):
        return f"crdt_mor.{first}.{rest}" if rest else f"crdt_mor.{first}"
    if first in payloads.__all__ and not rest:
        return f"crdt_mor.payloads.{first}"
    return f"crdt_mor.{owner}.{name}" if owner and not rest and _has(owner, name) else ""


def _has(owner: str, name: str) -> bool:
    """Whether a class has a public method of the name."""
    return not name.startswith("_") and callable(getattr(getattr(crdt_mor, owner), name, None))
