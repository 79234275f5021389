"""Shapes of tables whose columns were altered; imported after `overwrite_shapes`, whose list they continue."""

from __future__ import annotations

import pyarrow as pa

from crdt_mor import Table
from tests.interop.shapes import Maker, rows, shape


@shape()
def altered(make: Maker) -> Table:
    """default, columns renamed and dropped beside a straggler, a name used again, odd fields, compacted."""
    table = make.create()
    table.append(rows(range(10), 1))
    tx = make.begin(table)
    tx.upsert(rows([1, 2], 90))
    table.alter(rename={"n": "net weight"}, drop=["v"])
    make.end(tx)
    data = rows([3], 3).drop_columns("v").rename_columns(["id", "net weight"])
    table.upsert(data.append_column("v", pa.array([7])), schema_mode="merge")
    table.maintenance.compact()
    sold = pa.array([{"Total Sales": 8, "Größe": [{"@t": "x"}]}])
    table.upsert(data.append_column("v", pa.array([8])).append_column("sold in", sold), schema_mode="merge")
    return table


@shape()
def with_added_columns(make: Maker) -> Table:
    """default, columns added without rows, with a default in base files and logs, and written on."""
    table = make.create()
    table.upsert(rows(range(10), 1))
    table.maintenance.compact()
    table.upsert(rows([1, 20], 2))
    table.add_columns({"country": pa.string(), "tags": pa.list_(pa.string())}, default={"country": "DE"})
    table.upsert(rows([2, 30], 3))
    table.add_columns({"visits": pa.int64()}, default={"visits": 0}, comment={"visits": "since May"})
    return table
