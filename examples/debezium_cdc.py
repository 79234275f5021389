"""Change events of Debezium become a table: creates, updates, deletes, late events, and repeated ones.

    python examples/debezium_cdc.py FOLDER

Each topic-partition counts once, whatever is delivered again. The table's ordering column is the position in the
database's log, so a late event of another partition changes nothing.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.cdc import apply

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("lsn", pa.int64())])


def record(partition: int, offset: int, op: str, lsn: int, id: int, name: str = "", city: str = "") -> dict:
    """A record of Kafka, with an envelope as Debezium's JSON converter writes it, without its schema."""
    row = {"id": id, "name": name, "city": city}
    before, after = (row, None) if op == "d" else (None, row)
    source = {"schema": "shop", "table": "customers", "lsn": lsn, "ts_ms": 0}
    envelope = {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1}
    return {"topic": "customers", "partition": partition, "offset": offset, "key": None, "value": json.dumps(envelope)}


def main(folder: str) -> None:
    table = mor.Table.create(str(Path(folder, "customers")), SCHEMA, key="id", ordering="lsn")
    snapshot = [record(0, 0, "r", 100, 1, "Ann", "Oslo"), record(0, 1, "r", 100, 2, "Bob", "Rome")]
    changes = [
        record(0, 2, "u", 120, 1, "Ann", "Lyon"), record(0, 3, "u", 130, 1, "Ann", "Bern"),
        record(0, 4, "d", 140, 2), record(0, 5, "c", 150, 4, "Dan", "Kyiv"),
    ]  # fmt: skip
    late = [record(1, 0, "u", 135, 2, "Bob", "Nice")]  # older than the delete of 2

    for records in (snapshot, changes, snapshot + changes, late):
        done = apply(table, records)
        print(f"{done.rows} rows, {done.deletes} deletes, {done.skipped} skipped; commit the offsets {done.positions}")
    table.maintenance.compact()
    customers = table.scan(columns=["id", "name", "city"]).to_polars().sort("id")
    print(customers)
    assert customers.rows() == [(1, "Ann", "Bern"), (4, "Dan", "Kyiv")]


if __name__ == "__main__":
    main(sys.argv[1])
