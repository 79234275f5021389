"""The English of product and documentation stays as plain as that of model projects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.prose import texts

REPO = Path(__file__).parents[1]
PRODUCT = [REPO / "crdt_mor", REPO / "readers", REPO / "payloads"]
PAGES = [REPO / name for name in ("docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]

LIMITS = {
    "what": 1.0, "those": 0.8, "whose": 0.8, "whoever": 0.1, "which": 8.0, "that": 16.0, "one": 6.0, "has": 4.0,
    "where": 3.0, "it": 11.0,
}  # fmt: skip
"""Uses per 1,000 words, a little above the highest rate of polars, pyarrow, deltalake, lance, pyspark, hypothesis,
obstore, pydantic, httpx, fsspec and duckdb. A rate over its limit is a symptom: name things with nouns."""

DOCSTRING_WORDS = 112_000
"""Words of docstrings and comments together. The help of the command line stands in docstrings."""


def counted(paths: Sequence[Path]) -> dict[str, Counter[str]]:
    """The uses of each word, by kind of text."""
    found: dict[str, Counter[str]] = {}
    for text in texts(paths):
        found.setdefault(text.kind, Counter()).update(text.words)
    return found


def over(words: Counter[str]) -> dict[str, float]:
    rates = {word: 1000 * words[word] / words.total() for word in LIMITS}
    return {word: round(rate, 1) for word, rate in rates.items() if rate > LIMITS[word]}


def test_prose_of_the_product_is_plain_and_short() -> None:
    found = counted(PRODUCT)
    assert {kind: over(words) for kind, words in found.items()} == {"docstring": {}, "comment": {}, "message": {}}
    assert found["docstring"].total() + found["comment"].total() < DOCSTRING_WORDS


def test_prose_of_the_pages_is_plain() -> None:
    assert over(counted(PAGES)["markdown"]) == {}


@pytest.mark.parametrize(("name", "most"), [("README.md", 1_800), ("CHANGELOG.md", 1_050), ("docs", 66_000)])
def test_prose_pages_are_short(name: str, most: int) -> None:
    """Words with tables and code; docs/ without the design and the bytes of the format."""
    path = REPO / name
    pages = [path] if path.is_file() else sorted(path.rglob("*.md"))
    kept = [page for page in pages if page.parent.name != "design" and page.name != "format.md"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in kept) < most


def test_texts_of_each_kind_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""What it is."""\n\nX = f"say {1} what it is to be of one"  # which one\n')
    (tmp_path / "a.md").write_text("# Those\n\nWhat it\nhas.\n\n```\nwhat\n```\n\n| what |\n")
    assert [(text.kind, text.line, text.text) for text in texts([tmp_path])] == [
        ("markdown", 3, "What it has."),
        ("docstring", 1, "What it is."),
        ("message", 3, "say  …  what it is to be of one"),
        ("comment", 3, "which one"),
    ]


def test_a_word_over_its_limit_is_found() -> None:
    assert over(Counter({"what": 2, "commit": 998})) == {"what": 2.0}
    assert over(Counter({"what": 1, "commit": 999})) == {}
