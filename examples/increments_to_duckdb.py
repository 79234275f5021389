"""A copy in DuckDB follows a table: only what changed is copied, and a crash loses nothing and repeats nothing.

    python examples/increments_to_duckdb.py FOLDER

The checkpoint, which says how far the copy has got, is kept in DuckDB and moves in the same transaction as the rows.
"""

import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("sku", pa.string()), ("stock", pa.int64())])


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """The copy, and one row that says how far it has got."""
    copy = duckdb.connect(str(path))
    copy.sql("create table if not exists stock (sku varchar primary key, stock bigint)")
    copy.sql("create table if not exists progress (source varchar primary key, checkpoint varchar)")
    return copy


def copy_changes(table: mor.Table, copy: duckdb.DuckDBPyConnection, *, crash: bool = False) -> int:
    """Bring the copy up to date; the number of changed rows."""
    done = copy.execute("select checkpoint from progress where source = 'stock'").fetchone()
    changes = table.changes(since=done[0] if done else None)
    rows = changes.to_arrow()
    copy.begin()
    try:
        copy.register("changed", rows)
        copy.execute("delete from stock where sku in (select sku from changed)")
        copy.execute("insert into stock select sku, stock from changed where _change_type = 'upsert'")
        if crash:
            raise RuntimeError("killed before the transaction's end")
        copy.execute("insert or replace into progress values ('stock', ?)", [changes.checkpoint])
        copy.commit()
    except BaseException:
        copy.rollback()
        raise
    finally:
        copy.unregister("changed")
    return rows.num_rows


def main(folder: str) -> None:
    table = mor.Table.create(str(Path(folder, "stock")), SCHEMA, key="sku")
    copy = connect(Path(folder, "copy.duckdb"))
    table.upsert(pl.DataFrame({"sku": ["tea", "mate", "milk"], "stock": [5, 7, 9]}))
    print("first copy:", copy_changes(table, copy), "rows")

    table.upsert(pl.DataFrame({"sku": ["tea", "rice"], "stock": [4, 1]}))
    table.delete(keys=["mate"])
    table.maintenance.compact()  # a compaction is no change
    try:
        copy_changes(table, copy, crash=True)
    except RuntimeError as error:
        print("second copy:", error)
    print("second copy, again:", copy_changes(table, copy), "rows")
    print("third copy:", copy_changes(table, copy), "rows")

    copied = copy.sql("select * from stock order by sku").fetchall()
    print(copied)
    assert copied == sorted(table.scan().to_polars().rows()) == [("milk", 9), ("rice", 1), ("tea", 4)]
    copy.close()


if __name__ == "__main__":
    main(sys.argv[1])
