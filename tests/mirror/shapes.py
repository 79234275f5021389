"""Tables of every merge rule and shape, with unmerged logs, for tests of mirrors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.columns.schema import TableSchema
from crdt_mor.mirror.columns import mirror_columns
from crdt_mor.mirror.slices import ShownSlice, Stands, show
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.read.snapshot import Snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string())])

RULES: Mapping[str, Mapping[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "counter": {"merge": {"n": Counter()}},
    "counter in partial updates": {"merge": PartialUpdate(columns={"n": Counter()})},
}


def rows(ids: Iterable[int], n: int, text: str | None = "a") -> pa.Table:
    keys = list(ids)
    return pa.table({"id": keys, "n": [n] * len(keys), "text": [text] * len(keys)}, schema=SCHEMA)


def written_over(table: Table) -> Table:
    """Base files, then logs that replace, lose, add, delete, and bring back rows."""
    table.upsert(rows(range(40), 10))
    table.maintenance.compact()
    table.upsert(rows(range(5, 15), 5, "lower"))
    table.upsert(rows([1, 2, 100], 20, "higher"))
    table.delete(keys=[3, 12, 39], plain=True)
    table.upsert(rows([3], 30, None))
    return table


def written_late(table: Table) -> Table:
    """A base file with rows of writes that began after the log over it."""
    table.upsert(rows(range(20), 10))
    with table.transaction() as late:
        table.upsert(rows(range(10), 11, "after the late one began"))
        table.maintenance.compact()
        late.upsert(rows(range(5, 15), 12, "late"))
        late.delete(keys=[0, 16], plain=True)
    return table


def snapshot_of(table: Table) -> Snapshot:
    session = table._session
    return Snapshot.seal(session, session.views.sealed(decided=True))


def all_shown(
    snapshot: Snapshot, stands: Stands = lambda stored, in_file: stored == in_file, *, whole: bool = False
) -> list[ShownSlice]:
    columns = mirror_columns(snapshot.value)
    return [show(snapshot, slice_, columns, stands, whole=whole) for slice_ in snapshot.slices]


def seen_by_readers(snapshot: Snapshot, shown: Iterable[ShownSlice]) -> list[str]:
    """The rows that a reader of a mirror gets: base rows without dead ones, and merged rows; missing columns null."""
    columns = mirror_columns(snapshot.value)
    found = []
    for one in shown:
        tables = [one.rows] if one.rows is not None else []
        if one.base is not None:
            source = snapshot.session.store.parquet(one.base.path)
            assert source is not None
            with source.open() as file:
                base = file.read()
            dead = set(one.dead.tolist())
            tables.append(base.filter(pa.array([place not in dead for place in range(len(base))])))
        for table in tables:
            missing = pa.nulls(len(table))
            by_name = {c.shown: table[c.stored] if c.stored in table.column_names else missing for c in columns}
            found += pa.table(by_name).to_pylist()
    return in_order(found)


def scanned(table: Table, **options: Any) -> list[str]:
    """The rows of a scan in stored types, as readers of files see them."""
    scan = table.scan(**options)
    return in_order(TableSchema(scan.schema).normalise(scan.to_arrow()).to_pylist())


def in_order(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in found)
