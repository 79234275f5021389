"""A clean gives up history and removes the files that nothing needs; what is kept stays exact."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, InvalidInputError, Opening, Scan, SnapshotExpiredError, Table
from crdt_mor.errors import CheckpointExpiredError
from crdt_mor.format.clean import decode_clean, decode_clean_plan
from crdt_mor.hudi.actions import CLEAN
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.services import service
from crdt_mor.services.clean import Cleaner
from tests.format import savepoints
from tests.inside import session_of, store_of, tail_of
from tests.simulated import Simulated
from tests.stores import ScriptedStore, refusing

T = TypeVar("T")

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
HOUR = timedelta(hours=1)
NONE = timedelta(0)
OLDEST = r"oldest=\d{17}"


@pytest.fixture
def table(simulated: Simulated) -> Table:
    return simulated.create(SCHEMA, key="id", buckets=2)


def write(table: Table, n: int) -> Commit:
    """Every row of the table becomes `n`, and an hour goes by."""
    commit = table.upsert(pl.DataFrame({"id": range(10), "n": [n] * 10}))
    table.environment.sleep(3600)
    return commit


def history(table: Table, count: int = 6) -> list[Commit]:
    """So many commits, an hour apart, and a compaction after every second one."""
    commits = []
    for n in range(count):
        commits.append(write(table, n))
        if n % 2:
            table.maintenance.compact()
    return commits


def shown(table: Table, **options: object) -> set[int]:
    return set(table.scan(**options).to_polars()["n"])  # type: ignore[arg-type]


def files(table: Table) -> set[str]:
    return {stat.path for stat in store_of(table).walk("") if not stat.path.endswith("metadata")}


def named(table: Table) -> set[str]:
    return set(table.inspect.files()["path"].to_pylist())


def test_what_is_kept_stays_exact_and_what_is_not_is_refused(table: Table) -> None:
    commits = history(table)
    before = {n: shown(table, as_of=commit) for n, commit in enumerate(commits)}
    was = files(table)

    done = table.maintenance.clean(commits=2, readers=NONE)

    assert done.since == commits[4].completed_at
    assert done.files == len(was - files(table)) > 0
    assert files(table) < was
    assert [shown(table, as_of=commit) for commit in commits[4:]] == [before[4], before[5]]
    for commit in commits[:4]:
        for point in (commit, commit.completed_at, commit.version):
            with pytest.raises(SnapshotExpiredError, match=f"oldest={done.since}"):
                table.scan(as_of=point)
    with pytest.raises(SnapshotExpiredError, match=OLDEST):
        table.diff(commits[0], commits[5])
    assert shown(table) == {5}
    assert table.scan().count() == 10


def test_a_dry_run_says_the_same_and_does_nothing(table: Table) -> None:
    history(table)
    was, version = files(table), table.version
    said = table.maintenance.clean(2 * HOUR, dry_run=True)
    assert said.dry_run
    assert (files(table), table.version) == (was, version)
    done = table.maintenance.clean(2 * HOUR)
    assert (done.since, done.files, done.bytes, done.spared) == (said.since, said.files, said.bytes, said.spared)
    assert done.files > 0


def test_the_mark_moves_without_files_to_remove_and_never_goes_back(table: Table) -> None:
    commits = [write(table, n) for n in range(3)]
    done = table.maintenance.clean(commits=1)
    assert (done.since, done.files) == (commits[2].completed_at, 0)
    with pytest.raises(SnapshotExpiredError, match=OLDEST):
        table.scan(as_of=commits[1])
    version = table.version
    assert table.maintenance.clean(commits=3).since == done.since
    assert table.version == version, "there was nothing to say"


def test_where_both_are_given_both_are_kept(table: Table) -> None:
    commits = history(table)
    assert table.maintenance.clean(NONE, commits=3, dry_run=True).since == commits[3].completed_at
    assert table.maintenance.clean(4 * HOUR, commits=1, dry_run=True).since < commits[3].completed_at
    assert table.maintenance.clean(commits=100, dry_run=True).since == "19700101000000000"


def test_by_default_it_keeps_what_the_policies_of_the_table_say(table: Table) -> None:
    commits = history(table, 3)
    assert table.maintenance.clean(dry_run=True).since < commits[0].completed_at, "seven days"
    table.set_properties({"crdt_mor.retention": "30m"})
    assert table.maintenance.clean(dry_run=True).since > commits[2].completed_at
    table.set_properties({"crdt_mor.retention": "forever"})
    with pytest.raises(InvalidInputError, match="keep all history"):
        table.maintenance.clean()


def test_readers_that_began_lately_are_spared(table: Table) -> None:
    history(table)
    reader = table.scan()
    table.upsert(pl.DataFrame({"id": range(10), "n": [6] * 10}))
    table.maintenance.compact()
    spared = table.maintenance.clean(NONE)
    assert spared.spared > 0
    assert set(reader.to_polars()["n"]) == {5}
    table.environment.sleep(3601)
    assert table.maintenance.clean(NONE).files == spared.spared
    assert files(table) == named(table), "what the latest snapshot needs is all there is"
    with pytest.raises(SnapshotExpiredError, match="file="):
        reader.to_polars()


def test_a_transaction_keeps_its_view_however_long_it_takes(table: Table) -> None:
    history(table, 3)
    with table.transaction() as tx:
        expected = tx.scan().to_polars().sort("id")
        for n in range(10, 16):
            write(table, n)
            table.maintenance.compact()
            table.maintenance.clean(NONE, readers=NONE)
            assert tx.scan().to_polars().sort("id").equals(expected)
            tx.upsert(pl.DataFrame({"id": [n], "n": [n]})) if n == 15 else None
    assert shown(table) == {15}


def test_changes_go_on_from_what_is_kept_and_are_refused_before_it(table: Table) -> None:
    commits = history(table)
    old = table.changes(until=commits[1]).checkpoint
    new = table.changes(until=commits[4]).checkpoint
    table.maintenance.clean(commits=2, readers=NONE)
    with pytest.raises(CheckpointExpiredError, match=r"scan the table.*new checkpointLocation.*oldest=") as refused:
        table.changes(since=old)
    assert old in str(refused.value)
    with pytest.raises(CheckpointExpiredError, match="oldest="):
        table.changes(until=old)
    modes: list[dict[str, Any]] = [{}, {"raw": True}, {"images": True}]
    for mode in modes:
        assert 5 in set(pl.DataFrame(table.changes(since=new, **mode).to_arrow())["n"])
    going_on = table.scan().checkpoint
    write(table, 100)
    assert set(pl.DataFrame(table.changes(since=going_on).to_arrow())["n"]) == {100}


def test_changes_since_the_empty_table_are_a_snapshot(table: Table) -> None:
    history(table)
    table.maintenance.clean(commits=2, readers=NONE)
    assert set(pl.DataFrame(table.changes().to_arrow())["n"]) == {5}
    modes: list[dict[str, Any]] = [{"raw": True}, {"images": True}]
    for mode in modes:
        with pytest.raises(CheckpointExpiredError, match="merged"):
            table.changes(**mode).to_arrow()
    batch = table.changes().limited(commits=1)
    assert set(pl.DataFrame(batch.to_arrow())["n"]) == {4}, "it ends where history begins"
    assert set(pl.DataFrame(table.changes(since=batch.checkpoint).to_arrow())["n"]) == {5}


def test_a_table_at_rest_outlives_its_mark(table: Table) -> None:
    """What is as old as the mark, and has not changed since, can still be named by its version or checkpoint."""
    commits = history(table, 3)
    checkpoint, version = table.changes().checkpoint, table.version
    table.maintenance.compact()
    for _ in range(3):
        table.environment.sleep(100 * 3600)
        table.set_properties({"owner": str(table.environment.now_ms())})
        table.maintenance.clean(HOUR)
    assert table.maintenance.clean(HOUR).since > commits[2].completed_at
    assert shown(table, as_of=version) == {2}
    assert table.changes(since=checkpoint).commits == 0
    write(table, 7)
    assert set(pl.DataFrame(table.changes(since=checkpoint).to_arrow())["n"]) == {7}


def test_hudi_is_told(table: Table) -> None:
    history(table)
    done = table.maintenance.clean(commits=2, readers=NONE)
    store = store_of(table)
    told = {s.path.rpartition("/")[2]: s.path for s in store.list(".hoodie/timeline") if ".clean" in s.path}
    requested, inflight, completed = (told[name] for name in sorted(told, key=lambda n: ("_" in n, ".inf" in n)))
    plan = decode_clean_plan(store.read(requested) or b"", requested)
    result = decode_clean(store.read(completed) or b"", completed)
    assert store.read(inflight) == b""
    assert result.earliest_to_retain == done.since
    assert result.files_removed == done.files == sum(len(names) for names in plan.files.values())
    assert table.history().to_pylist()[0]["kind"] == "upkeep"
    assert table.inspect.timeline().to_pylist()[-1]["operation"] == "CLEAN"
    other = Table("simulated", opening=Opening(store=store, environment=table.environment))
    assert other.version == table.version
    write(other, 50)
    assert shown(table) == {50}


def test_a_clean_that_died_is_finished_by_the_next(table: Table) -> None:
    history(table)
    plan = service.schedule(session_of(table), Cleaner(session_of(table), RetentionPolicy(commits=2)).planner)
    assert plan is not None
    other = Table("simulated", opening=Opening(store=store_of(table), environment=table.environment))
    assert other.maintenance.plans.open() == [], "no compaction's"
    done = other.maintenance.clean(commits=2, readers=NONE)
    assert done.files == len(plan.files) > 0
    assert service.open_plans(session_of(other), CLEAN) == []
    assert service.complete(session_of(table), plan, []) is not None, "the first to complete counts"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": timedelta(days=-1)}, "keep must be a time of 0 or more"),
        ({"keep": 7}, "keep must be a time"),
        ({"readers": 7}, "readers must be a time"),
        ({"commits": 0}, "at least 1"),
        ({"commits": True}, "at least 1"),
    ],
)
def test_wrong_arguments_are_named(table: Table, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        table.maintenance.clean(**arguments)  # type: ignore[arg-type]


# --- what else is kept ------------------------------------------------------------------------------------------------


def savepoint(table: Table, paths: set[str]) -> str:
    """Put a savepoint of Hudi's that names these files; its path."""
    names: dict[str, list[str]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        names.setdefault(partition, []).append(name)
    partitions: dict[str, object] = {
        partition: {"partitionPath": partition, "savepointDataFile": found} for partition, found in names.items()
    }
    path = ".hoodie/timeline/20231114221320000_20231114221320002.savepoint"
    store_of(table).put(path, savepoints.savepoint(partitions))
    return path


def test_what_a_savepoint_of_hudis_names_stays_until_it_is_gone(table: Table) -> None:
    commits = history(table)
    saved = set(table.inspect.files(commits[1].completed_at)["path"].to_pylist())
    path = savepoint(table, saved)
    done = table.maintenance.clean(NONE, readers=NONE)
    assert done.files > 0
    assert saved <= files(table)
    assert done.spared == len(saved - named(table))
    store_of(table).delete(path)
    again = Table("again", opening=Opening(store=store_of(table), environment=table.environment))
    assert again.maintenance.clean(NONE, readers=NONE).files == done.spared
    assert files(table) == named(table)


def test_a_file_that_cannot_be_deleted_is_left_to_the_next_clean(simulated: Simulated) -> None:
    store = ScriptedStore(simulated.store, refusing("delete", of=lambda path: not path.startswith(".hoodie")))
    table = Table.create(
        "refusing", SCHEMA, key="id", buckets=1, opening=Opening(store=store, environment=simulated.environment)
    )
    history(table)
    was = files(table)
    done = table.maintenance.clean(NONE, readers=NONE)
    assert (done.files, done.bytes) == (0, 0)
    assert done.failed > 0
    assert files(table) == was
    assert service.open_plans(session_of(table), CLEAN) == [], "it is completed all the same"
    store.script = refusing()
    again = table.maintenance.clean(NONE, readers=NONE)
    assert (again.files, again.failed) == (done.failed, 0)
    assert files(table) == named(table)


def test_a_refused_file_of_a_commit_that_the_table_forgot_is_left_to_a_sweep(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 6)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 2)
    store = ScriptedStore(simulated.store, refusing())
    table = Table.create(
        "refusing", SCHEMA, key="id", buckets=1, opening=Opening(store=store, environment=simulated.environment)
    )
    history(table, 12)
    table.maintenance.archive(keep_commits=2)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    store.script = refusing("delete", of=lambda path: not path.startswith(".hoodie"))
    done = table.maintenance.clean(NONE, readers=NONE)
    assert done.failed > 0
    assert tail_of(table).retention.dropped_count > 0
    store.script = refusing()
    left = len(files(table) - named(table))
    assert table.maintenance.clean(NONE, readers=NONE).files < done.failed == left
    assert files(table) > named(table)
    table.environment.sleep(120)
    table.maintenance.maintain()
    assert files(table) == named(table)


def test_stable_changes_go_on_behind_a_straggler(table: Table) -> None:
    """The logs of commits that were requested after it stay, however often they were compacted since."""
    history(table, 2)
    with table.transaction() as straggler:
        straggler.upsert(pl.DataFrame({"id": [1000], "n": [1000]}))
        checkpoint = table.changes(consistency="stable").checkpoint
        before = table.scan(consistency="stable").to_polars().sort("id")
        for n in range(10, 14):
            table.upsert(pl.DataFrame({"id": [n], "n": [n]}))
            table.environment.sleep(60)
            table.maintenance.compact()
            done = table.maintenance.clean(NONE, readers=NONE)
        assert done.files > 0, "the base files in between"
        assert table.scan(consistency="stable").to_polars().sort("id").equals(before)
    changed = pl.DataFrame(table.changes(since=checkpoint, consistency="stable").to_arrow())
    assert sorted(changed["id"]) == [10, 11, 12, 13, 1000]
    raw = pl.DataFrame(table.changes(since=checkpoint, consistency="stable", raw=True).to_arrow())
    assert sorted(raw["id"]) == [10, 11, 12, 13, 1000]
    images = pl.DataFrame(table.changes(since=checkpoint, consistency="stable", images=True).to_arrow())
    assert sorted(images.select("_change_type", "id").rows()) == [("insert", n) for n in (10, 11, 12, 13, 1000)]


def test_later_marks_of_single_file_groups_leave_the_others_alone(simulated: Simulated) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("day", pa.string())])
    table = simulated.create(schema, key="id", buckets=1, partition_by="day")
    rows = {"id": [1, 2], "day": ["mon", "tue"]}
    first = table.upsert(pl.DataFrame({**rows, "n": [0, 0]}))
    table.maintenance.compact()
    checkpoint = table.scan().checkpoint
    table.upsert(pl.DataFrame({**rows, "n": [1, 1]}))
    table.maintenance.compact()
    monday = next((f["partition"], f["file_id"]) for f in table.inspect.files().to_pylist() if "mon" in f["partition"])
    for_ever = RetentionPolicy(10**12, readers_ms=10**12)
    done = Cleaner(session_of(table), for_ever, lambda value: {monday: value.clock}).clean()
    assert done.files > 0
    assert {path.rpartition("/")[0] for path in files(table) - named(table)} == {"day=tue"}
    assert table.scan(as_of=first, filter="day = 'tue'").to_polars()["n"].to_list() == [0]
    assert table.scan(as_of=first, filter="day = 'tue'").count() == 1
    reads: list[Callable[[Scan], object]] = [Scan.to_arrow, Scan.count, lambda scan: scan.parts(1)[0].to_arrow()]
    for read in reads:
        with pytest.raises(SnapshotExpiredError, match="erased"):
            read(table.scan(as_of=first, filter="day = 'mon'"))
    with pytest.raises(CheckpointExpiredError, match="erased"):
        table.changes(since=checkpoint).to_arrow()
    assert sorted(table.scan().to_polars()["n"]) == [1, 1]
    assert pl.DataFrame(table.changes().to_arrow()).height == 2


def test_an_executor_that_comes_when_a_clean_has_removed_what_its_plan_replaced(table: Table) -> None:
    write(table, 0)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.compact(plan)
    write(table, 1)
    table.maintenance.compact()
    assert table.maintenance.clean(NONE, readers=NONE).files > 0
    assert table.maintenance.plans.execute(plan) == []
    done = table.maintenance.plans.complete(plan, [])
    assert done is not None
    assert done.barrier == plan.barrier
    assert files(table) == named(table)
    assert shown(table) == {1}
