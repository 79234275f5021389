"""Files that Hudi itself wrote: the tables of `tests/interop/hudi_tables`, and the rows that its reader returned."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "interop" / "hudi_tables"
MADE_BY_HUDI = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))
"""The names of the tables that Hudi made."""


@cache
def files_of(table: str) -> Mapping[str, bytes]:
    """The files of a table by their names below the folder of all tables."""
    with tarfile.open(FOLDER / f"{table}.tar.xz") as archive:
        return {entry.name: data.read() for entry in archive if (data := archive.extractfile(entry)) is not None}


def unpack(table: str, folder: Path) -> Path:
    """Write a table below a folder, and return its path."""
    for name, data in files_of(table).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / table


def rows_of(table: str) -> list[object]:
    """The rows that Hudi's Spark reader returned, spelled by `plain`."""
    return list(json.loads((FOLDER / f"{table}.json").read_text(encoding="utf-8")))


def hudi_files(pattern: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of every non-empty file whose name matches."""
    for table in MADE_BY_HUDI:
        for name, data in files_of(table).items():
            if data and re.search(pattern, name):
                yield name, data


def hudi_properties() -> dict[str, bytes]:
    """`hoodie.properties` of the tables that Hudi made, by table."""
    return {table: files_of(table)[f"{table}/.hoodie/hoodie.properties"] for table in MADE_BY_HUDI}
