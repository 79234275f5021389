"""Tables of every shape that a mirror shows, each built by a function of a folder and of `publish`.

A builder calls `publish(table)` between its writes, so the last mirror is made in several refreshes. Every table has a
column `id`; `where` is the condition of the filtered read. `python -m tests.engines.shapes FOLDER` builds all.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.payloads import Counter, Max, ORSet

Publish = Callable[[mor.Table], None]
Builder = Callable[[Path, Publish], mor.Table]

UTC = dt.UTC
START = dt.datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shape:
    """A table that engines read: whole, and filtered by `where`."""

    name: str
    build: Builder
    where: str = "id >= 20 and id < 60"


def frame(schema: pa.Schema, ids: Iterable[int], row: Callable[[int], Sequence[Any]]) -> pa.Table:
    """Rows of these ids; `row` gives the values of the other columns."""
    return pa.Table.from_pylist([dict(zip(schema.names, (i, *row(i)), strict=True)) for i in ids], schema=schema)


def partitions(folder: Path, publish: Publish) -> mor.Table:
    """Two levels of partitions; values with spaces, quotes and dots, an empty one, and null."""
    names = ("us", "ü p+1", 'it\'s "q"', "..", "", "50%", "a=b", None)
    schema = pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.date32()), ("n", pa.int64())])

    def rows(ids: Iterable[int], n: int) -> pa.Table:
        return frame(schema, ids, lambda i: (names[i % 8], dt.date(1969, 12, 31) + dt.timedelta(days=i % 2), n))

    table = mor.Table.create(folder / "table", schema, key="id", partition_by=["region", "day"], buckets=1)
    table.upsert(rows(range(80), 0))
    table.maintenance.compact()
    publish(table)
    table.upsert(rows(range(70, 90), 1))
    table.delete(rows([1, 7, 75], 0).select(["id", "region", "day"]))
    return table


def columns(folder: Path, publish: Publish) -> mor.Table:
    """A column renamed twice, one added, one dropped and added anew with another type; a name in capitals."""
    schema = pa.schema([("id", pa.int64()), ("label", pa.string()), ("size", pa.int64()), ("Large", pa.int32())])
    table = mor.Table.create(folder / "table", schema, key="id", buckets=2)
    table.upsert(frame(schema, range(60), lambda i: (f"first {i}", i, i * 2)))
    table.maintenance.compact()
    publish(table)
    table.alter(rename={"label": "caption"})
    publish(table)
    table.alter(rename={"caption": "label2"}, drop=["size"])
    added = pa.schema([("id", pa.int64()), ("label2", pa.string()), ("Large", pa.int32()), ("extra", pa.float64())])
    table.upsert(frame(added, range(50, 80), lambda i: (f"second {i}", None, i / 2)), schema_mode="merge")
    publish(table)
    again = added.append(pa.field("size", pa.string()))
    table.upsert(frame(again, range(75, 90), lambda i: ("third", i, None, f"size {i}")), schema_mode="merge")
    return table


def decimals(folder: Path, publish: Publish) -> mor.Table:
    """Decimals of several widths, unsigned numbers of 64 bits; bounds with signs."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.decimal128(9, 2)),
            ("rate", pa.decimal128(18, 6)),
            ("mass", pa.decimal128(38, 10)),
            ("hash", pa.uint64()),
        ]
    )

    def rows(ids: Iterable[int], k: int) -> pa.Table:
        big = Decimal(10) ** 27
        return frame(
            schema, ids, lambda i: (Decimal(i - 50) / 4, Decimal(k * i) / 1000000, None if i % 9 == 0 else big - i, i)
        )

    table = mor.Table.create(folder / "table", schema, key="id", buckets=2)
    table.upsert(rows(range(100), 1))
    table.maintenance.compact()
    publish(table)
    table.upsert(rows(range(90, 120), -1))
    table.upsert(frame(schema, [200], lambda _: (Decimal("-9999999.99"), None, None, 2**64 - 1)))
    return table


def zones(folder: Path, publish: Publish) -> mor.Table:
    """Timestamps of several zones and units, and dates, before and after 1970."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("tokyo", pa.timestamp("ms", "Asia/Tokyo")),
            ("plain", pa.timestamp("us")),
            ("day", pa.date32()),
        ]
    )

    def rows(ids: Iterable[int], hours: int) -> pa.Table:
        def row(i: int) -> Sequence[Any]:
            at = START + dt.timedelta(hours=hours * i, microseconds=i)
            return at, at.replace(microsecond=0), at.replace(tzinfo=None), None if i % 7 == 0 else at.date()

        return frame(schema, ids, row)

    table = mor.Table.create(folder / "table", schema, key="id", buckets=2)
    table.upsert(rows(range(100), 1))
    table.maintenance.compact()
    publish(table)
    table.upsert(rows(range(90, 120), -10_000))
    return table


def nested(folder: Path, publish: Publish) -> mor.Table:
    """Lists, structs and maps within each other, null and empty; a field added to a struct."""
    point = pa.struct([("x", pa.float64()), ("y", pa.int64())])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("tags", pa.list_(pa.string())),
            ("point", point),
            ("path", pa.list_(point)),
            ("deep", pa.struct([("inner", pa.struct([("values", pa.list_(pa.int64()))]))])),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )

    def row(i: int) -> Sequence[Any]:
        at = None if i % 5 == 0 else {"x": i / 2, "y": i}
        tags = None if i % 7 == 0 else [f"t{i}", None, ""][: i % 4]
        deep = {"inner": {"values": [i, None]} if i % 3 else None}
        return tags, at, [at, {"x": None, "y": -i}], deep, [("a", i), ("b", None)][: i % 3]

    table = mor.Table.create(folder / "table", schema, key="id", buckets=2)
    table.upsert(frame(schema, range(60), row))
    table.maintenance.compact()
    publish(table)
    wider = schema.set(2, pa.field("point", pa.struct([*point, ("z", pa.string())])))
    table.upsert(
        frame(wider, range(50, 70), lambda i: (None, {"x": 1.0, "y": i, "z": f"z{i}"}, [], None, None)),
        schema_mode="merge",
    )
    return table


def deletes(folder: Path, publish: Publish) -> mor.Table:
    """Rows deleted and written again, a file group without rows, a partition deleted whole, another emptied."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
    names = ("kept", "emptied", "dropped", "logs")

    def rows(ids: Iterable[int], n: int) -> pa.Table:
        return frame(schema, ids, lambda i: (names[i % 4], n))

    def keys(ids: Iterable[int]) -> pa.Table:
        return rows(ids, 0).select(["id", "part"])

    table = mor.Table.create(folder / "table", schema, key="id", partition_by="part", buckets=1)
    table.upsert(rows([i for i in range(400) if i % 4 != 3], 0))
    table.maintenance.compact()
    publish(table)
    table.upsert(rows(range(3, 400, 4), 1))
    table.delete(keys(range(0, 100, 4)))
    publish(table)
    table.delete(keys(range(1, 400, 4)))
    table.upsert(rows(range(40, 60, 4), 2))
    table.delete_partitions([{"part": "dropped"}])
    table.delete(keys(range(3, 40, 4)))
    return table


def ordering(folder: Path, publish: Publish) -> mor.Table:
    """The greatest value of a column wins: later commits with smaller values change nothing."""
    schema = pa.schema([("id", pa.int64()), ("rank", pa.int64()), ("text", pa.string())])
    table = mor.Table.create(folder / "table", schema, key="id", ordering="rank", buckets=2)
    table.upsert(frame(schema, range(80), lambda i: (10, f"a{i}")))
    table.maintenance.compact()
    publish(table)
    table.upsert(frame(schema, range(30, 60), lambda i: (i % 20, f"b{i}")))
    table.upsert(frame(schema, range(70, 100), lambda i: (15, f"c{i}")))
    table.upsert(frame(schema, range(90, 95), lambda i: (3, f"d{i}")))
    return table


def partial(folder: Path, publish: Publish) -> mor.Table:
    """Updates of some columns: the visible row stands in no log file."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("seen", pa.int64())])
    table = mor.Table.create(folder / "table", schema, key="id", merge=mor.PartialUpdate(), buckets=2)
    table.upsert(frame(schema, range(80), lambda i: (f"n{i}", i)))
    table.maintenance.compact()
    publish(table)
    table.upsert(frame(schema.remove(1), range(30, 100), lambda i: (i * 10,)))
    table.upsert(frame(schema.remove(2), range(40, 50), lambda i: (f"renamed {i}",)))
    return table


def payload(folder: Path, publish: Publish) -> mor.Table:
    """Counters, sets and maxima: visible values differ from stored ones."""
    schema = pa.schema(
        [("id", pa.int64()), ("views", pa.int64()), ("tags", pa.list_(pa.string())), ("best", pa.int64())]
    )
    merge = {"views": Counter(), "tags": ORSet(), "best": Max()}
    table = mor.Table.create(folder / "table", schema, key="id", merge=merge, buckets=2)
    table.upsert(frame(schema, range(80), lambda i: (1, ["a", f"t{i}"], i)))
    table.upsert(frame(schema, range(40), lambda i: (2, ["b"], 50)))
    table.maintenance.compact()
    publish(table)
    table.upsert(frame(schema, range(30, 100), lambda i: (10, ["c"], i % 7)))
    table.delete(keys=[35, 36])
    return table


def types(folder: Path, publish: Publish) -> mor.Table:
    """Plain types: booleans, small numbers, floats with infinities, bytes, texts of several kinds, dictionaries."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("yes", pa.bool_()),
            ("small", pa.int8()),
            ("word", pa.uint32()),
            ("single", pa.float32()),
            ("double", pa.float64()),
            ("raw", pa.binary()),
            ("long", pa.large_string()),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    floats = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-300, None)

    def row(i: int) -> Sequence[Any]:
        odd = floats[i % 7]
        return i % 2 == 0, i - 100, 2**32 - 1 - i, i / 4, odd, bytes([i % 256, 0, 255]), "é" * (i % 5), f"k{i % 3}"

    table = mor.Table.create(folder / "table", schema, key="id", buckets=2)
    table.upsert(frame(schema, range(80), row))
    table.maintenance.compact()
    publish(table)
    table.upsert(frame(schema, range(70, 100), row))
    return table


def empty(folder: Path, publish: Publish) -> mor.Table:
    """A table without a row."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.float64())])
    table = mor.Table.create(folder / "table", schema, key="id", partition_by="part")
    publish(table)
    return table


def slices(count: int) -> Builder:
    """As many file slices as `count`, one in ten with log files."""

    def build(folder: Path, publish: Publish) -> mor.Table:
        schema = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("n", pa.int64())])
        table = mor.Table.create(folder / "table", schema, key="id", partition_by="part", buckets=1)
        table.upsert(frame(schema, range(count * 2), lambda i: (i % count, 0)))
        table.maintenance.compact()
        publish(table)
        table.upsert(frame(schema, range(0, count, 10), lambda i: (i % count, 1)))
        publish(table)
        table.upsert(frame(schema, [5, count * 3], lambda i: (i % count, 2)))
        return table

    return build


def moved(folder: Path, publish: Publish) -> mor.Table:
    """A table whose folder was moved after its mirror was made."""
    before = ordering(folder / "before", publish)
    publish(before)
    (folder / "table").parent.mkdir(exist_ok=True)
    shutil.move(folder / "before" / "table", folder / "table")
    return mor.Table(folder / "table")


def shapes(*, long: bool = False) -> tuple[Shape, ...]:
    """All shapes; `long` ones have 1,000 file slices instead of 40."""
    return (
        Shape("partitions", partitions, "region = 'ü p+1' and n >= 0"),
        Shape("columns", columns),
        Shape("decimals", decimals),
        Shape("zones", zones),
        Shape("nested", nested),
        Shape("deletes", deletes, "part = 'kept' and id < 200"),
        Shape("ordering", ordering),
        Shape("partial", partial),
        Shape("payload", payload, "views > 5 and id < 60"),
        Shape("types", types),
        Shape("empty", empty),
        Shape("slices", slices(1_000 if long else 40), "part >= 5 and part < 12"),
        Shape("moved", moved),
    )
