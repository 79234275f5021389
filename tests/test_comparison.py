"""The scripts of the page that lays this package beside delta-rs run, and give the rows that stand below them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs/from-delta.md").read_text()
SECTIONS = {section.splitlines()[0]: section for section in PAGE.split("\n## ")[1:]}


def scripts(section: str) -> dict[str, tuple[str, str]]:
    """The scripts of a section, by "here" and "delta-rs", each with the answer that stands next below it."""
    found: dict[str, tuple[str, str]] = {}
    for block in re.finditer(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        answer = re.compile(r"^```text\n(.*?)\n```$", re.DOTALL | re.MULTILINE).search(section, block.end())
        assert answer is not None
        found["delta-rs" if "from deltalake" in block[1] else "here"] = block[1], answer[1]
    return found


def answered(script: str) -> str:
    """What the last line of a script is, after all lines before it."""
    *before, last = ast.parse(script).body
    assert isinstance(last, ast.Expr)
    names: dict[str, object] = {}
    exec(compile(ast.Module(before, []), "docs/from-delta.md", "exec"), names)
    return repr(eval(compile(ast.Expression(last.value), "docs/from-delta.md", "eval"), names))


def test_the_page_has_twelve_tasks_with_a_script_for_each_engine() -> None:
    assert len(SECTIONS) == 12
    assert all(scripts(section).keys() == {"here", "delta-rs"} for section in SECTIONS.values())
    listed = re.findall(r"^\| \[(.*?)\]\(#(.*?)\)", PAGE, re.MULTILINE)
    assert [text.lower() for text, _ in listed] == [title.lower() for title in SECTIONS]
    assert [anchor for _, anchor in listed] == [
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in SECTIONS
    ]


@pytest.mark.parametrize("title", SECTIONS)
def test_a_script_gives_the_rows_that_stand_below_it(
    title: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fast_path)
    script, rows = scripts(SECTIONS[title])["here"]
    assert answered(script) == rows


@pytest.mark.parametrize("title", SECTIONS)
def test_the_script_of_delta_rs_gives_the_rows_that_stand_below_it(
    title: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deltalake", reason="the extra `delta` is not installed")
    monkeypatch.chdir(fast_path)
    script, rows = scripts(SECTIONS[title])["delta-rs"]
    assert answered(script) == rows
