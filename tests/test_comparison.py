"""The scripts of the pages that lay this package beside another run, and give the rows that stand below them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor
from crdt_mor import Table
from crdt_mor.cli.main import app

DOCS = Path(__file__).parents[1] / "docs"
PACKAGES = {"from-delta.md": ("deltalake",), "from-iceberg.md": ("pyiceberg", "pyiceberg_core")}
"""The pages, each with the packages that its other scripts need."""

HERE, THERE = "here", "there"


class Page(NamedTuple):
    """A page in pieces. before: those in front of its tasks, with which each script of the other package begins."""

    name: str
    before: str
    tasks: list[str]
    sections: dict[str, str]


def page(name: str) -> Page:
    """Its tasks are those that its table links to; what other sections it has, it has no scripts in them."""
    head, *sections = (DOCS / name).read_text().split("\n## ")
    tasks = re.findall(r"^\| \[(.*?)\]\(#.*?\) \|", head, re.MULTILINE)
    return Page(name, "".join(blocks(head)), tasks, {section.splitlines()[0]: section for section in sections})


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


PAGES = [page(name) for name in PACKAGES]
SECTIONS = [(page, title) for page in PAGES for title, section in page.sections.items() if blocks(section)]
EACH = pytest.mark.parametrize(("page", "title"), SECTIONS, ids=lambda part: getattr(part, "name", part))


def scripts(section: str) -> dict[str, tuple[str, str]]:
    """The scripts of a section in their order, each with the answer that stands next below it."""
    found: dict[str, tuple[str, str]] = {}
    for block in re.finditer(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        answer = re.compile(r"^```text\n(.*?)\n```$", re.DOTALL | re.MULTILINE).search(section, block.end())
        assert answer is not None
        found[HERE if "import crdt_mor" in block[1] else THERE] = block[1], answer[1]
    return found


def answered(script: str, before: str = "") -> str:
    """What the last line of a script is, after all lines before it."""
    *lines, last = ast.parse(before + script).body
    assert isinstance(last, ast.Expr)
    names: dict[str, object] = {}
    exec(compile(ast.Module(lines, []), "docs/from-another.md", "exec"), names)
    return repr(eval(compile(ast.Expression(last.value), "docs/from-another.md", "eval"), names))


def require(page: Page) -> None:
    for package in PACKAGES[page.name]:
        pytest.importorskip(package, reason=f"{package}, which the extra `peers` has, is not installed")


def test_the_pages_have_as_many_tasks_as_the_readme_says() -> None:
    assert [(page.name, len(page.tasks)) for page in PAGES] == [("from-delta.md", 12), ("from-iceberg.md", 19)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_task_that_a_page_lists_has_a_section_with_a_script_for_each_package(page: Page) -> None:
    with_scripts = [title for title, section in page.sections.items() if blocks(section)]
    assert [task.lower() for task in page.tasks] == [title.lower() for title in with_scripts]
    assert all(scripts(page.sections[title]).keys() == {HERE, THERE} for title in with_scripts)
    anchors = re.findall(r"^\| \[.*?\]\(#(.*?)\)", (DOCS / page.name).read_text(), re.MULTILINE)
    assert anchors == [re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in with_scripts]


def test_scripts_take_from_the_package_what_its_import_gives() -> None:
    """Behind others in one process, a script finds modules that it has not imported itself."""
    ours = [scripts(page.sections[title])[HERE][0] for page, title in SECTIONS]
    used = {name for script in ours for name in re.findall(r"\bmor\.(\w+)", script)}
    assert not used - set(crdt_mor.__all__)


@pytest.fixture
def towns(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table `towns` of ours in the folder of the test."""
    monkeypatch.chdir(fast_path)
    Table.create("towns", pa.schema([("id", pa.int64())]), key="id")


COMMANDS = re.findall(
    r"^\| `(pyiceberg .*?)` \| (?:`crdt-mor (.*?)`|.*) \|$", PAGES[1].sections["On the command line"], re.MULTILINE
)


@pytest.mark.usefixtures("towns")
def test_our_commands_of_the_page_run() -> None:
    ours = [here for _, here in COMMANDS if here]
    assert len(ours) > 5
    for command in ours:
        assert CliRunner().invoke(app, command.split()).exit_code == 0, command


@pytest.mark.usefixtures("towns")
def test_the_commands_of_pyiceberg_run() -> None:
    console = pytest.importorskip("pyiceberg.cli.console", reason="the extra `peers` is not installed")
    from click.testing import CliRunner as Clicks
    from pyiceberg.catalog import load_catalog

    place = {"uri": "sqlite:///catalog.db", "warehouse": "warehouse"}
    catalog = load_catalog("default", **place)
    catalog.create_namespace("shop")
    catalog.create_table("shop.towns", schema=pa.schema([("id", pa.int64())]))
    where = [word for name, value in place.items() for word in (f"--{name}", value)]
    for command, _ in COMMANDS:
        done = Clicks().invoke(console.run, [*where, *command.split()[1:]])
        assert done.exit_code == 0, (command, done.output)


@pytest.mark.costly
@EACH
def test_a_script_gives_the_rows_that_stand_below_it(
    page: Page, title: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fast_path)
    found = scripts(page.sections[title])
    if next(iter(found)) == THERE:  # ours takes over what the other one has made
        require(page)
        answered(found[THERE][0], page.before)
    script, rows = found[HERE]
    assert answered(script) == rows


@EACH
def test_the_script_of_the_other_package_gives_the_rows_that_stand_below_it(
    page: Page, title: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(page)
    monkeypatch.chdir(fast_path)
    script, rows = scripts(page.sections[title])[THERE]
    assert answered(script, page.before) == rows
