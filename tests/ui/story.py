"""A table with a bit of everything that its page shows: a shop, an hour and a half of simulated time, always the same.

An ingest writes every three minutes and prices come late beside it, so that both write some keys at once. Functions
write in groups. A backfill is under way, and a job has been silent for long. Two compactions ran, and a third is due.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.payloads import Counter
from crdt_mor.write.open_write import OpenWrite
from tests.posting import in_a_crowd, post
from tests.simulated import Simulated

SCHEMA: Final = pa.schema([("id", pa.string()), ("price", pa.float64()), ("views", pa.int64()), ("note", pa.string())])
ITEMS: Final = 400
STEPS: Final = 30
MINUTES: Final = 3


def shop() -> mor.Table:
    """The table at the end of the story, with two writes that are under way."""
    world = Simulated()
    merge, check = {"views": Counter()}, {"positive": "price >= 0"}
    table = world.create(SCHEMA, key="id", buckets=4, merge=merge, rules=mor.Rules(check=check), name="shop")
    for step in range(STEPS):
        _step(world, table, step)
    table.maintenance.savepoint("before-sale")
    _dead(_begun(table, "report", "nightly report"))
    world.environment.sleep(400)
    _begun(table, "backfill", "prices of May")
    world.environment.sleep(40)
    return table


def items(step: int, count: int, price: float, views: int) -> pa.Table:
    """So many items, the first of which depends on the step."""
    ids = [f"item-{(step * 37 + i) % ITEMS:03}" for i in range(count)]
    columns = {"id": ids, "price": [price] * count, "views": [views] * count, "note": [f"step {step}"] * count}
    return pa.table(columns, schema=SCHEMA)


def _step(world: Simulated, table: mor.Table, step: int) -> None:
    late = table.transaction(commit_info={"application": "prices", "message": f"list {step}"})
    with late:
        world.environment.sleep(20)
        with table.transaction(commit_info={"application": "ingest"}) as ingest:
            ingest.upsert(items(step, 60, 1.0 + step, 1))
            world.environment.sleep(70)
        late.upsert(items(step, 8, 2.5 + step, 0))
        world.environment.sleep(45)
    if step % 4 == 1:
        _group(table, step)
    if step in (9, 19):
        table.maintenance.compact()
    world.environment.sleep(MINUTES * 60 - 135)


def _group(table: mor.Table, step: int) -> None:
    """Three functions post a row each, and a fourth commits all of them."""
    for number in range(3):
        post(table, items(step + number, 1, 3.0, 1), info={"application": "functions"})
    in_a_crowd(table).upsert(items(step + 3, 1, 3.0, 1), commit_info={"application": "functions"})


def _begun(table: mor.Table, application: str, message: str) -> mor.Transaction:
    """A write that has begun, and that nobody ends."""
    write = table.transaction(commit_info={"application": application, "message": message})
    return write.__enter__()


def _dead(write: mor.Transaction) -> None:
    """The process of a write is gone: nothing is heard of it any more."""
    assert isinstance(write._write, OpenWrite)
    write._write._alive.close()
