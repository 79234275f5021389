"""Addresses of the documentation: those of messages and of the package's page lead to pages of the site."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from crdt_mor.errors import DOCS, page
from tests.addresses import PROJECT, REPO, SITE, of_package, source_of
from tests.parsed import nodes, parsed, text_of

CODE = sorted(path for folder in ("crdt_mor", "payloads", "readers") for path in (REPO / folder).rglob("*.py"))


def messages(tree: ast.Module) -> Iterator[str]:
    """The texts of a module, but its docstrings."""
    passed = {node.value for node in nodes(tree) if isinstance(node, ast.Expr)}
    yield from (
        node.value
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed
    )


def test_each_page_that_a_message_names_exists() -> None:
    named = {name for path in CODE for name in re.findall(r"""\bpage\(["']([^"']*)["']\)""", text_of(path))}
    assert len(named) >= 7
    assert [name for name in named if not source_of(page(name)).is_file()] == []


def test_no_message_names_a_file_that_a_wheel_lacks() -> None:
    file = re.compile(r"\bdocs/|\b[\w-]+\.md\b")
    found = [(path.name, text) for path in CODE for text in messages(parsed(path)) if file.search(text)]
    assert [(name, text) for name, text in found if not text.startswith(DOCS)] == []


def test_the_addresses_of_the_project_are_pages_of_the_site() -> None:
    for address in PROJECT["project"]["urls"].values():
        assert address.startswith(SITE)
        assert address == SITE or source_of(address).is_file()


def test_every_link_of_the_readme_works_on_the_package_index() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", of_package())
    of_site = [link for link in links if link.startswith(SITE)]
    assert [link for link in links if not link.startswith("https://")] == []
    assert [link for link in of_site if not source_of(link).is_file()] == []
    assert len(of_site) > 50


@pytest.mark.parametrize(
    ("link", "source"),
    [
        ("docs/stores.html#options", "docs/stores.md"),
        ("benches/index.html", "benches/README.md"),
        ("examples/backfill.py.html", "examples/backfill.py"),
        ("LICENSE.html", "LICENSE"),
        ("docs/overlaps.svg", "docs/overlaps.svg"),
        ("docs/nothing.html", "docs/nothing.md"),
    ],
)
def test_an_address_is_that_of_a_file(link: str, source: str) -> None:
    assert source_of(SITE + link) == REPO / source
