"""What is asked of archived tables: their rows, as we and as hudi-rs see them, and their directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.model.names import TimelineFileName

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
TIMELINE = ".hoodie/timeline"


def rows(table: mor.Table, **options: Any) -> list[tuple[str, int]]:
    return sorted(table.scan(**options).to_polars().select("id", "n").rows())


def hudis(path: Path) -> list[tuple[str, int]]:
    batches = hudi.HudiTableBuilder.from_base_uri(str(path)).build().read(hudi.HudiReadOptions())
    return sorted((row["id"], row["n"]) for batch in batches for row in batch.to_pylist())


def active(path: Path) -> list[TimelineFileName]:
    names = (TimelineFileName.parse(file.name) for file in (path / TIMELINE).iterdir())
    return sorted((name for name in names if name), key=str)
