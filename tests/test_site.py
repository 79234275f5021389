"""The site of the documentation: links lead where they lead in the repository, and nothing is from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs", reason="the site is built with the newest versions alone")
pytest.importorskip("griffe", reason="as above")

from docs.site import docstrings, hooks
from tests.addresses import SITE, of_package
from tests.browser import chromium, said, until

REPO = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("page", "link", "shown"),
    [
        ("docs/stores.md", "../benches/README.md", "benches/README.md"),
        ("docs/recipes.md", "../examples/backfill.py", "examples/backfill.py.md"),
        ("docs/recipes.md", "../examples", "examples/README.md"),
        ("ARCHITECTURE.md", "docs/design", "docs/design/README.md"),
        ("README.md", "docs/overlaps.svg", "docs/overlaps.svg"),
        ("README.md", "no/such/file.py", "no/such/file.py"),
    ],
)
def test_a_link_leads_to_the_page_that_shows_what_it_leads_to_in_the_repository(
    page: str, link: str, shown: str
) -> None:
    assert hooks.page_of(hooks.target_of(page, link)) == shown


@pytest.mark.parametrize(
    ("page", "markdown", "shown"),
    [
        ("docs/reading.md", "[stores.md](stores.md#many-writers)", "[Object stores](stores.md#many-writers)"),
        ("README.md", "[docs/stores.md](docs/stores.md)", "[Object stores](docs/stores.md)"),
        ("docs/reading.md", "[from-hudi.md](from-hudi.md)", "[Coming from Hudi](from-hudi.md)"),
        ("README.md", "[docs/reading.md](docs/stores.md)", "[docs/reading.md](docs/stores.md)"),
        ("README.md", "[no.md](docs/no.md)", "[no.md](docs/no.md)"),
        ("README.md", "[buckets](docs/stores.md)", "[buckets](docs/stores.md)"),
    ],
)
def test_a_link_that_is_the_name_of_a_page_shows_its_title(page: str, markdown: str, shown: str) -> None:
    assert hooks.titled(page, markdown) == shown


def test_a_folder_of_code_links_to_its_files() -> None:
    assert "- [film_payloads.py](film_payloads.py.md)\n" in hooks.shown("examples")


def test_lines_of_a_docstring_that_say_what_a_name_is_become_a_list() -> None:
    text = (
        "Read rows.\n\ncolumns: which. filter: an expression,\n    or a text.\nlimit, n: how many.\n"
        "It reads nothing: it is\nsealed.\n\nrows: columns of the result.\n\nid: what is read.\n"
    )
    assert docstrings.as_list(text).split("\n\n") == [
        "Read rows.",
        "- `columns`: which.\n- `filter`: an expression, or a text.\n- `limit`, `n`: how many.",
        "It reads nothing: it is sealed.",
        "- `rows`: columns of the result.",
        "<!-- another list -->",
        "- `id`: what is read.",
    ]


def test_sections_of_a_docstring_become_lists_prose_and_code() -> None:
    text = (
        "Read rows.\n\nArgs:\n    columns: which.\n    filter, where: an expression: one,\n        or a text.\n\n"
        "Returns:\n    The rows: sorted\n    by key.\n\nRaises:\n    InvalidInputError: no rows.\n\n"
        "Example:\n    >>> read(columns=1)\n\n    >>> read()\n"
    )
    assert docstrings.as_list("Returns:\n    id, key: the row\n        that is read.\n    rows: how many.") == (
        "**Returns**\n\n- `id`, `key`: the row that is read.\n- `rows`: how many."
    )
    assert docstrings.as_list(text).split("\n\n") == [
        "Read rows.",
        "**Parameters**",
        "- `columns`: which.\n- `filter`, `where`: an expression: one, or a text.",
        "**Returns**",
        "The rows: sorted by key.",
        "**Raises**",
        "- `InvalidInputError`: no rows.",
        "**Example**",
        "    >>> read(columns=1)",
        "    >>> read()",
    ]


def test_a_picture_in_a_docstring_stays_as_it_is() -> None:
    assert docstrings.as_list("Modes:\n\n    merged   one: a row\n    raw      two") == (
        "Modes:\n\n    merged   one: a row\n    raw      two"
    )


@pytest.mark.parametrize(
    ("name", "owner", "path"),
    [
        ("Table.create", "", "crdt_mor.Table.create"),
        ("upsert", "Table", "crdt_mor.Table.upsert"),
        ("maintenance.clean", "Table", "crdt_mor.Maintenance.clean"),
        ("crdt_mor.doctor", "", "crdt_mor.doctor"),
        ("Counter", "Table", "crdt_mor.payloads.Counter"),
        ("upsert", "", ""),
        ("Table.no_such_method", "", ""),
        ("requested_at", "Commit", ""),
    ],
)
def test_a_name_in_a_docstring_leads_to_what_is_public_alone(name: str, owner: str, path: str) -> None:
    assert docstrings.public_path(name, owner) == path


class Parsed(HTMLParser):
    """What a page links to and loads, and the places in it to which others can link."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag != "meta":
            self.loaded += [found[name] for name in ("src", "href") if name in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> dict[str, Parsed]:
    """The pages of the site by their paths."""
    return {page.relative_to(folder).as_posix(): Parsed(page.read_text()) for page in folder.rglob("*.html")}


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(site: dict[str, Parsed]) -> None:
    assert len(site) > 50
    loaded = {what for page in site.values() for what in page.loaded}
    assert not [what for what in loaded if urlsplit(what).netloc]


@pytest.mark.slow
def test_each_link_within_the_site_leads_to_a_page_and_a_place_in_it(site: dict[str, Parsed]) -> None:
    """mkdocs checks links that stand in Markdown; those that docstrings and the theme make are looked at here."""
    broken = [f"{path}: {link}" for path, page in site.items() for link in page.links if not leads(site, path, link)]
    assert not broken


@pytest.mark.slow
def test_the_readme_of_the_package_leads_to_pages_and_pictures_of_the_site(folder: Path) -> None:
    links = re.findall(rf"\]\(({SITE}[^)\s]+)\)", of_package())
    assert len(links) > 50
    assert [link for link in links if not (folder / link.removeprefix(SITE).partition("#")[0]).is_file()] == []


def leads(site: dict[str, Parsed], path: str, link: str) -> bool:
    """Whether a link of a page leads to a page and a place in it, or out of the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = hooks.target_of(path, unquote(parts.path)) if parts.path else path
    page = site.get("index.html" if target == "." else target)
    if page is None:
        return not target.endswith(".html")  # mkdocs has looked for other files
    place = unquote(parts.fragment)
    return not place or place in page.anchors or place.startswith("__")  # such are places of the theme's


@pytest.mark.slow
def test_the_search_finds_a_method_on_pages_that_are_opened_from_a_disk(folder: Path) -> None:
    results = "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
    with chromium(1400, 900) as browser:
        browser.get((folder / "docs" / "reading.html").as_uri())
        until(browser, lambda: browser.execute_script("return document.querySelector('.md-search__input')"))
        field = browser.find_element("css selector", ".md-search__input")
        field.click()
        field.send_keys("delete_partitions")
        until(browser, lambda: browser.execute_script(results))
        found = browser.execute_script(results)
        assert any("docs/reference/writing.html" in link for link in found), found
        assert said(browser) == []
