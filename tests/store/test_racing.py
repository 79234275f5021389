"""Stores that look whether an object is there and then put it: no table gets into one, and the error says why."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import obstore
import polars as pl
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, StorageUnavailableError, Table, check_store
from crdt_mor.cli.main import app
from crdt_mor.store import LocalStore, MemoryStore
from crdt_mor.store.racing import KEYS_OF_A_PROBE, PUTS
from tests import servers
from tests.counting import Bucket
from tests.inside import session_of
from tests.store.helpers import COLUMNS
from tests.stores import ScriptedStore, answering, refusing
from tests.tiers import slow

URI = "s3://counted/table"
SEVERAL = (
    r"let several of 16 simultaneous conditional puts of one object succeed: for \d+ of \d+ objects, up to \d+ puts"
)


class Meeting:
    """A place where all that race for a name meet after they have looked whether it is there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, threading.Barrier] = {}

    def meet(self, name: str) -> None:
        """Go on once all others have looked as well. A thread without others is let go after a while."""
        with self._lock:
            barrier = self._names.setdefault(name, threading.Barrier(PUTS))
        try:
            barrier.wait(5)
        except threading.BrokenBarrierError:
            return


@pytest.fixture
def careless() -> Iterator[Bucket]:
    """A bucket whose conditional puts of the probe's objects look first, and then put."""
    meeting, put = Meeting(), obstore.put

    def look_then_put(client: Any, key: str, content: bytes, *, mode: Any = "overwrite", **how: Any) -> Any:
        if mode == "create" and "/probe-" in key:
            is_there = any(meta["path"] == key for page in obstore.list(client, key) for meta in page)
            meeting.meet(key)
            if not is_there:
                return put(client, key, content, **how)
        return put(client, key, content, mode=mode, **how)

    bucket = Bucket()
    with bucket.counting(), patch.object(obstore, "put", look_then_put):
        yield bucket


def left_in(bucket: Bucket) -> list[str]:
    store = bucket.store()
    return [stat.path for stat in (*store.walk(""), *store.walk(".hoodie"))]


def test_no_table_is_made_where_several_puts_win(careless: Bucket) -> None:
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=f"{SEVERAL}.*If-None-Match.*store=s3://counted/table"):
        Table.create(URI, COLUMNS, key="id", opening=Opening(store=careless.store()))
    assert left_in(careless) == [], "what was raced for is deleted"


def test_no_table_is_loaded_where_several_puts_win(careless: Bucket) -> None:
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=SEVERAL):
        Table.create_from(URI, pl.DataFrame({"id": ["a"], "n": [1]}), key="id", opening=Opening(store=careless.store()))
    assert left_in(careless) == []


def test_nothing_is_written_to_a_table_of_hudis_where_several_puts_win(careless: Bucket) -> None:
    store = careless.store()
    properties = (
        "hoodie.table.name=t\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=9\n"
        "hoodie.table.recordkey.fields=id\nhoodie.timeline.layout.version=2\nhoodie.table.timeline.timezone=UTC\n"
    )
    store.put(".hoodie/hoodie.properties", properties.encode())
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=SEVERAL):
        session_of(Table(URI, opening=Opening(store=store))).start()
    assert left_in(careless) == [".hoodie/hoodie.properties"]


def test_no_table_is_moved_to_where_several_puts_win(careless: Bucket) -> None:
    old = Table.create("old", COLUMNS, key="id", opening=Opening(store=MemoryStore()))
    old.upsert(pl.DataFrame({"id": ["a"], "n": [1]}, COLUMNS))
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=SEVERAL):
        old.maintenance.migrate(URI, buckets=2, store=careless.store())
    assert left_in(careless) == []
    old.upsert(pl.DataFrame({"id": ["a"], "n": [2]}, COLUMNS))
    assert old.to_polars().rows() == [("a", 2)]


COMMANDS: dict[str, tuple[str, ...]] = {
    "create": ("create", URI, "--like", "rows.csv", "--key", "id"),
    "create-from": ("create-from", URI, "rows.csv", "--key", "id"),
    "migrate": ("migrate", "old", URI, "--buckets", "2"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_command_makes_a_table_where_several_puts_win(
    careless: Bucket, words: tuple[str, ...], fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fast_path)
    monkeypatch.setattr("crdt_mor.store.objects.open_at", lambda *_: careless.store())
    (fast_path / "rows.csv").write_text("id,n\na,1\n")
    Table.create("old", COLUMNS, key="id")
    done = CliRunner().invoke(app, [*words, "--output", "json"])
    assert (done.exit_code, done.stdout) == (1, "")
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["type"] == "UnsupportedFeatureError"
    assert re.search(f"{SEVERAL}.*If-None-Match.*check-store.*store=s3://counted/table", error["message"])
    assert left_in(careless) == []


def test_no_table_is_copied_to_another_store_where_several_puts_win(careless: Bucket, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table", COLUMNS, key="id")
    table.upsert(pl.DataFrame({"id": ["a"], "n": [1]}, COLUMNS))
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=SEVERAL):
        table.copy(URI, store=careless.store())
    assert left_in(careless) == []


def test_a_copy_to_the_table_s_own_bucket_races_no_puts() -> None:
    bucket = Bucket()
    with bucket.counting():
        table = Table.create(URI, COLUMNS, key="id", opening=Opening(store=bucket.store()))
        table.upsert(pl.DataFrame({"id": ["a"], "n": [1]}, COLUMNS))
        count = bucket.count(lambda: table.copy("s3://counted/copied", store=bucket.store(folder="copied")))
    assert not [line for line in count.asked if "/probe-" in line]


def test_a_bucket_whose_puts_have_one_winner_takes_a_table() -> None:
    bucket = Bucket()
    with bucket.counting():
        table = Table.create(URI, COLUMNS, key="id", opening=Opening(store=bucket.store()))
        count = bucket.count(lambda: bucket.store().probe())
    assert table.count() == 0
    assert count.requests == KEYS_OF_A_PROBE * (PUTS + 2)
    assert count.trips == KEYS_OF_A_PROBE + 2


# --- a check of a user's own ------------------------------------------------------------------------------------------


def test_a_check_says_how_many_puts_have_won() -> None:
    check = check_store("anywhere", keys=5, store=MemoryStore())
    assert check == mor.results.StoreCheck("anywhere", keys=5, puts=16, winners={1: 5})
    assert (check.is_safe, check.reason) == (True, "")


def test_a_check_says_what_is_wrong() -> None:
    check = check_store("anywhere", keys=3, store=ScriptedStore(MemoryStore(), answering("put", lambda made: True)))
    assert (check.winners, check.is_safe) == ({16: 3}, False)
    assert "for 3 of 3 objects, up to 16 puts. Commits would be acknowledged and lost" in check.reason


def test_a_check_finds_a_store_that_makes_nothing() -> None:
    check = check_store("anywhere", keys=2, store=ScriptedStore(MemoryStore(), answering("put", lambda made: False)))
    assert (check.winners, check.is_safe) == ({0: 2}, False)
    assert "let none of 16 simultaneous conditional puts of a new object succeed: for 2 of 2 objects" in check.reason


def test_a_check_finds_a_store_that_holds_something_else() -> None:
    check = check_store(
        "anywhere", keys=2, store=ScriptedStore(MemoryStore(), answering("read", lambda content: b"something else"))
    )
    assert (check.winners, check.wrong, check.is_safe) == ({1: 2}, 2, False)
    assert "differ from the content of the successful put" in check.reason


def test_a_check_that_fails_leaves_nothing() -> None:
    store = MemoryStore()
    with pytest.raises(StorageUnavailableError, match="a simulated failure"):
        check_store("anywhere", keys=3, store=ScriptedStore(store, refusing("read")))
    assert store.walk(".hoodie") == []


def test_a_check_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    check_store(tmp_path / "lake", keys=1)
    check_store(tmp_path / "lake/not/there", keys=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["lake"]


@pytest.mark.parametrize("keys", [0, -1, True, 1.5])
def test_a_check_is_of_some_objects(keys: object) -> None:
    with pytest.raises(InvalidInputError, match="1 or more"):
        check_store("anywhere", keys=keys, store=MemoryStore())  # type: ignore[arg-type]


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*more: str) -> Any:
        return CliRunner().invoke(app, ["check-store", str(tmp_path), "--keys", "2", *more])

    told = check("--output", "json")
    assert told.exit_code == 0
    said = {"store": str(tmp_path), "keys": 2, "puts": 16, "winners": {"1": 2}, "wrong": 0, "safe": True}
    assert json.loads(told.stdout) == {**said, "reason": None}
    assert "made by 1 put " in check().stdout
    assert "no fault was found" in check().stderr

    monkeypatch.setattr(LocalStore, "put", lambda *_, **__: True)
    told = check("--output", "json")
    assert told.exit_code == 3
    assert json.loads(told.stdout)["winners"] == {"16": 2}
    assert not json.loads(told.stdout)["safe"]
    told = check()
    assert told.exit_code == 3
    assert "made by 16 puts " in told.stdout
    assert "Commits would be acknowledged and lost" in told.stderr


@pytest.mark.parametrize("kind", [slow("s3"), slow("azure")])
def test_the_servers_of_the_tests_are_safe(kind: str) -> None:
    server = servers.SERVERS[kind]()
    assert check_store(server.address(), storage_options=server.options).winners == {1: 150}
