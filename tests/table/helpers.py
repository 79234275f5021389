"""A schema of every day, rows in and rows out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from crdt_mor import Table

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("n", pa.int64()), ("price", pa.float64())])
Make = Callable[..., Table]
Row = tuple[object, ...]


def frame(*rows: Row) -> pa.Table:
    """Rows of (id, region, n, price), the last ones optional."""
    full = [(*row, *(None,) * (4 - len(row))) for row in rows]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in full], SCHEMA)


def rows(table: Table, *columns: str, **scan: Any) -> list[Row]:
    """The table's rows, sorted."""
    found = table.scan(columns=list(columns) or None, **scan).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def files(path: str | Path) -> dict[str, bytes]:
    """Everything below a folder, by path; without what a look alone leaves: temporary files, the store's clock."""
    found = {str(p.relative_to(path)): p.read_bytes() for p in Path(path).rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if not name.startswith(".hoodie/.temp/")}


def data_files(path: str | Path) -> set[str]:
    """The files of rows and deletes."""
    return {name for name in files(path) if not name.startswith(".hoodie") and "partition_metadata" not in name}
