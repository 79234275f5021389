"""The source of a partition function may change within its partition, in each kind of write."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, PartialUpdate, Table
from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.store import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore::crdt_mor.errors.PartitionNotInKeyWarning")

NOON = dt.datetime.combine(dt.date(2026, 1, 1), dt.time(12))
NIGHT = NOON - timedelta(hours=12)
MINUTE = timedelta(minutes=1)
MILLIS = pa.timestamp("ms")
SCHEMA = pa.schema([("id", pa.int64()), ("at", MILLIS), ("n", pa.int64()), ("m", pa.int64())])


def frame(*rows: tuple[int, dt.datetime | None, int | None, int | None]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def made(kind: pa.DataType = MILLIS, **given: Any) -> Table:
    schema = SCHEMA.set(1, pa.field("at", kind))
    by = [mor.day("at"), mor.bucket("id", 3)]
    return Table.create("t", schema, key="id", partition_by=by, opening=Opening(store=MemoryStore()), **given)


@pytest.mark.parametrize("nulls", ["value", "keep"])
def test_partial_rows_are_updated_in_each_way(nulls: Any) -> None:
    table = made(merge=PartialUpdate(nulls=nulls))
    table.append(frame((1, NOON, 1, 1), (2, None, 2, 2)))
    table.update({"n": 5}, where="id = 1")
    table.update({"at": pl.col("at") + MINUTE, "m": None}, where="id = 1")
    with table.transaction(columns=["n"]) as transaction:
        transaction.upsert(frame((2, None, 6, 0)).select(["id", "at", "n"]))
    rows = frame((2, None, 0, 7)).select(["id", "at", "m"])
    job = table.jobs.plan("upsert", rows.schema, columns=["m"])
    table.jobs.complete(job, [job.stage(rows, task=0)])
    assert sorted(table.to_polars().rows()) == [(1, NOON + MINUTE, 5, None), (2, None, 6, 7)]


def test_a_declared_write_may_change_a_source() -> None:
    """An update writes the source as it read it, so it waits for each write that may change the source."""
    table = made(merge=PartialUpdate())
    table.append(frame((1, NOON, 1, 1)))
    with table.transaction(columns=["m"]) as transaction:
        transaction.upsert(frame((1, NOON + MINUTE, 0, 2)).select(["id", "at", "m"]))
        with pytest.raises(EarlierWritePendingError):
            table.update({"n": 9}, where="n = 1", wait=timedelta(0))
    table.update({"n": 9}, where="n = 1", wait=timedelta(0))
    assert table.to_polars().rows() == [(1, NOON + MINUTE, 9, 2)]


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        (pa.timestamp("ms"), NOON + 30 * MINUTE),
        (pa.timestamp("us"), "2026-01-01 12:30:00"),
        (pa.timestamp("us", "Europe/Berlin"), (NOON + 30 * MINUTE).replace(tzinfo=dt.UTC)),
        (pa.timestamp("us", "UTC"), "2026-01-01 13:30:00+01:00"),
        (pa.date32(), "2026-01-01"),
    ],
    ids=str,
)
def test_rows_move_to_a_time_of_the_columns_type(kind: pa.DataType, to: object) -> None:
    table = made(kind)
    table.append(frame((1, None, 1, 1)).set_column(1, "at", pa.nulls(1, kind)))
    assert table.move(1, partition={"at": to}).updated == 1
    moved = table.to_arrow()["at"].cast(pa.timestamp("us", getattr(kind, "tz", None))).cast(pa.timestamp("us"))
    assert moved[0].as_py() in (NOON + 30 * MINUTE, NIGHT)
    assert table.move(1, partition={"at": to}).updated == 0


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        (pa.timestamp("us"), NOON.replace(tzinfo=dt.UTC)),
        (pa.timestamp("us", "UTC"), NOON),
        (pa.timestamp("us", "UTC"), "2026-01-01 12:00:00"),
        (pa.timestamp("ms"), NOON + timedelta(microseconds=1)),
        (pa.date32(), NOON),
    ],
    ids=str,
)
def test_a_move_to_another_type_of_time_is_refused(kind: pa.DataType, to: object) -> None:
    with pytest.raises(InvalidInputError, match=r"must fit its column's type\. column=at type=.* value="):
        made(kind).move(1, partition={"at": to})


def test_messages_name_the_users_columns() -> None:
    schema = pa.schema([("id", pa.int64()), ("na.me", pa.string()), ("x y", pa.float64())])

    def create(by: mor.PartitionFunction) -> Table:
        return Table.create("t", schema, key="id", partition_by=by, opening=Opening(store=MemoryStore()))

    with pytest.raises(InvalidInputError, match=r"bucket needs .*column=x y type=double"):
        create(mor.bucket("x y", 2))
    with pytest.raises(InvalidInputError, match=r"does not exist.*columns=\['id', 'na\.me', 'x y'\]"):
        create(mor.bucket("z z", 2))
    with pytest.raises(
        InvalidInputError, match=r"cannot read a directory .*column=truncate\(na\.me, 3\) row=0 value='a/b'"
    ):
        create(mor.truncate("na.me", 3)).append(pa.table({"id": [1], "na.me": ["a/bc"], "x y": [0.5]}))
