"""Whenever a file of a sealed view vanishes, a reader gets all of its rows or an error of ours: never fewer rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Opening, SnapshotExpiredError, Table
from crdt_mor.errors import CheckpointExpiredError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.store import LocalStore
from crdt_mor.testing.faults import DelegatingStore
from tests.tiers import slow

T = TypeVar("T")
Reading = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Watched(ParquetSource):
    """A Parquet file that says when Arrow opens it."""

    opens: Callable[[], None] = lambda: None

    def open(self) -> pq.ParquetFile:
        self.opens()
        return ParquetSource.open(self)


class VanishingStore(DelegatingStore):
    """At call number `at`, before it is carried out or after that, all data files of the table vanish.

    Opening a Parquet file is a call, too: the store only says where the file is.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.root = root
        self.at, self.calls, self.after = -1, 0, False
        self.gone: dict[Path, bytes] = {}

    def arm(self, at: int, after: bool) -> None:
        self.at, self.calls, self.after, self.gone = at, 0, after, {}

    def restore(self) -> None:
        self.at = -1
        for path, data in self.gone.items():
            path.write_bytes(data)

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        mine = self._is_now()
        if mine and not self.after:
            self._vanish()
        result = call()
        if mine and self.after:
            self._vanish()
        if isinstance(result, ParquetSource) and result.address is not None:
            return Watched(result.name, result.address, opens=self._opened)  # type: ignore[return-value]
        return result

    def _opened(self) -> None:
        if self._is_now():
            self._vanish()

    def _is_now(self) -> bool:
        mine = self.calls == self.at
        self.calls += 1
        return mine

    def _vanish(self) -> None:
        for path in self.root.rglob("*"):
            if path.is_file() and ".hoodie" not in path.parts and path not in self.gone:
                self.gone[path] = path.read_bytes()
                path.unlink()


def made(root: Path, merge: dict[str, Any]) -> tuple[Table, VanishingStore, str, str]:
    """A table with base files and logs; where changes begin, and a snapshot before its compaction."""
    store = VanishingStore(root)
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("day", pa.string())])
    table = Table.create(root, schema, key="id", buckets=2, partition_by="day", opening=Opening(store=store), **merge)
    days = {"day": ["mon", "tue"] * 10}
    old = table.upsert(pl.DataFrame({"id": range(20), "n": [0] * 20, **days}))
    table.maintenance.compact()
    checkpoint = table.scan().checkpoint
    table.upsert(pl.DataFrame({"id": range(20), "n": [1] * 20, **days}).head(8))
    table.delete(pl.DataFrame({"id": [0], "day": ["mon"]}), plain=bool(merge))
    return table, store, checkpoint, old.completed_at


def rows(found: pa.Table) -> Any:
    return pl.DataFrame(found).sort(pl.all()).rows()


def by_parts(view: Any) -> Any:
    return sorted((row for part in view.parts(1) for row in rows(part.to_arrow())), key=str)


SCANS: dict[str, tuple[dict[str, Any], Reading]] = {
    "all": ({}, lambda scan: rows(scan.to_arrow())),
    "some": ({"filter": "n = 0 and id > 3", "columns": ["id", "n"]}, lambda scan: rows(scan.to_arrow())),
    "limited": ({"limit": 3}, lambda scan: len(scan.to_arrow())),
    "bases": ({"consistency": "read_optimized"}, lambda scan: rows(scan.to_arrow())),
    "polars": ({}, lambda scan: rows(scan.to_polars().to_arrow())),
    "stream": ({}, lambda scan: rows(scan.to_reader().read_all())),
    "count": ({}, lambda scan: scan.count()),
    "count of some": ({"filter": "n = 0"}, lambda scan: scan.count()),
    "parts": ({}, by_parts),
    "stable": ({"consistency": "stable"}, lambda scan: rows(scan.to_arrow())),
}
CHANGES: dict[str, dict[str, Any]] = {"merged": {}, "images": {"images": True}, "raw": {"raw": True}}


def try_at_every_moment(store: VanishingStore, view: Any, reading: Reading) -> int:
    """Read a view while its files vanish at each call in turn; how often that was an error."""
    store.arm(-1, False)
    expected, calls, errors = reading(view), store.calls, list[Exception]()
    for at in range(calls):
        for after in (False, True):
            store.arm(at, after)
            try:
                found = reading(view)
            except (SnapshotExpiredError, CheckpointExpiredError) as error:
                errors.append(error)
            else:
                assert found == expected
            finally:
                store.restore()
    assert all("file=" in str(error) for error in errors)
    return len(errors)


FEW = ("all", "bases", "count of some")


@pytest.mark.parametrize(
    ("merge", "names"),
    [({}, FEW), slow({}, tuple(SCANS)), slow({"ordering": "n"}, tuple(SCANS))],
    ids=["latest, few", "latest", "ordering"],
)
def test_of_a_scan(fast_path: Path, merge: dict[str, Any], names: tuple[str, ...]) -> None:
    table, store, _, old = made(fast_path / "table", merge)
    for name in names:
        options, reading = SCANS[name]
        errors = try_at_every_moment(store, table.scan(**options), reading)
        assert errors or name == "count", name
    assert try_at_every_moment(store, table.scan(as_of=old), SCANS["all"][1])


@pytest.mark.slow
def test_of_changes(fast_path: Path) -> None:
    table, store, checkpoint, _ = made(fast_path / "table", {})
    for options in CHANGES.values():
        changes = table.changes(since=checkpoint, **options)
        assert try_at_every_moment(store, changes, lambda view: rows(view.to_arrow()))
        assert try_at_every_moment(store, changes, by_parts)
    assert try_at_every_moment(store, table.changes(), lambda view: rows(view.to_arrow()))


def test_of_a_transaction_and_of_a_compaction(fast_path: Path) -> None:
    table, store, _, _ = made(fast_path / "table", {})
    with table.transaction() as tx:
        assert try_at_every_moment(store, tx, lambda tx: rows(tx.scan().to_arrow()))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    store.arm(0, False)
    store._vanish()
    with pytest.raises(SnapshotExpiredError, match="file="):
        table.maintenance.plans.execute(plan)
    store.restore()
    assert table.maintenance.compact(plan)
