"""`drop_table`: nobody ever reads a smaller table, and a repeated call finishes an interrupted drop."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, InvalidInputError, Opening, Table, drop_table
from crdt_mor.errors import TableExistsError, TableNotFoundError
from crdt_mor.log.paths import PROPERTIES, VERSIONS
from crdt_mor.store import LocalStore, MemoryStore, Store
from crdt_mor.testing.faults import ProcessDied
from tests.interop.made_by_hudi import as_hudi_makes_them
from tests.stores import ScriptedStore, as_it_is, first
from tests.tiers import long

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string())])
ROWS = pa.table({"id": ["a", "b", "c"], "day": ["x", "y", "y"]})
CHANGES = ("put", "delete")


def made(store: Store) -> Table:
    """Three rows in base files, in logs and in a mirror, of two partitions."""
    table = Table.create(
        "dropped", SCHEMA, key=["id", "day"], partition_by="day", buckets=1, opening=Opening(store=store)
    )
    table.upsert(ROWS.slice(0, 2))
    table.maintenance.compact()
    table.upsert(ROWS.slice(1))
    table.mirror("delta")
    table.mirror("iceberg")
    return table


def objects(store: Store) -> list[str]:
    return [stat.path for folder in ("", ".hoodie") for stat in store.walk(folder)]


def drop(store: Store, **how: Any) -> Any:
    return drop_table("dropped", opening=Opening(store=store), **how)


def test_a_dropped_table_is_gone_with_its_folder(fast_path: Path) -> None:
    store = LocalStore(fast_path / "t")
    made(store)
    there = len(objects(store))
    would = drop(store, dry_run=True)
    assert (would.objects, would.left, would.dry_run) == (there, 0, True)
    assert len(objects(store)) == there
    assert drop(store).objects == there
    assert not (fast_path / "t").exists()
    with pytest.raises(TableNotFoundError, match="there is no table here, so nothing was removed"):
        drop(store)
    assert made(store).count() == 3


def test_objects_of_others_stay(fast_path: Path) -> None:
    store = LocalStore(fast_path / "t")
    made(store)
    store.put("notes.md", b"mine")
    store.put("day=x/part-0.parquet", b"mine")
    inner = Table.create(fast_path / "t2", SCHEMA, key="id")
    inner.upsert(ROWS)
    (fast_path / "t2").rename(fast_path / "t" / "inner")
    done = drop(store)
    assert done.left == 2 + sum(path.startswith("inner/") for path in objects(store))
    assert "other objects in the folder stay" in str(done)
    assert {path for path in objects(store) if not path.startswith("inner/")} == {"notes.md", "day=x/part-0.parquet"}
    assert Table(fast_path / "t" / "inner").count() == 3


@pytest.mark.parametrize("content", [(), ("notes.md",), ("_delta_log/00000000000000000000.json", "a.parquet")])
def test_something_else_is_refused(content: tuple[str, ...]) -> None:
    store = MemoryStore()
    for path in content:
        store.put(path, b"mine")
    with pytest.raises(TableNotFoundError, match="there is no table here"):
        drop(store)
    assert objects(store) == sorted(content)


def test_a_running_first_load_is_refused() -> None:
    store = MemoryStore()
    store.put(".hoodie/.crdt_mor/loads/0123456789abcdef0123456789abcdef/x", b"")
    with pytest.raises(InvalidInputError, match="is loading a table here"):
        drop(store)


def outcome(read: Callable[[], int]) -> int | str:
    """The rows that somebody reads, or the error."""
    try:
        return read()
    except CrdtMorError as error:
        return type(error).__name__


@pytest.fixture(scope="module")
def content() -> dict[str, bytes]:
    """The objects of a table."""
    store = MemoryStore()
    made(store)
    return {path: store.read(path) or b"" for path in objects(store)}


def filled(content: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for path, data in content.items():
        store.put(path, data)
    return store


def opened(store: Store) -> Table:
    return Table("dropped", opening=Opening(store=store))


class Dying:
    """A script: the process dies at a change of the store, before or `after` it."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left, self.after = at, after

    def __call__(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        self.left -= operation in CHANGES
        if self.left >= 0 or operation not in CHANGES:
            return call()
        if self.after:
            call()
        raise ProcessDied


def seen_of(store: Store, reader: Table) -> set[int | str]:
    """Return the rows or errors of an open reader, of a new reader and of a writer."""
    return {
        outcome(lambda: reader.to_arrow().num_rows),
        outcome(lambda: opened(store).to_arrow().num_rows),
        outcome(lambda: reader.upsert(ROWS).rows),
    }


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_drop_that_dies_anywhere_shows_the_table_or_none_and_a_repeated_one_finishes(
    content: dict[str, bytes], after: bool
) -> None:
    seen = list[set[int | str]]()
    while True:
        store = filled(content)
        reader = opened(store)
        assert reader.count() == 3
        try:
            drop(ScriptedStore(store, Dying(len(seen), after=after)))
            break
        except ProcessDied:
            seen.append(seen_of(store, reader))
        if objects(store):
            if store.stat(PROPERTIES) is None:
                with pytest.raises(TableExistsError):
                    Table.create("dropped", SCHEMA, key="id", opening=Opening(store=store))
            drop(store)
        assert objects(store) == []
    assert len(seen) > 20
    whole, gone = {3}, {"TableNotFoundError"}
    assert seen == [whole] * (not after) + [gone] * (len(seen) - (not after)), "the first put decides"


def _is_version(path: str) -> bool:
    return path.startswith(VERSIONS)


@pytest.mark.parametrize("operation", ["put", "read", "stat", "list"])
@pytest.mark.parametrize("skipped", range(3))
def test_a_writer_beside_a_drop_gets_an_error(content: dict[str, bytes], operation: str, skipped: int) -> None:
    store = filled(content)
    scripted = ScriptedStore(store, as_it_is)
    writer = opened(scripted)
    dropped = list[object]()
    scripted.script = first(operation, _is_version, lambda: dropped.append(drop(store)), skipped=skipped)
    said = outcome(lambda: writer.upsert(ROWS).rows)
    scripted.script = as_it_is
    if not dropped:  # the write has fewer operations
        assert said == 3
        return
    assert said in ("TableNotFoundError", "TableReplacedError") or said == 3
    assert outcome(lambda: writer.to_arrow().num_rows) == "TableNotFoundError"
    assert outcome(lambda: writer.upsert(ROWS).rows) == "TableNotFoundError"
    assert [path for path in objects(store) if _is_version(path)] == [], "no version is left behind"


def test_a_writer_that_publishes_first_is_dropped_as_well() -> None:
    store = MemoryStore()
    writer = made(store)
    calls = list[str]()

    def overtaken(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == "put" and _is_version(path) and len(calls) < 3:
            calls.append(path)
            writer.upsert(ROWS)
        return call()

    drop(ScriptedStore(store, overtaken))
    assert len(calls) == 3
    assert objects(store) == []


def test_a_table_of_hudi_can_be_dropped(content: dict[str, bytes]) -> None:
    store = filled(as_hudi_makes_them(content))
    assert opened(store).count() == 3
    drop(store)
    assert objects(store) == []


def test_a_broken_table_can_be_dropped(fast_path: Path) -> None:
    store = LocalStore(fast_path / "t")
    made(store)
    newest = max(stat.path for stat in store.list(VERSIONS))
    (fast_path / "t" / newest).write_bytes(b"{")
    (fast_path / "t" / PROPERTIES).unlink()
    drop(store)
    assert not (fast_path / "t").exists()


KILLED = """
import os, signal, sys
from crdt_mor import Opening, drop_table
from crdt_mor.store import LocalStore
from tests.stores import ScriptedStore

steps = 0

def script(operation, path, call):
    global steps
    steps += operation in ("put", "delete", "make_durable")
    if steps == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return call()

drop_table("dropped", opening=Opening(store=ScriptedStore(LocalStore(sys.argv[1]), script)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [17, long(1)])
def test_a_process_is_killed_at_a_step_of_a_drop_and_another_finishes(fast_path: Path, every: int) -> None:
    killed, step = -signal.SIGKILL, 1
    while killed == -signal.SIGKILL:
        folder = fast_path / str(step)
        store = LocalStore(folder)
        made(store)
        killed = subprocess.run([sys.executable, "-c", KILLED, str(folder), str(step)], check=False).returncode
        with suppress(TableNotFoundError):
            assert Table("dropped", opening=Opening(store=LocalStore(folder))).count() == 3
        with suppress(TableNotFoundError):
            drop(LocalStore(folder))
        assert objects(LocalStore(folder)) == []
        assert made(LocalStore(folder)).verify().is_sound
        step += every
    assert (killed, step > 3 * every) == (0, True)
