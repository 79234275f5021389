"""Tables in memory, with simulated time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.store import MemoryStore, Store
from crdt_mor.testing import SimulatedEnvironment

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])


def table_of(schema: pa.Schema = SCHEMA, store: Store | None = None, **options: Any) -> mor.Table:
    opening = mor.Opening(store=store or MemoryStore(), environment=SimulatedEnvironment())
    key = options.pop("key", "id")
    return mor.Table.create("orders", schema, key=key, opening=opening, buckets=1, **options)


def rows(table: mor.Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
