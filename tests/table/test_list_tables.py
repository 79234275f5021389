"""`list_tables`: the tables below a place, in few requests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Opening, StorageUnavailableError, Table, drop_table, list_tables
from crdt_mor.errors import TableNotFoundError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.services import listing
from crdt_mor.services.listing import TableList, list_below
from crdt_mor.store import LocalStore
from tests.counting import Bucket

SCHEMA = pa.schema([("id", pa.string())])
ROWS = pa.table({"id": ["a", "b"]})


def states(found: TableList, place: Path) -> dict[str, str]:
    return {one.uri.removeprefix(f"{place}/"): one.state for one in found.tables}


def test_tables_are_found_with_state_and_size(fast_path: Path) -> None:
    events = Table.create(fast_path / "events", SCHEMA, key="id", buckets=1)
    events.upsert(ROWS)
    events.maintenance.compact()
    commit = events.upsert(ROWS)
    Table.create(fast_path / "deep/er/empty", SCHEMA, key="id")
    Table.create(fast_path / "handed", SCHEMA, key="id").maintenance.handover()
    Table.create(fast_path / "old", SCHEMA, key="id").maintenance.migrate(fast_path / "new", buckets=2)
    Table.create(fast_path / "lost", SCHEMA, key="id")
    (fast_path / "lost" / PROPERTIES).unlink()
    Table.create(fast_path / "broken", SCHEMA, key="id")
    (fast_path / "broken" / PROPERTIES).write_text("")
    for hidden in (".trash", "_old", "day=2026-01-31"):
        Table.create(fast_path / "landing" / hidden / "t", SCHEMA, key="id")
    (fast_path / "note.txt").write_text("")
    found = list_tables(fast_path)
    assert states(found, fast_path) == {
        "broken": "unreadable", "deep/er/empty": "ready", "events": "ready", "handed": "handed over",
        "lost": "incomplete", "new": "ready", "old": "moved",
    }  # fmt: skip
    assert (found.folders, found.left_off) == (11, 0)
    by_uri = {one.uri: one for one in found.tables}
    one = by_uri[events.uri]
    files = events.inspect.files()
    assert (one.files, one.log_files, one.bytes) == (2, 1, sum(files["bytes"].to_pylist()))
    assert one.version == events.version
    assert one.committed == events.history(limit=1)["completed"][0].as_py()
    assert commit.version == one.version
    assert "properties are missing" in by_uri[f"{fast_path}/lost"].reason
    assert by_uri[f"{fast_path}/deep/er/empty"].committed is None


def test_a_place_that_is_a_table_or_empty_or_missing(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id")
    assert [one.uri for one in list_tables(table.uri).tables] == [table.uri]
    (fast_path / "empty").mkdir()
    assert list_tables(fast_path / "empty") == TableList((), 1, 0)
    with pytest.raises(TableNotFoundError, match="there is no folder here"):
        list_tables(fast_path / "missing")


def test_upkeep_is_no_commit_of_rows(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id")
    assert list_tables(table.uri).tables[0].committed is None
    table.upsert(ROWS)
    (committed,) = (one.committed for one in list_tables(table.uri).tables)
    table.maintenance.compact()
    assert [one.committed for one in list_tables(table.uri).tables] == [committed]
    age = table.inspect.metrics().last_commit_age_seconds
    assert age is not None
    assert committed == table.history()["completed"][-1].as_py()


@pytest.mark.parametrize("left", [".hoodie/.temp/clock", ".hoodie/.temp/put-1"])
def test_temporary_files_hide_no_table_below(fast_path: Path, left: str) -> None:
    Table.create(fast_path / "a/t", SCHEMA, key="id")
    (fast_path / left).parent.mkdir(parents=True)
    assert states(list_tables(fast_path), fast_path) == {"a/t": "ready"}
    (fast_path / left).write_text("")
    assert states(list_tables(fast_path), fast_path) == {"a/t": "ready"}


def test_the_number_of_listed_folders_is_bounded(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        Table.create(fast_path / f"t{n}", SCHEMA, key="id")
    monkeypatch.setattr(listing, "FOLDERS_MAX", 4)
    found = list_tables(fast_path)
    assert [one.uri for one in found.tables] == [f"{fast_path}/t{n}" for n in range(3)]
    assert (found.folders, found.left_off) == (4, 2)


def test_known_tables_are_returned_without_a_look_inside(fast_path: Path) -> None:
    for name in ("a", "b", "c"):
        Table.create(fast_path / name, SCHEMA, key="id")
    known = [one for one in list_tables(fast_path).tables if one.uri != f"{fast_path}/a"]
    for name in ("a", "b"):
        Table(fast_path / name).upsert(ROWS)
    (fast_path / "b" / PROPERTIES).unlink()
    drop_table(fast_path / "c")
    Table.create(fast_path / "d", SCHEMA, key="id")
    found = list_tables(fast_path, known=known)
    assert states(found, fast_path) == {"a": "ready", "b": "ready", "d": "ready"}
    assert found.tables[0].log_files == 2
    assert found.tables[1] == known[0]
    assert list_tables(fast_path / "b", known=known).tables == (known[0],)
    assert [(one.uri, one.state) for one in list_tables(fast_path / "b").tables] == [(known[0].uri, "incomplete")]


def test_a_folder_that_cannot_be_listed_is_named() -> None:
    class Shut:
        def folders(self, folder: str) -> list[str]:
            if folder == "shut":
                raise StorageUnavailableError("no access")
            return ["shut"] if not folder else []

    found = list_below(Shut(), "/lake", LocalStore, SystemEnvironment())
    assert [(one.uri, one.state, one.reason) for one in found.tables] == [("/lake/shut", "unreadable", "no access")]


def test_a_bucket_is_asked_once_for_each_folder_and_never_inside_a_table() -> None:
    bucket = Bucket()
    with bucket.counting():
        for name in ("lake/a", "lake/b/c"):
            table = Table.create(
                f"s3://counted/{name}", SCHEMA, key="id", opening=Opening(store=bucket.store(folder=name))
            )
            table.upsert(ROWS)
            table.maintenance.compact()

        def run() -> None:
            environment = SystemEnvironment()
            found = list_below(
                bucket.store(folder="lake"), "s3://counted/lake",
                lambda uri: bucket.store(folder=uri.removeprefix("s3://counted/")), environment,
            )  # fmt: skip
            assert [(one.uri, one.state, one.files) for one in found.tables] == [
                ("s3://counted/lake/a", "ready", 2), ("s3://counted/lake/b/c", "ready", 2),
            ]  # fmt: skip

        count = bucket.count(run)
    listed = [line.split()[2] for line in count.asked if " LIST " in line and ".hoodie" not in line]
    assert sorted(listed) == ["lake", "lake/a", "lake/b", "lake/b/c"]
    assert count.requests <= 4 + 2 * 12
