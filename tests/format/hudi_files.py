"""Files that Hudi itself wrote, straight from the zips beside the repository; nothing where there are none."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("CRDT_MOR_SHARED", Path(__file__).parents[2].parent / "shared")) / "hudi-tables"
MADE_BY_HUDI = sorted(path.stem for path in FOLDER.glob("*.zip"))
"""The names of the tables that Hudi made."""

needs_hudi_files = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no tables made by Hudi in {FOLDER}")


@cache
def _members() -> tuple[tuple[str, bytes], ...]:
    found = []
    for archive in sorted(FOLDER.glob("*.zip")):
        with zipfile.ZipFile(archive) as zipped:
            names = (name for name in zipped.namelist() if not name.startswith("__MACOSX") and not name.endswith("/"))
            found += [(name, zipped.read(name)) for name in names]
    return tuple(found)


def hudi_files(pattern: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of every non-empty file whose name matches."""
    for name, data in _members():
        if data and re.search(pattern, name):
            yield name, data


def hudi_properties() -> dict[str, bytes]:
    """`hoodie.properties` of the tables that Hudi made, by table."""
    found = {}
    for path in sorted(FOLDER.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            name = next(
                n for n in archive.namelist() if n.endswith(".hoodie/hoodie.properties") and "/metadata/" not in n
            )
            found[path.stem] = archive.read(name)
    if not found:
        pytest.skip("the tables that Hudi made are not here; set CRDT_MOR_SHARED")
    return found
