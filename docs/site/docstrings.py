"""Turn docstrings into Markdown for the pages of the reference.

A docstring has prose and Google-style sections. Parameters may stand as lines in the prose, too:

    keep: the time of which history is kept.             Args:
    readers: files stay for readers that                     keep: the time of which history is kept.
        began later than this.

Both become lists. Names of the public API become links to their entries: in prose where they stand between backticks,
and as the exceptions of `Raises`. Names of pages, such as docs/stores.md, become links to these pages.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import groupby, pairwise
from textwrap import dedent
from typing import Any

import griffe

import crdt_mor
from docs.site.entries import MODULES, entries, homes, public

ITEM = re.compile(r"(?:^|(?<=[.)] ))([a-z]\w*(?:, [a-z]\w*)*): (?=\S)")
CODE = re.compile(r"(?<![`\[\w])`([A-Za-z_][\w.]*)`(?![`\w])")
PAGE = re.compile(r"(?<![`\w/\[])(?<!\]\()docs/([\w/-]+)\.md\b")
MODULE = re.compile(rf"^crdt_mor\.((?:{'|'.join(MODULES)})\.)?")
SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Warns|Examples?):\n(?=    )")
LISTS = ("Args", "Attributes", "Raises", "Warns")
TITLES = {"Args": "Parameters"}
OWNERS = {"maintenance": "Maintenance", "inspect": "Inspect", "table": "Table"}
"""Classes by their names in prose."""


class Readable(griffe.Extension):
    """Turns the docstrings of the project into Markdown when they are loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of a package."""
        for described in _described(pkg):
            assert described.docstring is not None
            text = as_list(described.docstring.value)
            described.docstring.value = with_links(text, _class_of(described), _parameters(described))


def _described(of: griffe.Object) -> Iterator[griffe.Object]:
    """Yield the classes, functions and attributes of a package with a docstring."""
    for member in of.members.values():
        if not isinstance(member, griffe.Alias):
            if member.docstring is not None and not member.is_module:
                yield member
            yield from _described(member)


def as_list(text: str) -> str:
    """Return a docstring with its parameters and sections as Markdown lists."""
    found: list[str] = []
    section = ""
    for paragraph in re.split(r"\n{2,}", text.rstrip()):
        if title := SECTION.match(paragraph):
            section = title[1]
            found += [f"**{TITLES.get(section, section)}**", *_in_section(section, paragraph[title.end() :])]
        elif section and paragraph.startswith("    "):
            found += _in_section(section, paragraph)
        elif paragraph.startswith(" "):
            found.append(paragraph)  # a diagram, or code
        else:
            section = ""
            pieces = [piece for chunk in _chunks(paragraph) for piece in _pieces(chunk)]
            if found and found[-1].startswith("- ") and pieces[0].startswith("- "):
                found.append("<!-- another list -->")
            for is_list, alike in groupby(pieces, lambda piece: piece.startswith("- ")):
                found.append(("\n" if is_list else "\n\n").join(alike))
    return "\n\n".join(found)


def _in_section(section: str, text: str) -> list[str]:
    """Return the Markdown of a paragraph in a section: a list, prose, or code as it is."""
    if section.startswith("Example"):
        return [text]
    lines = dedent(text).splitlines()
    has_names = all(ITEM.match(line) for line in lines if not line.startswith(" "))  # columns of a result
    if section not in LISTS and not has_names:
        return [" ".join(line.strip() for line in lines)]
    items = " ".join(line if line.startswith(" ") else f"\n{line}" for line in lines).split("\n")
    return ["\n".join(_item(" ".join(item.split())) for item in items if item.strip())]


def _item(text: str) -> str:
    names, colon, meaning = text.partition(": ")
    return f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {meaning}" if colon else f"- {text}"


def _chunks(paragraph: str) -> Iterator[str]:
    """Yield the lines of a paragraph, each parameter with its indented lines."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        names_something = lines and (ITEM.match(line) or ITEM.match(lines[0]))
        if names_something and lines[-1].endswith((".", ":", ")")) and not line.startswith(" "):
            yield " ".join(lines)
            lines = []
        lines.append(line.strip())
    yield " ".join(lines)


def _pieces(chunk: str) -> Iterator[str]:
    """Yield the prose of a line, then a list item for each parameter in it."""
    items = list(ITEM.finditer(chunk))
    starts = [item.start() for item in items]
    if not starts or starts[0] > 0:
        yield chunk[: starts[0] if starts else None].strip()
    for item, (start, end) in zip(items, pairwise([*starts, len(chunk)]), strict=True):
        names = ", ".join(f"`{name}`" for name in item[1].split(", "))
        yield f"- {names}: {chunk[start + len(item[0]) : end].strip()}"


def _class_of(described: griffe.Object) -> str:
    """Return the name of the public class that the object is or belongs to, or ""."""
    of = described if described.is_class else described.parent
    if of is None or not of.is_class:
        return ""
    if of.name in homes():
        return of.name
    is_of_table = of.name in {base.__name__ for base in crdt_mor.Table.__mro__}
    return "Table" if is_of_table else ""


def _parameters(described: griffe.Object) -> set[str]:
    return {parameter.name for parameter in described.parameters} if isinstance(described, griffe.Function) else set()


def with_links(text: str, owner: str, parameters: Collection[str] = ()) -> str:
    """Add links to a docstring.

    Args:
        text: the docstring.
        owner: the class of methods named without a class.
        parameters: names without a link, even of methods.
    """

    def linked(code: re.Match[str]) -> str:
        path = "" if code[1] in parameters else public_path(code[1], owner)
        return f"[{code[0]}][{path}]" if path else code[0]

    return PAGE.sub(r"[docs/\1.md](../\1.md)", CODE.sub(linked, text))


def public_path(name: str, owner: str) -> str:
    """Return the full name of a name's entry in the reference, or "". owner: as in `with_links`."""
    first, _, rest = MODULE.sub("", name).partition(".")
    first = OWNERS.get(first, first) if rest else first
    paths = [f"{base}.{rest}" for base in _bases(first)] if rest else [f"{homes().get(first, 'crdt_mor')}.{first}"]
    if not rest:
        paths += [f"crdt_mor.payloads.{first}", *(f"{base}.{first}" for base in _bases(owner))]
    return next((path for path in paths if path in _described_paths()), "")


@cache
def _described_paths() -> frozenset[str]:
    """Return the full names of all entries of the reference."""
    found = set()
    for entry in entries():
        found.add(entry.path)
        if entry.with_members:
            found |= {f"{entry.path}.{name}" for name in vars(public(entry.path.rpartition(".")[2]))}
    return frozenset(found)


def _bases(name: str) -> list[str]:
    """Return the full names of a public class and its public bases; none for other names."""
    found = public(name) if name in homes() else None
    bases = [base.__name__ for base in found.__mro__] if inspect.isclass(found) else []
    return [f"{homes()[base]}.{base}" for base in bases if base in homes()]
