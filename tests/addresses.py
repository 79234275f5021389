"""Addresses of the documentation's site, and the files of the repository that they show."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from crdt_mor.errors import DOCS

REPO: Final = Path(__file__).parents[1]
PROJECT: Final[dict[str, Any]] = tomllib.loads((REPO / "pyproject.toml").read_text())
SITE: Final = DOCS.removesuffix("docs")


def source_of(address: str) -> Path:
    """The file of the repository that a page or a picture of the site shows."""
    path, _, _ = address.removeprefix(SITE).partition("#")
    if not path.endswith(".html"):
        return REPO / path
    shown = REPO / path.removesuffix(".html")
    return shown.with_name("README.md") if shown.name == "index" else shown if shown.exists() else REPO / f"{shown}.md"


def of_package() -> str:
    """The README as the package index shows it."""
    text = (REPO / "README.md").read_text()
    for one in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    return text
