"""One table of each kind of merge with a long history, and queries with what the embedded reader answers to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from crdt_mor import Table
from crdt_mor.payloads import Counter, GrowOnlySet, LatestBy, ORSet, PartialUpdate

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("region", pa.string()),
        ("n", pa.int64()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
TABLES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "counter": {"merge": {"n": Counter()}},
    "sets": {"merge": {"tags": GrowOnlySet(), "price": "last"}},
    "removable sets": {"merge": {"tags": ORSet()}},
    "together": {"merge": {("price", "n"): LatestBy("n")}},
    "partial": {"merge": PartialUpdate()},
    "partitioned": {"partition_by": "region", "buckets": 2},
}


def frame(numbers: range, add: int, region: str = "eu") -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": [f"k{i:02}" for i in numbers],
            "region": [region] * len(numbers),
            "n": [(i * 7 + add) % 50 for i in numbers],
            "price": [None if i % 5 == 0 else i / 8 + add for i in numbers],
            "tags": [[f"t{(i + add) % 4}"] for i in numbers],
        },
        schema_overrides={"price": pl.Float64},
    )


def written(path: Path, name: str) -> Table:
    """Loads, updates, deletes, a compaction beside a pending write, and what completes after it."""
    table = Table.create(path / "events", SCHEMA, key="id", **TABLES[name])
    table.upsert(frame(range(20), 0))
    table.upsert(frame(range(10, 30), 5, "us").drop(["price"] if name == "partial" else []))
    late = table.transaction()
    late.__enter__().upsert(frame(range(5, 12), 9))
    table.delete(frame(range(3), 0).select("id", "region", *(["n"] if name == "ordering" else [])))
    table.maintenance.compact()
    late.__exit__(None, None, None)
    table.upsert(frame(range(8, 14), 11))
    return table


QUERIES: dict[str, tuple[dict[str, Any], Callable[[Table], Any]]] = {
    "snapshot": ({}, lambda t: t.scan()),
    "meta": ({"meta": True, "columns": "id, n"}, lambda t: t.scan(meta=True).narrowed(columns=["id", "n"])),
    "as of a version": ({"asOf": 4}, lambda t: t.scan(as_of=4)),
    "filter": ({"filter": "n > 10"}, lambda t: t.scan(filter="n > 10")),
    "stable": ({"consistency": "stable"}, lambda t: t.scan(consistency="stable")),
    "read optimized": ({"consistency": "read_optimized"}, lambda t: t.scan(consistency="read_optimized")),
    "changes": ({"changes": "merged"}, lambda t: t.changes()),
    "increment": ({"since": 4, "columns": "n,id"}, lambda t: t.changes(4, columns=["n", "id"])),
    "images": ({"since": 4, "changes": "images"}, lambda t: t.changes(4, images=True)),
    "raw, bounded": ({"since": 2, "until": 8, "changes": "raw"}, lambda t: t.changes(2, until=8, raw=True)),
}
