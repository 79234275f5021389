"""The history of a table: ordinals, who and what, and which commits overlapped; and the writers that are under way."""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.api.inspect import silent_for
from crdt_mor.ground.clock import Process, SystemEnvironment
from crdt_mor.hudi.records import commit_extra
from crdt_mor.model.authors import INFO_BYTES_MAX
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.model.names import COMMIT_INFO_KEY
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from crdt_mor.write.open_write import OpenWrite
from tests.inside import hudi_folder_of, look_for_hudi, tail_of
from tests.posting import in_a_crowd, post
from tests.simulated import Simulated
from tests.simulation import foreign_commits

SCHEMA = pa.schema([("id", pa.int64()), ("views", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "views": [1] * len(ids)})


@pytest.fixture
def world() -> Simulated:
    return Simulated()


@pytest.fixture
def table(world: Simulated) -> mor.Table:
    return world.create(SCHEMA, key="id", buckets=1)


def by_number(table: mor.Table) -> dict[int, dict[str, Any]]:
    return {row["ordinal"]: row for row in table.history().to_pylist(maps_as_pydicts="strict")}


def started(table: mor.Table, **said: str) -> mor.Transaction:
    tx = table.transaction(commit_info=said)
    tx.__enter__()
    return tx


def ended(tx: mor.Transaction, *ids: int) -> None:
    tx.upsert(rows(*ids))
    tx.__exit__(None, None, None)


# --- numbers and times ------------------------------------------------------------------------------------------------


def test_the_newest_commit_comes_first_and_the_oldest_is_number_one(world: Simulated, table: mor.Table) -> None:
    commits = []
    for n in range(3):
        world.environment.sleep(1)
        commits.append(table.upsert(rows(n)))
    found = table.history().to_pylist()
    assert [row["ordinal"] for row in found] == [3, 2, 1]
    assert [row["completed_at"] for row in found] == [commit.completed_at for commit in reversed(commits)]
    assert [row["version"] for row in found] == [commit.version for commit in reversed(commits)]
    newest = found[0]
    assert newest["completed"] - newest["requested"] == newest["duration"]
    assert newest["completed"].tzinfo is not None
    assert newest["completed"].isoformat() == "2023-11-14T22:13:23.004000+00:00"
    assert (newest["rows"], newest["deletes"], newest["files"], newest["adopted"]) == (1, 0, 1, False)
    assert table.history(limit=2).to_pylist() == found[:2]
    assert table.history(limit=0).num_rows == 0
    assert table.history(limit=9) == table.history()


@pytest.mark.parametrize("limit", [-1, True, 1.0, "1"])
def test_a_limit_that_is_no_number_is_refused(table: mor.Table, limit: Any) -> None:
    with pytest.raises(mor.InvalidInputError, match="must be a number of commits"):
        table.history(limit=limit)


def test_an_empty_table_has_an_empty_history(table: mor.Table) -> None:
    assert table.history().num_rows == 0


@pytest.mark.parametrize("column", ["version", "completed_at", "completed"])
def test_as_of_takes_what_stands_in_a_row(world: Simulated, table: mor.Table, column: str) -> None:
    for n in range(4):
        world.environment.sleep(1)
        table.upsert(rows(n))
    for row in table.history().to_pylist():
        assert table.scan(as_of=row[column]).count() == row["ordinal"]


def test_a_whole_number_is_a_version_wherever_a_moment_is_asked_for(world: Simulated, table: mor.Table) -> None:
    for key in range(3):
        with table.transaction() as tx:  # two versions, its begin and its end
            tx.upsert(rows(key))
    newest, middle, _ = table.history().to_pylist()
    version = middle["version"]
    assert (middle["ordinal"], version > 3) == (2, True)
    assert table.scan(as_of=version).count() == 2
    assert table.changes(version).to_polars()["id"].to_list() == [2]
    assert table.changes(since=None, until=version).to_polars().height == 2
    calls: list[Callable[[int], object]] = [
        lambda n: table.scan(as_of=n),
        table.changes,
        lambda n: table.changes(until=n),
        lambda n: table.diff(n, "now"),
        lambda n: table.maintenance.restore(to=n),
        table.inspect.files,
        lambda n: table.inspect.sizes([version, n]),
    ]
    for call in calls:
        with pytest.raises(mor.errors.FutureSnapshotError, match=r"does not exist yet.* not `ordinal`"):
            call(newest["version"] + 9)
        with pytest.raises(mor.InvalidInputError, match="versions count from 0"):
            call(-1)
    assert table.maintenance.restore(to=version).commits == 1
    assert table.history()["ordinal"].to_pylist() == [4, 2, 1]


def test_numbers_stay_when_commits_move_to_segments(table: mor.Table) -> None:
    before: dict[int, dict[str, Any]] = {}
    for n in range(60):
        table.upsert(rows(n), commit_info={"message": f"load {n}"})
        if n in (5, 20):
            before |= by_number(table)
    found = by_number(table)
    assert tail_of(table).segments
    assert sorted(found) == list(range(1, 61))
    assert {number: found[number] for number in before} == before
    assert [found[number]["message"] for number in (1, 60)] == ["load 0", "load 59"]


# --- who and what -----------------------------------------------------------------------------------------------------


def test_a_commit_says_which_process_made_it(table: mor.Table) -> None:
    table.upsert(rows(1))
    (row,) = table.history().to_pylist()
    assert (row["application"], row["host"], row["pid"]) == ("simulated", "simulated", 1)
    assert (row["message"], row["commit_info"]) == (None, [])


def test_a_group_is_one_commit_with_its_writers(table: mor.Table) -> None:
    table.upsert(rows(1))
    post(table, rows(1, 2), host="node-1", info={"message": "theirs", "ticket": "OPS-1"}, token=("loader", 4))
    post(table, rows(3), "DELETE", host="node-2")
    in_a_crowd(table).upsert(rows(2, 4), commit_info={"message": "ours"})
    group, single = table.history().to_pylist(maps_as_pydicts="strict")
    assert (group["ordinal"], group["kind"], group["rows"], group["deletes"]) == (2, "write", 3, 1)
    publisher = {"application": "simulated", "host": "simulated", "pid": 1, "message": "ours"}
    assert {name: group[name] for name in publisher} == publisher
    assert group["commit_info"] == {"message": "ours"}
    members = {writer["host"]: writer for writer in group["writers"]}
    assert members["simulated"] == {**publisher, "commit_info": {"message": "ours"}, "rows": 2, "deletes": 0}
    assert members["node-1"] == {
        "application": "loader", "host": "node-1", "pid": members["node-1"]["pid"], "message": "theirs",
        "commit_info": {"message": "theirs", "ticket": "OPS-1"}, "rows": 2, "deletes": 0,
    }  # fmt: skip
    assert (members["node-2"]["application"], members["node-2"]["deletes"]) == ("other", 1)
    assert len(group["writers"]) == 3
    assert single["writers"] == [
        {"application": "simulated", "host": "simulated", "pid": 1, "message": None, "commit_info": {}} | ONE_ROW
    ]
    assert table.inspect.timeline()["writes"].to_pylist() == [1, 3]


ONE_ROW = {"rows": 1, "deletes": 0}


def test_the_writers_of_a_group_stay_when_commits_move_to_segments(table: mor.Table) -> None:
    table.upsert(rows(1))
    post(table, rows(2), host="node-1", info={"message": "theirs"})
    in_a_crowd(table).upsert(rows(3))
    before = by_number(table)
    for n in range(60):
        table.upsert(rows(n), commit_info={"message": f"load {n}"})
    assert tail_of(table).segments
    after = by_number(table)
    assert {number: after[number] for number in before} == before


def test_hudi_is_told_what_each_writer_of_a_group_said(world: Simulated, table: mor.Table) -> None:
    table.upsert(rows(1), commit_info={"message": "alone"})
    for _ in range(2):
        post(table, rows(2), info={"message": "theirs"})
    post(table, rows(3))
    in_a_crowd(table).upsert(rows(4), commit_info={"message": "ours", "ticket": "7"})
    paths = [stat.path for stat in world.store.list(hudi_folder_of(table)) if stat.path.endswith(".deltacommit")]
    found = [commit_extra(world.store.read(path) or b"", path)[COMMIT_INFO_KEY] for path in sorted(paths)]
    alone, together = map(json.loads, found)
    assert alone == {"message": "alone"}
    assert sorted(together, key=str) == [{"message": "ours", "ticket": "7"}, {"message": "theirs"}]


def test_the_real_process_is_named_by_its_program_host_and_id() -> None:
    me = SystemEnvironment().process()
    assert (me.host, me.pid) == (socket.gethostname(), os.getpid())
    assert me.program


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        (["/opt/jobs/loader.py", "x"], "loader.py"),
        (["/opt/site-packages/acme/__main__.py"], "acme"),
        (["-c"], "python"),
        ([""], "python"),
        ([], "python"),
    ],
)
def test_a_program_is_named_after_its_script(monkeypatch: pytest.MonkeyPatch, argv: list[str], program: str) -> None:
    monkeypatch.setattr("sys.argv", argv)
    assert SystemEnvironment().process().program == program


SAID = {"message": "prices of May", "ticket": "OPS-17", "é": ""}


def test_every_way_to_write_takes_what_the_user_says(table: mor.Table) -> None:
    table.append(rows(1, 2), commit_info=SAID)
    table.upsert(rows(3), commit_info=SAID)
    table.delete(keys=[1], commit_info=SAID)
    with table.transaction(commit_info=SAID) as tx:
        tx.upsert(rows(4))
    found = by_number(table)
    assert [found[n]["commit_info"] for n in sorted(found)] == [SAID] * 4
    assert {row["message"] for row in found.values()} == {"prices of May"}
    assert [found[n]["operation"] for n in sorted(found)] == ["INSERT", "UPSERT", "DELETE", "UPSERT"]
    assert table.inspect.timeline().column("message").to_pylist() == ["prices of May"] * 4


def test_the_application_is_what_the_user_calls_it_else_the_tokens(table: mor.Table) -> None:
    table.upsert(rows(1), token=("nightly", 1))
    table.upsert(rows(1), token=("nightly", 2), commit_info={"application": "backfill"})
    again = table.upsert(rows(1), token=("nightly", 2), commit_info={"application": "another"})
    assert again.repeated
    assert {n: row["application"] for n, row in by_number(table).items()} == {1: "nightly", 2: "backfill"}


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"n": 1}, "keys and values of commit_info must be strings.*key='n' value=1"),
        ({1: "n"}, "strings.*key=1"),
        ({"": "n"}, "keys not empty"),
        ("a note", "must map strings to strings.*got=str"),
        ([("a", "b")], "must map strings to strings.*got=list"),
        ({"a": "\ud800"}, "invalid Unicode"),
        ({"a": "x" * INFO_BYTES_MAX}, f"too long.*bytes={INFO_BYTES_MAX + 8} bytes_max={INFO_BYTES_MAX}"),
        ({"a": "é" * (INFO_BYTES_MAX // 2)}, f"bytes={INFO_BYTES_MAX + 8}"),
    ],
)
def test_what_is_no_short_text_is_refused_before_anything_begins(table: mor.Table, info: Any, message: str) -> None:
    version = table.version
    writes = (
        lambda: table.upsert(rows(1), commit_info=info),
        lambda: table.append(rows(1), commit_info=info),
        lambda: table.delete(keys=[1], commit_info=info),
        lambda: table.transaction(commit_info=info),
        lambda: table.jobs.plan("upsert", SCHEMA, commit_info=info),
    )
    for write in writes:
        with pytest.raises(mor.InvalidInputError, match=message):
            write()
    assert table.version == version


def test_as_much_as_is_allowed_is_kept(table: mor.Table) -> None:
    long = {"a": "é" * ((INFO_BYTES_MAX - 8) // 2)}
    table.upsert(rows(1), commit_info=long)
    assert by_number(table)[1]["commit_info"] == long


def test_a_write_of_many_processes_is_its_drivers(fast_path: Any) -> None:
    table = mor.Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    job = table.jobs.plan("upsert", SCHEMA, token=("loads", 1), commit_info={"message": "planned", "ticket": "1"})
    receipts = [pickle.loads(pickle.dumps(job)).stage(rows(task), task=task) for task in range(2)]
    (waiting,) = table.inspect.pending().to_pylist(maps_as_pydicts="strict")
    assert (waiting["application"], waiting["message"], waiting["pid"]) == ("loads", "planned", os.getpid())
    table.jobs.complete(job, receipts, commit_info={"message": "two tasks"})
    row = by_number(table)[1]
    assert (row["application"], row["message"]) == ("loads", "two tasks")
    assert row["commit_info"] == {"message": "two tasks", "ticket": "1"}
    assert (row["host"], row["pid"]) == (socket.gethostname(), os.getpid())


def test_an_own_environment_says_which_process_it_is(world: Simulated) -> None:
    class Named(type(world.environment)):  # type: ignore[misc]
        def process(self) -> Process:
            return Process("job", "node-7", 42)

    table = mor.Table.create("t", SCHEMA, key="id", opening=mor.Opening(store=world.store, environment=Named()))
    table.upsert(rows(1))
    table.maintenance.compact()
    assert [(row["host"], row["pid"]) for row in table.history().to_pylist()] == [("node-7", 42)] * 2


# --- kinds ------------------------------------------------------------------------------------------------------------


def test_growth_and_compactions_are_marked(table: mor.Table) -> None:
    table.upsert(rows(1))
    table.upsert(rows(2).append_column("more", pa.array([1])), schema_mode="merge", commit_info={"message": "wider"})
    table.maintenance.compact()
    found = by_number(table)
    assert [found[n]["kind"] for n in sorted(found)] == ["write", "schema", "write", "compaction"]
    assert [found[n]["message"] for n in sorted(found)] == [None, "wider", "wider", None]
    assert found[4]["host"] == "simulated"


def test_commits_of_hudis_are_numbered_and_marked(fast_path: Any) -> None:
    """Before and after our next write takes them over; their author is not known."""
    table = mor.Table.create(fast_path / "t", foreign_commits.SCHEMA, key="k", buckets=1)
    first = table.upsert(foreign_commits.rows("a"))
    began = from_ms(to_ms(first.completed_at) + 2)
    hudi_commits(table, foreign_commits.rows("b"), began, from_ms(to_ms(began) + 2))
    look_for_hudi(table)
    before = by_number(table)[2]
    table.upsert(foreign_commits.rows("c"))
    table.maintenance.compact()
    found = by_number(table)
    assert {**found[2], "version": 0} == {**before, "version": 0}
    assert [found[n]["adopted"] for n in sorted(found)] == [False, True, False, False]
    assert [found[n]["kind"] for n in sorted(found)] == ["write", "write", "write", "compaction"]
    row = found[2]
    assert (row["requested_at"], row["duration"]) == (began, timedelta(milliseconds=2))
    assert [row[name] for name in ("application", "host", "pid", "message", "commit_info")] == [None] * 5


# --- overlaps ---------------------------------------------------------------------------------------------------------


def test_commits_that_were_in_flight_at_once_name_each_other(table: mor.Table) -> None:
    table.upsert(rows(0))
    straggler = started(table, message="long")
    table.upsert(rows(1))
    late = started(table)
    table.upsert(rows(2))
    ended(straggler, 3)
    table.upsert(rows(4))
    ended(late, 5)
    table.upsert(rows(6))
    found = by_number(table)
    expected = {1: [], 2: [4], 3: [4, 6], 4: [2, 3, 6], 5: [6], 6: [3, 4, 5], 7: []}
    assert {number: row["overlaps"] for number, row in found.items()} == expected
    assert found[4]["message"] == "long"
    assert [row["overlaps"] for row in table.history(limit=2).to_pylist()] == [[], [3, 4, 5]]


def test_overlaps_are_what_the_times_say(world: Simulated, table: mor.Table) -> None:
    """Against the plain definition, over a history in which much overlaps and a compaction lies between."""
    begun: list[mor.Transaction] = []
    for n in range(24):
        begun.append(started(table))
        if n % 3:
            ended(begun.pop(n * 7 % len(begun)), n)
        if n == 12:
            table.maintenance.compact()
    found = table.history().to_pylist()
    for row in found:
        together = (
            other["ordinal"]
            for other in found
            if other is not row and other["requested"] < row["completed"] and row["requested"] < other["completed"]
        )
        assert row["overlaps"] == sorted(together), row["ordinal"]
    for limit in range(len(found)):
        assert table.history(limit).to_pylist() == found[:limit]


def test_writers_at_work_at_once_all_stand_in_it(fast_path: Any) -> None:
    """Each holds its write open until all have begun, so that all overlap."""
    mor.Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    begun = Barrier(3)

    def write(number: int) -> None:
        table = mor.Table(fast_path / "t")
        with table.transaction(token=(f"job-{number}", 1), commit_info={"message": f"of {number}"}) as tx:
            begun.wait(60)
            tx.upsert(rows(number))

    threads = [Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = by_number(mor.Table(fast_path / "t"))
    assert {row["application"]: row["message"] for row in found.values()} == {f"job-{n}": f"of {n}" for n in range(3)}
    assert {number: row["overlaps"] for number, row in found.items()} == {1: [2, 3], 2: [1, 3], 3: [1, 2]}


# --- under way --------------------------------------------------------------------------------------------------------


def test_a_writer_that_is_heard_of_is_not_stuck(world: Simulated, table: mor.Table) -> None:
    tx = started(table, message="long", application="encrypt")
    world.environment.sleep(600)
    (row,) = table.inspect.pending().to_pylist(maps_as_pydicts="strict")
    assert (row["application"], row["host"], row["pid"], row["message"]) == ("encrypt", "simulated", 1, "long")
    assert row["commit_info"] == {"message": "long", "application": "encrypt"}
    assert row["since"].isoformat() == "2023-11-14T22:13:20.004000+00:00"
    assert (row["silent"], row["stuck"]) == (timedelta(0), False)
    tx.__exit__(None, None, None)
    assert table.inspect.pending().num_rows == 0


def test_a_writer_that_has_died_is_stuck_after_three_heartbeats(world: Simulated, table: mor.Table) -> None:
    began = world.environment.now_ms()
    tx = started(table)
    assert isinstance(tx._write, OpenWrite)
    tx._write._alive.close()  # its process is gone
    world.environment.sleep(359)
    assert table.inspect.pending().column("stuck").to_pylist() == [False]
    world.environment.sleep(1)
    (row,) = table.inspect.pending().to_pylist()
    assert (row["stuck"], row["silent"]) == (True, timedelta(minutes=6))
    assert row["expires"] == datetime.fromtimestamp(began / 1000 + 600, UTC)
    (line,) = table.inspect.timeline().to_pylist()
    assert (line["state"], line["host"], line["silent"]) == ("pending", "simulated", timedelta(minutes=6))


def test_nothing_is_said_of_a_silence_that_nobody_knows() -> None:
    """Releases before FORMAT 2 noted no time of a begin; and a store's clock may be ahead of this machine's."""
    assert silent_for(None, 5) is None
    assert silent_for(9, 5) == timedelta(0)


def test_a_part_of_the_history_by_points_and_writers(table: mor.Table) -> None:
    first = table.upsert(rows(1), token=("a", 1))
    second = table.upsert(rows(2), token=("b", 1))
    table.maintenance.savepoint("two")
    for n in range(2):
        post(table, rows(n), info={"application": f"app-{n}"})
    in_a_crowd(table).upsert(rows(4), token=("a", 2))

    def ordinals(**asked: Any) -> list[int]:
        return [row["ordinal"] for row in table.history(**asked).to_pylist()]

    assert ordinals() == [3, 2, 1]
    assert ordinals(since=first) == ordinals(since=first.completed_at) == [3, 2]
    version = table.history()["version"][1].as_py()
    assert ordinals(since=version) == ordinals(since="two") == [3]
    assert ordinals(until=second) == ordinals(until="two") == ordinals(until=version) == [2, 1]
    assert ordinals(since=first, until=second) == [2]
    assert ordinals(since="2020-01-01", until="2020-01-02") == ordinals(since="now") == []
    assert ordinals(by="a") == [3, 1]
    assert ordinals(by="app-1") == [3], "the writers of a group count"
    assert ordinals(by="a", limit=1) == [3], "the limit counts the asked commits"
    assert ordinals(by="nobody") == []
    with pytest.raises(mor.errors.FutureSnapshotError, match="until=99"):
        table.history(until=99)
    with pytest.raises(mor.InvalidInputError, match="by must be the name"):
        table.history(by=3)  # type: ignore[arg-type]
    later = table.inspect.timeline(since=version)
    assert later["completed_at"].to_pylist() == table.history(1)["completed_at"].to_pylist()
