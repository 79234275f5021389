"""What a table showed at a moment: decided by the reader that asks once it has passed, and the same for ever."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Opening, StorageUnavailableError, Table
from crdt_mor.errors import FutureSnapshotError
from crdt_mor.log import publish
from crdt_mor.model.instant import from_ms, to_datetime
from crdt_mor.store import MemoryStore, Store
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.stores import ScriptedStore, refusing

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
EVENING = datetime(2026, 1, 30, 22, 15, tzinfo=UTC)
DAY_S = 86_400


class Lake:
    """A table that was written to in the evening, on a clock of its own, which its store has as well."""

    def __init__(self) -> None:
        self.environment = SimulatedEnvironment(int(EVENING.timestamp() * 1000))
        self.store = MemoryStore(self.environment.now_ms)
        self.table = Table.create(
            "lake", SCHEMA, key="k", opening=Opening(store=self.store, environment=self.environment)
        )
        self.opened = 0
        self.put("a")

    def put(self, key: str) -> None:
        self.table.upsert(pa.table({"k": [key], "n": [1]}))

    def open(self, store: Store | None = None, behind_ms: int = 0) -> Table:
        """The table, as a process whose machine's clock is behind opens it."""
        self.opened += 1
        environment = SimulatedEnvironment(self.environment.now_ms() - behind_ms, f"process {self.opened} ")
        return Table("lake", opening=Opening(store=store or self.store, environment=environment))

    def objects(self) -> set[str]:
        return {stat.path for folder in ("", ".hoodie") for stat in self.store.walk(folder)}


@pytest.fixture
def lake() -> Lake:
    return Lake()


def keys(table: Table, as_of: Any = None) -> list[str]:
    return sorted(table.scan(as_of=as_of).to_arrow()["k"].to_pylist())


MIDNIGHT: list[Any] = [
    date(2026, 1, 31), datetime(2026, 1, 31), "2026-01-31", "2026-01-31T00:00:00", "20260131000000000",  # noqa: DTZ001
    datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T09:00:00+09:00",
]  # fmt: skip


@pytest.mark.parametrize("midnight", MIDNIGHT, ids=str)
def test_midnight_on_a_quiet_table_is_decided_once_and_stays_what_it_was(lake: Lake, midnight: Any) -> None:
    lake.environment.sleep(DAY_S)
    before = lake.table.version
    assert keys(lake.table, midnight) == ["a"]
    assert lake.table.version == before + 1
    lake.put("b")
    after = lake.table.version
    assert keys(lake.table, midnight) == keys(lake.open(), midnight) == ["a"]
    assert keys(lake.table) == ["a", "b"]
    assert lake.table.version == after, "a moment that is decided needs no event"


def test_a_slow_clock_does_not_commit_before_a_moment_that_was_decided(lake: Lake) -> None:
    """A writer of yesterday by its own clock, whose write was pending when the moment was decided, comes after it."""
    slow = lake.open(behind_ms=0)
    straggler = slow.transaction()
    with straggler as tx:
        tx.upsert(pa.table({"k": ["late"], "n": [1]}))
        lake.environment.sleep(DAY_S)
        assert keys(lake.table, date(2026, 1, 31)) == ["a"]
    assert straggler.commit is not None
    assert straggler.commit.completed_at > "20260131000000000" > straggler.commit.requested_at
    assert keys(lake.table, date(2026, 1, 31)) == ["a"]
    assert keys(lake.table) == ["a", "late"]


def test_the_tables_clock_moves_to_the_moment_and_not_beyond(lake: Lake) -> None:
    lake.environment.sleep(DAY_S)
    keys(lake.table, "2026-01-31T00:00:00.001Z")
    assert lake.table.scan(as_of="now").as_of == lake.table.scan().as_of == "20260131000000002"


def test_now_is_what_is_decided_and_publishes_nothing(lake: Lake) -> None:
    lake.environment.sleep(DAY_S)
    before = lake.objects()
    scan = lake.table.scan(as_of="now")
    assert scan.to_arrow()["k"].to_pylist() == ["a"]
    assert scan.as_of < "20260131000000000"
    assert keys(lake.table, scan.as_of) == ["a"]
    assert lake.table.changes("now").commits == 0
    assert lake.table.changes(until="now").commits == 1
    assert lake.table.diff(0, "now").to_arrow().num_rows == 1
    assert lake.objects() == before


def test_both_ends_of_a_window_take_moments(lake: Lake) -> None:
    lake.environment.sleep(DAY_S)
    assert lake.table.changes(until=date(2026, 1, 31)).commits == 1
    lake.put("b")
    lake.environment.sleep(DAY_S)
    window = lake.table.changes("2026-01-31", until="2026-02-01")
    assert window.to_arrow()["k"].to_pylist() == ["b"]
    difference = lake.table.diff(date(2026, 1, 30), datetime(2026, 2, 1, 12))  # noqa: DTZ001
    assert sorted(difference.to_arrow()["k"].to_pylist()) == ["a", "b"]
    assert lake.table.changes(date(2026, 1, 31)).to_arrow()["k"].to_pylist() == ["b"]


def test_tomorrow_is_refused_with_the_newest_moment_that_is_decided(lake: Lake) -> None:
    before = lake.objects()
    newest = lake.table.scan(as_of="now").as_of
    for read in (lake.table.scan, lambda as_of: lake.table.changes(until=as_of)):
        with pytest.raises(FutureSnapshotError, match=f"ahead of the store's clock.*newest_decided={newest}"):
            read(as_of=EVENING + timedelta(hours=2))
    assert lake.objects() == before


def test_now_by_a_readers_own_clock_is_waited_for_where_the_stores_is_just_behind(lake: Lake) -> None:
    lake.environment.sleep(60)
    now = lake.environment.now_ms()
    assert keys(lake.table, to_datetime(from_ms(now + 20))) == ["a"]
    assert now + 20 <= lake.environment.now_ms() < now + 1_000


def test_what_the_stores_clock_has_not_reached_is_the_future_whatever_the_machines_clock_says(lake: Lake) -> None:
    fast = lake.open(behind_ms=-DAY_S * 1000)
    with pytest.raises(FutureSnapshotError, match="ahead of the store's clock"):
        fast.scan(as_of=date(2026, 1, 31))
    lake.environment.sleep(DAY_S)
    assert keys(lake.open(behind_ms=-DAY_S * 1000), date(2026, 1, 31)) == ["a"]
    assert keys(lake.open(behind_ms=DAY_S * 1000), "2026-01-31T00:00:01") == ["a"]


def test_two_readers_at_once_publish_one_event(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one has derived its event when the first one's is published, loses the race, and finds it decided."""
    lake.environment.sleep(DAY_S)
    first, second = lake.open(), lake.open()
    before = lake.table.version
    claim, answers, versions = publish.claim, [], []

    def overtaken(*values: Any) -> Any:
        monkeypatch.setattr(publish, "claim", claim)
        answers.append(keys(second, date(2026, 1, 31)))
        versions.append(second.version)
        lake.put("b")
        versions.append(lake.table.version)
        return claim(*values)

    monkeypatch.setattr(publish, "claim", overtaken)
    answers.append(keys(first, date(2026, 1, 31)))
    assert answers == [["a"], ["a"]]
    assert versions == [before + 1, lake.table.version], "the first reader has published nothing"
    assert keys(first, date(2026, 1, 31)) == ["a"]


def test_a_commit_that_comes_while_a_moment_is_decided_is_shown(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It completes before the moment, after the reader has looked and before it publishes."""
    lake.environment.sleep(3_600)
    claim = publish.claim

    def overtaken(*values: Any) -> Any:
        monkeypatch.setattr(publish, "claim", claim)
        lake.open(behind_ms=600_000).upsert(pa.table({"k": ["b"], "n": [1]}))
        return claim(*values)

    monkeypatch.setattr(publish, "claim", overtaken)
    moment = EVENING + timedelta(minutes=55)
    assert keys(lake.table, moment) == keys(lake.table, moment) == ["a", "b"]


def test_a_store_that_raises_leaves_a_moment_undecided(lake: Lake) -> None:
    lake.environment.sleep(DAY_S)
    reader = lake.open(ScriptedStore(lake.store, refusing("put")))
    newest = reader.scan(as_of="now").as_of
    with pytest.raises(FutureSnapshotError, match=f"cannot publish one.*newest_decided={newest}") as caught:
        reader.scan(as_of=date(2026, 1, 31))
    assert isinstance(caught.value.__cause__, StorageUnavailableError)
    assert keys(reader, newest) == ["a"]
    assert keys(lake.table, date(2026, 1, 31)) == keys(reader, date(2026, 1, 31)) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_who_may_only_read_a_folder_gets_what_others_have_decided(fast_path: Any) -> None:
    path = str(fast_path / "events")
    table = Table.create(path, SCHEMA, key="k")
    commit = table.upsert(pa.table({"k": ["a"], "n": [1]}))
    moment = to_datetime(commit.completed_at) + timedelta(milliseconds=2)
    for folder, _, _ in os.walk(fast_path):
        os.chmod(folder, 0o755)
    reader = Table(path)
    os.seteuid(65534)
    try:
        with pytest.raises(FutureSnapshotError, match=f"cannot publish one.*newest_decided={commit.completed_at}"):
            reader.scan(as_of=moment)
        assert keys(reader, commit) == keys(reader, "now") == ["a"]
    finally:
        os.seteuid(0)
    assert keys(table, moment) == ["a"]
    os.seteuid(65534)
    try:
        assert keys(reader, moment) == ["a"]
    finally:
        os.seteuid(0)
