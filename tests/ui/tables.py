"""Tables of every kind that the page shows: each with one difficulty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

import crdt_mor as mor
from tests.inside import store_of
from tests.simulated import Simulated
from tests.ui.story import shop

SCHEMA: Final = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])
COLUMNS: Final = 300
COMMITS: Final = 600
LONG: Final = "a_very_long_name_of_" * 6


def rows(*ids: int, day: str = "mon") -> pa.Table:
    return pa.table({"id": ids, "day": [day] * len(ids), "n": [1] * len(ids)}, schema=SCHEMA)


def empty() -> mor.Table:
    return Simulated().create(SCHEMA, key="id", buckets=2, name="empty")


def partitioned() -> mor.Table:
    """A table whose partitions and writers have long names."""
    table = Simulated().create(SCHEMA, key=["id", "day"], partition_by="day", buckets=1, name=LONG)
    for number in range(8):
        info = {"application": f"{LONG}{number}", "message": f"{LONG} {LONG}"}
        table.upsert(rows(number, number + 1, day=f"{LONG}{number % 3}"), commit_info=info)
    return table


def wide() -> mor.Table:
    """300 columns, one of them with a long name and a comment."""
    names = ["id", LONG, *(f"column_{number}" for number in range(COLUMNS - 2))]
    table = Simulated().create(pa.schema([(name, pa.int64()) for name in names]), key="id", buckets=1, name="wide")
    for step in range(3):
        table.upsert(pa.table({name: [step, step + 1] for name in names}))
    table.alter(comment={LONG: f"why {LONG}"})
    return table


def damaged() -> mor.Table:
    """A table whose files are gone."""
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1, name="damaged")
    for number in range(3):
        table.upsert(rows(number))
    for path in table.inspect.files()["path"].to_pylist():
        store_of(table).delete(path)
    return mor.Table("simulated", opening=mor.Opening(store=world.store, environment=world.environment))


def many() -> mor.Table:
    """More commits than the page shows."""
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=2, name="many")
    for number in range(COMMITS):
        world.environment.sleep(30)
        table.upsert(rows(number % 7), commit_info={"application": f"writer {number % 3}"})
    return table


TABLES: Final[Mapping[str, Callable[[], mor.Table]]] = {
    "empty": empty,
    "small": shop,
    "partitioned": partitioned,
    "wide": wide,
    "damaged": damaged,
    "many": many,
}
