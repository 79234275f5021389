"""One table of each kind of merge that Spark writes to, and batches for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from crdt_mor import PartialUpdate, Table
from crdt_mor.payloads import Counter, GrowOnlySet, LatestBy, MVRegister

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64()), ("s", pa.string())])
TABLES: dict[str, dict[str, Any]] = {
    "latest": {},
    "partitioned": {"partition_by": "day"},
    "composite key": {"key": ["id", "day"]},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "counter": {"merge": {"n": Counter()}},
    "latest by": {"merge": {("n", "s"): LatestBy("n")}},
    "register": {"schema": SCHEMA.set(3, pa.field("s", pa.list_(pa.string()))), "merge": {"s": MVRegister()}},
    "grow set": {"schema": SCHEMA.set(3, pa.field("s", pa.list_(pa.string()))), "merge": {"s": GrowOnlySet()}},
}


def make(path: Path, settings: dict[str, Any]) -> Table:
    return Table.create(path, **{"schema": SCHEMA, "key": "id", **settings})


def batch(schema: pa.Schema, seed: int, rows: int = 60) -> pa.Table:
    """Rows in which keys repeat."""
    texts = pa.array([f"s{i * seed}" for i in range(rows)])
    if schema.field("s").type != pa.string():
        texts = pa.array([[f"s{i * seed}"] for i in range(rows)])
    return pa.table(
        {
            "id": [i * seed % 37 for i in range(rows)],
            "day": [f"d{i * seed % 37 % 3}" for i in range(rows)],
            "n": [i * seed % 11 for i in range(rows)],
            "s": texts,
        }
    )
