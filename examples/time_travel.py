"""A table as it was, and what changed between two moments.

    python examples/time_travel.py FOLDER

A commit, a version or a time names a moment. What a moment shows never changes: neither later commits nor compactions
touch it.
"""

import sys
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("account", pa.string()), ("balance", pa.int64())])


def main(folder: str) -> None:
    table = mor.Table.create(str(Path(folder, "accounts")), SCHEMA, key="account")
    opened = table.upsert(pl.DataFrame({"account": ["ann", "bob"], "balance": [100, 50]}))
    table.upsert(pl.DataFrame({"account": ["ann", "eve"], "balance": [70, 30]}))
    closed = table.delete(keys=["bob"])
    table.upsert(pl.DataFrame({"account": ["ann"], "balance": [0]}))
    table.maintenance.compact()

    # A time is 17 digits as a commit has them, a datetime, a date, ISO text ("2026-01-31T12:00:00Z"), or "now".
    moments = {"a commit": opened, "a version": closed.version, "a time": closed.completed_at, "now": "now"}
    for name, as_of in moments.items():
        print(f"as of {name}:", sorted(table.scan(as_of=as_of).to_polars().rows()))
    assert sorted(table.scan(as_of=opened).to_polars().rows()) == [("ann", 100), ("bob", 50)]
    assert sorted(table.scan(as_of=closed.version).to_polars().rows()) == [("ann", 70), ("eve", 30)]
    assert sorted(table.scan(as_of=closed.completed_at).to_polars().rows()) == [("ann", 70), ("eve", 30)]
    assert sorted(table.scan(as_of="now").to_polars().rows()) == [("ann", 0), ("eve", 30)]

    difference = table.diff(opened, closed).to_polars().sort("account", "balance", descending=[False, True])
    print(difference)
    assert difference.rows() == [
        ("ann", 100, "update_preimage"),
        ("ann", 70, "update_postimage"),
        ("bob", 50, "delete"),
        ("eve", 30, "insert"),
    ]


if __name__ == "__main__":
    main(sys.argv[1])
