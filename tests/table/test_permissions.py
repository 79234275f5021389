"""Who may not write only reads, and who may not delete what others left goes on all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from crdt_mor import StorageUnavailableError, Table
from crdt_mor.events import rollback
from crdt_mor.log import publish
from crdt_mor.log.paths import PROPERTIES, VERSIONS, version_path
from crdt_mor.readers.follow import follow
from crdt_mor.readers.polars import scan_table
from crdt_mor.store.local import LocalStore
from crdt_mor.write.open_write import OpenWrite
from tests.inside import look_for_hudi, run_sweep, session_of, tail_of
from tests.table.helpers import Make, files, frame, rows

NOBODY, ONE, TWO = 65534, 1001, 1002
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@contextmanager
def user(number: int) -> Iterator[None]:
    """Act as another user."""
    group = os.getegid()
    os.setegid(number)
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def shared(path: str) -> None:
    """Everybody may write in Hudi's folder and in the table's, not in those of other users' partitions."""
    os.chmod(path, 0o777)
    for folder, _, names in os.walk(f"{path}/.hoodie"):
        os.chmod(folder, 0o777)
        for name in names:
            os.chmod(f"{folder}/{name}", 0o666)


def versions(path: str) -> list[int]:
    return sorted(int(p.stem) for p in (Path(path) / VERSIONS).iterdir())


def read_everything(path: str) -> None:
    """Every way to look at a table."""
    table = Table(path)
    first = table.scan(limit=1)
    assert table.scan().count() == 1
    assert table.scan(filter="n >= 0").to_polars().height == 1
    assert [part.to_arrow().num_rows for part in table.scan().parts()] == [1]
    assert table.scan(consistency="stable").to_arrow().num_rows == 1
    assert table.scan(as_of=table.version).to_arrow().num_rows == 1
    assert table.changes(first.checkpoint).to_arrow().num_rows == 0
    assert table.changes(images=True).to_arrow().num_rows > 1
    assert table.diff(2, table.version).to_arrow().num_rows > 0
    assert sum(window.to_arrow().num_rows for window in islice(follow(table), 1)) == 1
    assert scan_table(table).collect().height == 1
    assert table.inspect.timeline().num_rows > 1
    assert table.inspect.files().num_rows == table.inspect.files(first.as_of).num_rows > 0
    assert table.maintenance.plans.open() == []
    assert "row groups" in str(table.scan().explain())
    look_for_hudi(table)


@pytest.fixture
def grown(make: Make, path: str, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table with more versions than are kept, as the processes that wrote them deleted none."""
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1 << 40)
    table = make(buckets=1)
    for i in range(80):
        table.upsert(frame(("a", "x", i)))
    table.maintenance.compact()
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 10)
    return table


# --- readers ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("grown")
def test_reading_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: LocalStore, path: str, *_: object, **__: object) -> bool:
        raise AssertionError(f"a reader changes the store: {path}")

    for name in ("put", "copy", "delete", "touch", "make_durable", "_touch"):
        monkeypatch.setattr(LocalStore, name, refused)
    before = files(path)
    read_everything(path)
    assert files(path) == before


def test_a_table_that_nobody_of_us_wrote_to_is_read_without_a_trace(make: Make, path: str) -> None:
    make()
    for file in Path(path).rglob("*"):
        if file.is_file() and str(file.relative_to(path)) != PROPERTIES:
            file.unlink()
    before = files(path)
    assert Table(path).scan().to_arrow().num_rows == 0
    assert files(path) == before


@pytest.mark.slow
@as_root
@pytest.mark.usefixtures("grown")
def test_a_user_who_may_not_write_reads_a_table_of_many_versions(path: str) -> None:
    os.chmod(Path(path).parent, 0o755)
    with user(NOBODY):
        read_everything(path)
        with pytest.raises(StorageUnavailableError, match="EACCES"):
            Table(path).upsert(frame(("a", "x", 1)))


# --- publishers -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_version_that_cannot_be_deleted_fails_no_commit_and_keeps_all_that_are_newer(
    grown: Table, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = version_path(30)
    delete = LocalStore.delete

    def refuse(store: LocalStore, path: str) -> None:
        if path == stuck:
            raise StorageUnavailableError(f"EBUSY {path}")
        delete(store, path)

    monkeypatch.setattr(LocalStore, "delete", refuse)
    grown.upsert(frame(("a", "x", 81)))
    assert versions(path) == list(range(30, grown.version + 1))
    monkeypatch.setattr(LocalStore, "delete", delete)
    grown.upsert(frame(("a", "x", 82)))
    assert versions(path) == list(range(grown.version - 10, grown.version + 1))


def test_a_commit_whose_heartbeat_cannot_be_deleted_is_acknowledged(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make()

    def refuse(store: LocalStore, path: str) -> None:
        raise StorageUnavailableError(f"EACCES {path}")

    monkeypatch.setattr(LocalStore, "delete", refuse)
    assert table.upsert(frame(("a", "x", 1))).rows == 1
    assert rows(table, "id", "n") == [("a", 1)]


@as_root
def test_what_another_user_left_and_nobody_else_may_delete_stops_no_writer(
    make: Make, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.events.sweep.SWEEP_EVERY_MS", -1)  # every begin sweeps
    make(partition_by="region", hive_style=False, buckets=1)
    os.chmod(Path(path).parent, 0o755)
    shared(path)
    with user(ONE):
        dead = Table(path).transaction()
        dead.__enter__()
        dead.upsert(frame(("a", "one", 1)))
        assert isinstance(dead._write, OpenWrite)
        (staged,) = dead._write.stage(dead._write.statements.collected, dead._write.put)
        dead._write._alive.close()
    requested = dead._write.begun.requested
    os.chmod(f"{path}/one", 0o755)
    shared(path)
    with user(TWO):
        other = Table(path)
        session = session_of(other)
        value = session.run(rollback.give_up(session.publisher, session.tail(), requested, None))
        for i in range(3):
            assert [gone.requested for gone in value.rolled_back] == [requested]
            other.upsert(frame(("b", "two", i)))
            value = session.tail()
        assert rows(other, "id", "n") == [("b", 2)]
    assert Path(path, staged.path).exists()
    hudi = [p.name for p in Path(path, ".hoodie/timeline").glob(f"{requested}*")]
    assert f"{requested}.deltacommit.inflight" in hudi, "else Hudi's readers would take the log for a committed one"
    table = Table(path)
    for i in range(2):  # the first sweep deletes, the second sees that nothing is left
        table.upsert(frame(("b", "two", i)))
    assert tail_of(table).rolled_back == ()
    assert not list(Path(path).rglob(f"*{requested}*"))


@as_root
def test_a_folder_of_another_user_that_one_may_not_look_into_stops_no_writer(
    make: Make, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.events.sweep.SWEEP_EVERY_MS", -1)
    table = make(partition_by="region", hive_style=False, buckets=1)
    table.upsert(frame(("a", "one", 1)))
    os.chmod(Path(path).parent, 0o755)
    os.chmod(f"{path}/one", 0o700)
    shared(path)
    with user(TWO):
        other = Table(path)
        for i in range(2):
            other.upsert(frame(("b", "two", i)))
    assert rows(table, "id", "n") == [("a", 1), ("b", 1)]


@as_root
def test_the_cancel_of_a_plan_whose_outputs_one_may_not_delete_stops_nobody(make: Make, path: str) -> None:
    table = make(partition_by="region", hive_style=False, buckets=1)
    table.upsert(frame(("a", "one", 1)))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    (output,) = table.maintenance.plans.execute(plan)
    os.chmod(Path(path).parent, 0o755)
    os.chmod(f"{path}/one", 0o755)
    shared(path)
    pending = Path(path, f".hoodie/timeline/{plan.barrier}.compaction.requested")
    with user(TWO):
        other = Table(path)
        assert other.maintenance.plans.cancel(plan.barrier)
        other.upsert(frame(("b", "two", 1)))
    assert Path(path, output.path).exists()
    assert pending.exists(), "else Hudi's readers would leave out what is committed to this file group from now on"
    run_sweep(table)
    assert not Path(path, output.path).exists()
    assert not pending.exists()
