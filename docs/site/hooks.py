"""The pages of the site lie as the files lie in the repository, so that links between them lead where they lead there.

    page     Markdown: of docs/, of the root, and wherever `PAGES` says
    picture  beside the pages of docs/
    code     a page for each file that some page links to, with what it contains, and for each folder, with its files

mkdocs knows a page by its path in the repository, so that `../benches/README.md` in docs/stores.md is found as it
stands. Links to code alone are changed: from `x.py` to its page `x.py.md`, and from a folder to its `README.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("*.md", "docs/**/*.md", "benches/README.md", "tests/simulation/README.md")
ASSETS = ("docs/**/*.svg", "docs/**/*.png", "docs/site/*.css")
LINK = re.compile(r"(?<=\]\()[^)#:\s]+(?=[)#])")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The files of the site instead of those of docs/ alone; those of the theme stay."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    pages = list(_found(PAGES))
    for path in [*pages, *_found(ASSETS)]:
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    for code in sorted({target for page in pages for target in _linked(page) if _is_code(target)}):
        generated = File.generated(config, page_of(code), content=_shown(code), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(generated)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """The page with links to pages of code, where it has links to code."""

    def to_page(link: re.Match[str]) -> str:
        target = target_of(page.file.src_uri, link[0])
        return link[0] + page_of(target).removeprefix(target)

    return LINK.sub(to_page, markdown)


def target_of(page: str, link: str) -> str:
    """The path in the repository that a link on a page leads to."""
    return normpath((PurePosixPath(page).parent / link).as_posix())


def page_of(target: str) -> str:
    """The page that shows a file or a folder; what is no file of the repository stays, for mkdocs to complain of."""
    if (ROOT / target).is_dir():
        return f"{target}/README.md"
    return f"{target}.md" if _is_code(target) else target


def _found(patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def _linked(page: str) -> Iterator[str]:
    yield from (target_of(page, link) for link in LINK.findall((ROOT / page).read_text()))


def _is_code(target: str) -> bool:
    """Whether a file or a folder has no page of its own, so that one is made of it."""
    path = ROOT / target
    if path.is_dir():
        return not (path / "README.md").exists()
    return path.is_file() and path.suffix not in (".md", ".svg", ".png")


def _shown(code: str) -> str:
    """What a page of code shows."""
    path = ROOT / code
    if path.is_file():
        return f"# {path.name}\n\n`{code}`\n\n````python\n{path.read_text()}````\n"
    names = sorted(file.name for file in path.iterdir() if not file.name.startswith(("_", ".")))
    return "\n".join([f"# {path.name}/", "", *(f"- `{code}/{name}`" for name in names), ""])
