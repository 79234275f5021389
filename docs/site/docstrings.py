"""Docstrings as Markdown, for the pages of the reference.

A docstring of ours is prose, with a line for each parameter, field or column of a result:

    keep: the history of so much time. commits: views as of each of the last so many commits.
    readers: readers that began less than this long ago keep
        their files.

Such lines become a list. Names of the public API between backticks become links to where they are described, and names
of pages, such as docs/stores.md, links to these.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import griffe

import crdt_mor
from docs.site.entries import entries

ITEM = re.compile(r"(?:^|(?<=[.)] ))([a-z]\w*(?:, [a-z]\w*)*): (?=\S)")
CODE = re.compile(r"(?<![`\[\w])`([A-Za-z_][\w.]*)`(?![`\w])")
PAGE = re.compile(r"(?<![`\w/\[])(?<!\]\()docs/([\w/-]+)\.md\b")
OWNERS = {"maintenance": "Maintenance", "inspect": "Inspect", "table": "Table"}
"""The classes of what prose calls so."""


class Readable(griffe.Extension):
    """Makes docstrings of the project Markdown when they are loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Once a package is read."""
        for described in _described(pkg):
            assert described.docstring is not None
            text = as_list(described.docstring.value)
            described.docstring.value = with_links(text, _class_of(described), _parameters(described))


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
        if found and found[-1].startswith("- ") and pieces[0].startswith("- "):
            found.append("<!-- another list -->")
        for is_list, alike in groupby(pieces, lambda piece: piece.startswith("- ")):
            found.append(("\n" if is_list else "\n\n").join(alike))
    return "\n\n".join(found)


def _chunks(paragraph: str) -> Iterator[str]:
    """The lines of a paragraph, each that says what a name is with those that are indented below it."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        names_something = lines and (ITEM.match(line) or ITEM.match(lines[0]))
        if names_something and lines[-1].endswith((".", ":", ")")) and not line.startswith(" "):
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


def _parameters(described: griffe.Object) -> set[str]:
    return {parameter.name for parameter in described.parameters} if isinstance(described, griffe.Function) else set()


def with_links(text: str, owner: str, parameters: Collection[str] = ()) -> str:
    """A docstring with links. owner: the class whose methods it names without saying so.

    parameters: names that mean these, also where a method has the same.
    """

    def linked(code: re.Match[str]) -> str:
        path = "" if code[1] in parameters else public_path(code[1], owner)
        return f"[{code[0]}][{path}]" if path else code[0]

    return PAGE.sub(r"[docs/\1.md](../\1.md)", CODE.sub(linked, text))


def public_path(name: str, owner: str) -> str:
    """The full name under which the reference has something; "" where it has not. owner: as of `with_links`."""
    first, _, rest = name.removeprefix("crdt_mor.").partition(".")
    first = OWNERS.get(first, first) if rest else first
    paths = [f"crdt_mor.{base}.{rest}" for base in _bases(first)] if rest else [f"crdt_mor.{first}"]
    if not rest:
        paths += [f"crdt_mor.payloads.{first}", *(f"crdt_mor.{base}.{first}" for base in _bases(owner))]
    return next((path for path in paths if path in _described_paths()), "")


@cache
def _described_paths() -> frozenset[str]:
    """The full names of all that the reference describes."""
    found = set()
    for entry in entries():
        found.add(entry.path)
        if entry.with_members:
            found |= {f"{entry.path}.{name}" for name in vars(getattr(crdt_mor, entry.path.rpartition(".")[2]))}
    return frozenset(found)


def _bases(name: str) -> list[str]:
    """A public class and those from which it has methods, by their names; none for another name."""
    found = getattr(crdt_mor, name) if name in crdt_mor.__all__ else None
    return (
        [base.__name__ for base in found.__mro__ if base.__name__ in crdt_mor.__all__] if inspect.isclass(found) else []
    )
