"""Change events of Debezium become a table: creates, updates, deletes, out of order and delivered twice.

    python examples/debezium_cdc.py FOLDER

The table's ordering column is the log position (`lsn`) of the source, so the newest change of a row wins, whatever
order the events come in; a delete has its place in that order, too. A token makes each batch count once.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("lsn", pa.int64())])


def event(op: str, lsn: int, id: int, name: str = "", city: str = "") -> str:
    """An envelope as Debezium's JSON converter writes it, without its schema."""
    row = {"id": id, "name": name, "city": city}
    before, after = (row, None) if op == "d" else (None, row)
    return json.dumps({"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": 0}, "ts_ms": 1})


def newest(messages: list[str | None]) -> list[dict]:
    """The last event of each row, by lsn. A Kafka tombstone (no value) follows a delete and says nothing new."""
    last: dict[int, dict] = {}
    for envelope in (json.loads(message) for message in messages if message is not None):
        row = envelope["before"] if envelope["op"] == "d" else envelope["after"]
        found = {**row, "lsn": envelope["source"]["lsn"], "deleted": envelope["op"] == "d"}
        if row["id"] not in last or last[row["id"]]["lsn"] < found["lsn"]:
            last[row["id"]] = found
    return list(last.values())


def consume(table: mor.Table, partition: str, offset: int, messages: list[str | None]) -> str:
    """Write the messages of one topic-partition up to `offset` in one commit; only then acknowledge the offset."""
    rows = newest(messages)
    changed = pa.Table.from_pylist([row for row in rows if not row["deleted"]], SCHEMA)
    deleted = pa.Table.from_pylist([row for row in rows if row["deleted"]], SCHEMA).select(["id", "lsn"])
    try:
        with table.transaction(token=(partition, offset)) as tx:
            tx.upsert(changed)  # create (c), update (u) and snapshot read (r) are all upserts
            tx.delete(deleted)
    except mor.TokenOrderError:
        return "older than what is written"
    return "repeated" if tx.commit.repeated else "written"


def main(folder: str) -> None:
    table = mor.Table.create(str(Path(folder, "customers")), SCHEMA, key="id", ordering="lsn")
    snapshot = [event("r", 100, 1, "Ann", "Oslo"), event("r", 100, 2, "Bob", "Rome"), event("r", 100, 3, "Eve", "Bonn")]
    changes = [
        event("u", 130, 1, "Ann", "Bern"), event("u", 120, 1, "Ann", "Lyon"),  # out of order
        event("d", 140, 2), None,                                              # a delete and its tombstone
        event("c", 150, 4, "Dan", "Kyiv"), event("d", 160, 4), event("c", 170, 4, "Dan", "Riga"),
    ]  # fmt: skip
    late = [event("u", 135, 2, "Bob", "Nice"), event("d", 180, 3)]  # the update of 2 is older than its delete

    for partition, offset, messages in [
        ("shop.customers-0", 2, snapshot),
        ("shop.customers-0", 9, changes),
        ("shop.customers-0", 9, changes),  # delivered again
        ("shop.customers-0", 2, snapshot),  # the consumer was reset
        ("shop.customers-1", 1, late),
    ]:
        print(f"{partition} up to {offset}: {consume(table, partition, offset, messages)}")
    table.maintenance.compact()
    customers = table.scan(columns=["id", "name", "city"]).to_polars().sort("id")
    print(customers)
    assert customers.rows() == [(1, "Ann", "Bern"), (4, "Dan", "Riga")]
    consume(table, "shop.customers-1", 2, [event("u", 139, 2, "Bob", "Pisa")])  # the delete outlives the compaction
    assert table.scan().to_polars().height == 2


if __name__ == "__main__":
    main(sys.argv[1])
