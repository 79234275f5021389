"""A small table in which every kind of object is there, to be damaged in one place."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from crdt_mor import Opening, Table
from crdt_mor.payloads import Counter, ORSet
from crdt_mor.results import Finding, Verification
from crdt_mor.testing import SimulatedEnvironment

SCHEMA = {"id": pl.String, "n": pl.Int64, "price": pl.Float64, "tags": pl.List(pl.String)}
START_MS = 1_700_000_000_000
_OPENED = count()
"""How often a table was opened, as no two processes make one nonce."""


def rows(first: int, count: int = 40) -> pl.DataFrame:
    keys = range(first, first + count)
    return pl.DataFrame({
        "id": [f"k{key:03d}" for key in keys],
        "n": [1] * count,
        "price": [key * 1.37 for key in keys],
        "tags": [{"add": ["a"], "remove": []}] * count,
    })  # fmt: skip


def opened(folder: Path, now_ms: int = START_MS + 60_000) -> Table:
    """The table, by a clock that stands still."""
    return Table(folder, opening=Opening(environment=SimulatedEnvironment(now_ms, f"opened{next(_OPENED)}.")))


def made(folder: Path, now_ms: int = START_MS) -> Path:
    """A table with an old and a new base file in each of two file groups, and logs of rows and of deletes above them.

    Each key has an update after its first write, so that no state is left out.
    """
    merge = {"n": Counter(), "tags": ORSet()}
    environment = SimulatedEnvironment(now_ms)
    table = Table.create(folder, SCHEMA, key="id", buckets=2, merge=merge, opening=Opening(environment=environment))
    table.upsert(rows(0))
    with table.transaction() as held:
        held.upsert(rows(100, 2))
        table.maintenance.compact()
        table.upsert(rows(20))
        table.maintenance.compact()
    table.upsert(rows(30))
    table.delete(keys=[f"k{key:03d}" for key in range(30, 40)])
    return folder


def verified(folder: Path, **asked: Any) -> Verification:
    return opened(folder).verify(**asked)


def only(folder: Path) -> Finding:
    """The one finding of a table that is damaged in one place."""
    found = verified(folder)
    assert not found.is_sound
    (finding,) = found.findings
    assert finding.means
    assert finding.advice
    return finding


def bases(folder: Path, bucket: int = 0) -> list[Path]:
    return sorted(folder.glob(f"{bucket:08d}*.parquet"), key=lambda path: path.name.rpartition("_")[2])


def logs(folder: Path, bucket: int = 0) -> list[Path]:
    """The logs of commits, without carries, in the order of their requested times."""
    carried = {base.name.rpartition("_")[2].partition(".")[0] for base in bases(folder, bucket)}
    found = sorted(folder.glob(f".{bucket:08d}*.log.*"))
    return [log for log in found if log.name.partition("_")[2].partition(".")[0] not in carried]


def flipped(file: Path, at: int) -> None:
    """Change one bit of a file."""
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def newest(folder: Path) -> Path:
    """The newest version of the timeline."""
    return max((folder / ".hoodie/.crdt_mor/timeline").iterdir())


def edited(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The table with another newest version."""
    path = newest(folder)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, separators=(",", ":")))
    return folder


def at_work(folder: Path) -> Path:
    """The table, as it is made, with one more event, so that Hudi is told for sure of all others."""
    table = opened(folder)
    table.set_properties({"note": f"after {table.version}"})
    return folder
