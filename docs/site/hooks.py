"""Place the pages of the site as in the repository, so that relative links keep working.

    page     Markdown in docs/, in the root, and in the folders in `PAGES`
    picture  beside the pages of docs/
    code     a page for each linked file, with its content, and for each folder, with its files, which get pages too

mkdocs identifies a page by its path in the repository, so `../benches/README.md` in docs/stores.md resolves
unchanged. Only links to code change: from `x.py` to its page `x.py.md`, and from a folder to its `README.md`. A link
with a file name as its text, `[stores.md](stores.md)`, shows the title of the page instead, up to a colon. There is
no page for missing addresses: its links would begin at the root of a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import isclass
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs.site.entries import LINE as ENTRY
from docs.site.entries import MODULES

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("*.md", "docs/**/*.md", "benches/README.md", "tests/simulation/README.md")
ASSETS = ("docs/**/*.svg", "docs/**/*.png", "docs/site/*.css", "docs/site/*.js")
LINK = re.compile(r"(?<=\]\()[^)#:\s]+(?=[)#])")
NAMED = re.compile(r"\[(?P<text>[\w./-]+\.md)\]\((?P<link>[^)#:\s]+\.md)(?=[)#])")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)

SHOWN = (".py", ".toml", ".txt", ".sh", ".json")

WITH_ENTRIES = ("crdt_mor", *(f"crdt_mor.{name}" for name in (*MODULES, "cdc", "payloads", "testing")))
MADE_BY_USERS = {"Table", "MemoryStore", "LocalStore"}


def on_config(config: MkDocsConfig) -> None:
    config.theme.static_templates.discard("404.html")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Return the files of the site instead of docs/ alone; files of the theme stay."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    pages = list(_found(PAGES))
    for path in [*pages, *_found(ASSETS)]:
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    linked = {target for page in pages for target in _linked(page) if _is_code(target)}
    for code in sorted(linked.union(*map(_files_of, linked))):
        generated = File.generated(config, page_of(code), content=shown(code), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(generated)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Redirect the page's links to code, and add headings for its entries."""

    def to_page(link: re.Match[str]) -> str:
        target = target_of(page.file.src_uri, link[0])
        return link[0] + page_of(target).removeprefix(target)

    return ENTRY.sub(_with_heading, LINK.sub(to_page, titled(page.file.src_uri, markdown)))


def titled(page: str, markdown: str) -> str:
    """Replace link texts that are page names with the titles of these pages."""
    return NAMED.sub(lambda link: _titled(page, link), markdown)


def _titled(page: str, link: re.Match[str]) -> str:
    """Return the beginning of a link, up to its address, with the page's title if its text is the page's name."""
    target = target_of(page, link["link"])
    if not f"/{target}".endswith(f"/{link['text'].removeprefix('../')}") or not (ROOT / target).is_file():
        return link[0]
    title = TITLE.search((ROOT / target).read_text())
    return f"[{title[1].partition(': ')[0]}]({link['link']}" if title else link[0]


def _with_heading(entry: re.Match[str]) -> str:
    """Return a reference entry under its user-visible name, `Table.upsert`; values with their fields."""
    *_, owner, name = entry[1].split(".")
    heading = f"{owner}.{name}" if owner[0].isupper() else name
    options = [f'heading: "{heading}"', f'toc_label: "{heading}"', f"merge_init_into_class: {_has_fields(entry[1])}"]
    lines = [f"::: {entry[1]}", "    options:", *(f"      {option}" for option in options)]
    return "\n".join([*lines, entry[2].removeprefix("    options:\n")])


def _has_fields(path: str) -> bool:
    """Return True if users make objects of a class or use its fields. Methods make all other objects."""
    module, _, name = path.rpartition(".")
    found = getattr(import_module(module), name) if module in WITH_ENTRIES else None
    if not isclass(found) or issubclass(found, BaseException):
        return False
    if is_dataclass(found):
        return not any(field.name.startswith("_") for field in fields(found))
    return name in MADE_BY_USERS or module == "crdt_mor.testing"


def target_of(page: str, link: str) -> str:
    """Return the path in the repository that a link on a page points to."""
    return normpath((PurePosixPath(page).parent / link).as_posix())


def page_of(target: str) -> str:
    """Return the page of a file or a folder. Other paths stay, so that mkdocs reports them."""
    if (ROOT / target).is_dir():
        return f"{target}/README.md"
    return f"{target}.md" if _is_code(target) else target


def _found(patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def _linked(page: str) -> Iterator[str]:
    yield from (target_of(page, link) for link in LINK.findall((ROOT / page).read_text()))


def _is_code(target: str) -> bool:
    """Return True if a file or a folder needs a generated page."""
    path = ROOT / target
    if path.is_dir():
        return not (path / "README.md").exists()
    return path.is_file() and path.suffix not in (".md", ".svg", ".png")


def shown(code: str) -> str:
    """Return the content of a page of code."""
    path = ROOT / code
    if path.is_file():
        language = "python" if path.suffix == ".py" else "text"
        return f"# {path.name}\n\n`{code}`\n\n````{language}\n{path.read_text()}````\n"
    names = sorted(file.name for file in path.iterdir() if not file.name.startswith(("_", ".")))
    pages = {PurePosixPath(file).name for file in _files_of(code)}
    lines = [f"- [{name}]({name}.md)" if name in pages else f"- `{name}`" for name in names]
    return "\n".join([f"# {path.name}/", "", f"`{code}/`", "", *lines, ""])


def _files_of(code: str) -> list[str]:
    """Return the files in a folder that are shown with it: its code, without subfolders."""
    path = ROOT / code
    found = path.glob("[!_.]*.*") if path.is_dir() else ()
    return sorted(file.relative_to(ROOT).as_posix() for file in found if file.is_file() and file.suffix in SHOWN)
