"""A mirrored table, and an engine that reads it: values without an import of crdt_mor, as engines run elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.engines.judging import Change, as_is

MIRRORS = {
    "iceberg": "plain",
    "iceberg-v3": "other",
    "delta": "plain",
    "delta-rewrite": "other",
}
"""The set of tables that has each mirror: `mirrors.SETS`."""

ICEBERG = ("iceberg", "iceberg-v3")
DELTA = ("delta", "delta-rewrite")


@dataclass(frozen=True)
class Mirrored:
    """A shape whose mirrors engines read."""

    shape: str
    root: Path
    where: str

    @property
    def entry(self) -> str:
        """The name in catalogs."""
        return f"{self.root.parents[1].name}.{self.shape}"

    @property
    def metadata(self) -> Path:
        """The newest metadata file of Iceberg."""
        newest = (self.root / "metadata" / "version-hint.text").read_text().strip()
        return self.root / "metadata" / f"v{newest}.metadata.json"

    def expected(self, *, filtered: bool) -> pa.Table:
        """The rows of `scan()`, whole or filtered by `where`."""
        with pa.OSFile(str(self.root.parent / f"{'some' if filtered else 'all'}.arrow")) as file:
            return pa.ipc.open_file(file).read_all()


def built(folder: Path, mirror: str) -> list[Mirrored]:
    """The shapes that have this mirror, in the order of their building."""
    found = sorted((folder / MIRRORS[mirror]).glob("*/shape.json"), key=lambda path: path.stat().st_mtime_ns)
    return [Mirrored(p.parent.name, p.parent / "table", json.loads(p.read_text())["where"]) for p in found]


Read = Callable[[Mirrored, str | None], pa.Table]


@dataclass(frozen=True)
class Engine:
    """A reader of mirrors: `package` names its version; `change` replaces values that the engine cannot show."""

    name: str
    mirrors: tuple[str, ...]
    package: str
    read: Read
    change: Change = as_is


def query(source: str, where: str | None) -> str:
    """The statement that reads a source, whole or filtered."""
    return f"select * from {source}" + (f" where {where}" if where else "")
