"""The English of the project: docstrings, comments, messages and Markdown, for tests that measure it.

python -m tests.prose crdt_mor/cli      prints every message of a folder, to be read as one list
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.parsed import comments, nodes, parsed, text_of

MESSAGE_WORDS = 5
"""A text of fewer words than this is a name or a label, not a message."""

DIRECTIVE = re.compile(r"fmt: \w+|noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\]")
"""Directives of tools."""


@dataclass(frozen=True)
class Text:
    """A piece of English. kind: "docstring", "comment", "message" or "markdown". line: its first one."""

    kind: str
    path: Path
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        return re.findall(r"[a-z']+", self.text.lower())


def texts(paths: Iterable[Path]) -> Iterator[Text]:
    """Yield the texts of files, and of the Python and Markdown files in folders."""
    for path in paths:
        files = [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
        for file in files:
            yield from _markdown(file) if file.suffix == ".md" else _python(file)


def _python(path: Path) -> Iterator[Text]:
    every = nodes(parsed(path))
    documented: set[ast.AST] = set()
    for node in every:
        for statement in body if isinstance(body := getattr(node, "body", None), list) else ():
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                documented.add(value)
                yield Text("docstring", path, value.lineno, value.value)
    for node in every:
        if isinstance(node, ast.JoinedStr):
            documented |= {*node.values}
            text = " … ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented:
            text = node.value
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= MESSAGE_WORDS:
            yield Text("message", path, node.lineno, text)
    for line, comment in comments(text_of(path)):
        yield Text("comment", path, line, DIRECTIVE.sub("", comment).lstrip("#: "))


def _markdown(path: Path) -> Iterator[Text]:
    """Paragraphs, without headings, tables and blocks of code."""
    code, paragraph, first = False, list[str](), 1
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        code ^= line.lstrip().startswith("```")
        if not code and line.strip() and not line.lstrip().startswith(("|", "```", "#")):
            first = first if paragraph else number
            paragraph.append(line.strip())
        elif paragraph:
            yield Text("markdown", path, first, " ".join(paragraph))
            paragraph = []


if __name__ == "__main__":
    for found in texts(map(Path, sys.argv[1:] or ["crdt_mor"])):
        if found.kind == "message":
            sys.stdout.write(f"{found.path}:{found.line}: {' '.join(found.text.split())}\n")
