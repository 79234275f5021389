"""Compaction: plans are frozen, anybody may execute them, stragglers neither stop it nor lose; no answer changes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from crdt_mor import Commit, InvalidInputError, Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError
from crdt_mor.log.paths import STAGED, TICKET
from crdt_mor.model.names import data_file_name
from crdt_mor.payloads import PartialUpdate
from crdt_mor.services import compaction
from crdt_mor.store import MemoryStore
from crdt_mor.store.protocol import Store
from crdt_mor.write.log_files import put_chunks
from tests.simulated import Simulated
from tests.stores import ScriptedStore, first
from tests.table.compacting import close, every_answer, open_write, remove
from tests.table.helpers import SCHEMA, Make, Place, data_files, files, frame, rows
from tests.tiers import only

MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
}


@pytest.fixture(params=MERGES)
def table(make: Make, request: pytest.FixtureRequest) -> Table:
    """A table of each merge: the first is compacted in the first form, the others in the second."""
    return make(buckets=4, **MERGES[request.param])


def kinds(table: Table) -> list[str]:
    return sorted(set(table.inspect.files()["kind"].to_pylist()))


def test_compaction_folds_logs_into_base_files_and_changes_no_answer(table: Table) -> None:
    commits = [table.upsert(frame(("a", "x", i), (f"k{i}", "x", i))) for i in range(4)]
    commits.append(remove(table, "k1"))
    before = every_answer(table, commits)
    done = table.maintenance.compact()
    assert len(done) == 1
    assert (done[0].file_groups, done[0].rows, done[0].carried) == (4, 4, 0)
    assert kinds(table) == ["base"]
    assert every_answer(table, commits) == before
    assert table.maintenance.compact() == [], "there is nothing left to do"
    commits.append(table.upsert(frame(("a", "y", 9))))
    before = every_answer(table, commits)
    assert table.maintenance.compact()[0].file_groups == 1
    assert every_answer(table, commits) == before


def test_sizes_are_of_the_files_that_each_version_reads(table: Table) -> None:
    versions = [0]
    for number in range(3):
        versions.append(table.upsert(frame(("a", "x", number), (f"k{number}", "x", number))).version)
        table.maintenance.compact()
        versions.append(table.version)
    for version, found in zip(versions, table.inspect.sizes(versions).to_pylist(), strict=True):
        files = table.inspect.files(as_of=version).to_pylist()
        bases = [file["bytes"] for file in files if file["kind"] == "base"]
        logs = [file["bytes"] for file in files if file["kind"] != "base"]
        sizes = {"base_bytes": sum(bases), "log_bytes": sum(logs), "bases": len(bases), "logs": len(logs)}
        assert found == {"version": version, **sizes}
    table.maintenance.clean(timedelta(0))
    assert table.inspect.sizes(versions)["version"].to_pylist() == versions[-2:]
    for wrong in (["now"], "1", [True]):
        with pytest.raises(InvalidInputError, match=r"pass a list of numbers.* versions="):
            table.inspect.sizes(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("ordering", [pa.uint64(), pa.decimal128(23, 0), pa.decimal128(38, 15)], ids=str)
def test_the_greatest_ordering_values_of_deletes_are_carried_beside_a_pending_write(ordering: pa.DataType) -> None:
    schema = pa.schema([("id", pa.string()), ("o", ordering)])
    table = Table.create("t", schema, key="id", ordering="o", buckets=1, opening=Opening(store=MemoryStore()))
    most, newer = (pa.table({"id": ["a"], "o": pa.array([n], ordering)}) for n in (2**64 - 1, 2**64 - 2))
    with table.transaction() as pending:
        table.upsert(most)
        table.delete(most)
        assert table.maintenance.compact()[0].carried == 1
        pending.upsert(newer)
    table.maintenance.compact()
    assert table.count() == 0, "the delete has the greater ordering value"


@pytest.mark.parametrize("table", only(["partial"], MERGES), indirect=True)
def test_a_straggler_never_stops_compaction_never_loses_a_row_and_never_wins_late(table: Table) -> None:
    commits = [table.upsert(frame(("a", "first", 1), ("b", "first", 1)))]
    straggler = open_write(table, ("a", "straggler", 5), ("own", "straggler", 5))
    commits.append(table.upsert(frame(("a", "newer", 6))))
    commits.append(remove(table, "b"))
    for again in (False, True):
        before = every_answer(table, commits)
        done = table.maintenance.compact()
        assert len(done) == 1
        assert again or done[0].carried > 0, "what the straggler could still change is carried"
        assert every_answer(table, commits) == before
        commits.append(table.upsert(frame(("c", "x", len(commits)))))
    commits.append(close(straggler))
    before = every_answer(table, commits)
    assert rows(table, "id", "region", filter="id <> 'c'") == [("a", "newer"), ("own", "straggler")]
    done = table.maintenance.compact()
    assert done[0].carried == 0, "nothing is pending any more, so it comes to rest"
    assert kinds(table) == ["base"]
    assert every_answer(table, commits) == before


@pytest.mark.costly
def test_a_carry_does_not_grow_with_the_number_of_commits(table: Table) -> None:
    straggler = open_write(table, ("s", "x", 1))
    carried = []
    for i in range(4):
        for j in range(3):
            table.upsert(frame(("a", "x", 10 * i + j), ("b", "x", 10 * i + j)))
        remove(table, "b")
        carried.append(table.maintenance.compact()[0].carried)
    assert len(set(carried)) == 1
    close(straggler)
    assert rows(table, "id", "n") == [("a", 32), ("s", 1)]


@pytest.mark.costly
def test_a_plan_is_frozen_whatever_happens_before_it_is_executed(table: Table, place: Place) -> None:
    straggler = open_write(table, ("a", "straggler", 2))
    commits = [table.upsert(frame(("a", "x", 1), ("b", "x", 1)))]
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    assert len(plan.pending) == 1
    commits += [table.upsert(frame(("a", "later", 3))), remove(table, "b"), close(straggler)]
    commits.append(table.upsert(frame(("d", "x", 1)).append_column("new", pa.array([1])), schema_mode="merge"))
    before = every_answer(table, commits)
    other = place.open()
    assert other.maintenance.plans.open() == [plan]
    outputs = other.maintenance.plans.execute(plan)
    assert every_answer(table, commits) == before, "outputs are invisible until the plan completes"
    assert table.maintenance.compact(plan)[0].barrier == plan.barrier
    assert every_answer(table, commits) == before
    assert {file.path for file in outputs} <= data_files(place)
    assert every_answer(other, commits) == before


def test_several_executors_on_one_plan_write_the_same_files_and_the_first_completes(table: Table, place: Place) -> None:
    commits = [table.upsert(frame(("a", "x", i), ("b", "x", i))) for i in range(3)]
    straggler = open_write(table, ("a", "straggler", 0))
    commits.append(table.upsert(frame(("a", "y", 9))))
    before = every_answer(table, commits)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    workers = [place.open() for _ in range(3)]
    outputs = [worker.maintenance.plans.execute(plan) for worker in workers]
    assert outputs[0] == outputs[1] == outputs[2]
    done = [worker.maintenance.compact(plan) for worker in workers]
    assert done[0] == done[1] == done[2]
    after = data_files(place)
    assert place.open().maintenance.compact(plan) == done[0], "hours later, and still the same"
    assert data_files(place) == after
    assert [o for o in table.inspect.timeline()["operation"].to_pylist() if o == "COMPACT"] == ["COMPACT"]
    assert every_answer(table, commits) == before
    close(straggler)


def test_an_executor_that_finds_the_base_file_there_still_carries_what_the_plan_does(
    table: Table, place: Place
) -> None:
    commits = [table.upsert(frame(("a", "x", 1), ("b", "x", 1)))]
    straggler = open_write(table, ("a", "straggler", 0))
    commits += [table.upsert(frame(("a", "y", 9))), remove(table, "b")]
    before = every_answer(table, commits)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    outputs = table.maintenance.plans.execute(plan)
    carried = {file.path: place.store.read(file.path) for file in outputs if not file.is_base}
    assert carried
    for path in carried:
        place.store.delete(path)  # the first executor died before it wrote this
    assert place.open().maintenance.plans.execute(plan) == outputs
    assert {path: place.store.read(path) for path in carried} == carried
    table.maintenance.compact(plan)
    assert every_answer(table, commits) == before
    close(straggler)


def test_a_file_group_is_in_one_open_plan_at_most_and_the_oldest_plan_goes_first(table: Table) -> None:
    table.upsert(frame(("a", "x", 1)))
    first = table.maintenance.plans.schedule()
    table.upsert(frame(*((f"k{i}", "x", 1) for i in range(8))))
    second = table.maintenance.plans.schedule()
    assert first is not None
    assert second is not None
    groups = [{*plan.file_groups} for plan in (first, second)]
    assert not groups[0] & groups[1]
    assert table.maintenance.plans.schedule() is None
    done = table.maintenance.compact()
    assert [c.barrier for c in done][:2] == [first.barrier, second.barrier]
    assert len(rows(table)) == 9


def test_a_plan_waits_for_as_many_log_files_as_it_is_told(make: Make) -> None:
    table = make(buckets=1)
    for i in range(3):
        assert table.maintenance.plans.schedule(log_files_min=3) is None
        table.upsert(frame(("a", "x", i)))
    assert table.maintenance.compact(log_files_min=3)[0].rows == 1
    with pytest.raises(InvalidInputError, match="at least 1"):
        table.maintenance.compact(log_files_min=0)


def test_a_cancelled_plan_is_never_completed_and_its_groups_are_free_again(table: Table, place: Place) -> None:
    commits = [table.upsert(frame(("a", "x", 1)))]
    before = every_answer(table, commits)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.plans.execute(plan)
    assert place.open().maintenance.plans.cancel(plan.barrier)
    assert not table.maintenance.plans.cancel("20240101000000001"), "no such plan"
    assert table.maintenance.compact(plan) == []
    assert every_answer(table, commits) == before
    assert table.maintenance.plans.open() == []
    assert table.maintenance.compact()[0].rows == 1
    assert every_answer(table, commits) == before


def test_a_cancelled_plan_leaves_no_file_also_when_it_is_executed_meanwhile(
    table: Table, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    straggler = open_write(table, ("a", "straggler", 0))
    table.upsert(frame(*((f"k{i}", "x", i) for i in range(8))))
    table.delete(keys=["k1"], plain=True)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    logs = data_files(place)

    def put_after_the_cancel(*args: Any) -> Any:
        place.open().maintenance.plans.cancel(plan.barrier)
        return put_chunks(*args)

    monkeypatch.setattr(compaction, "put_chunks", put_after_the_cancel)
    assert table.maintenance.compact(plan) == []
    assert table.maintenance.plans.execute(plan) == [], "a late executor does not even begin"
    monkeypatch.undo()
    assert data_files(place) == logs
    pending = [name for name in files(place) if ".compaction." in name]
    assert pending == []
    close(straggler)


def test_a_fold_that_leaves_no_row_still_opens_a_slice(table: Table) -> None:
    commits = [table.upsert(frame(("a", "x", 1))), remove(table, "a")]
    before = every_answer(table, commits)
    assert table.maintenance.compact()[0].rows == 0
    assert every_answer(table, commits) == before
    assert table.scan().count() == 0
    table.upsert(frame(("a", "y", 0)))
    assert rows(table, "region") == [("y",)]


def test_a_winning_tombstone_is_carried_through_every_compaction(make: Make) -> None:
    table = make(ordering="n")
    table.upsert(frame(("a", "x", 5)))
    table.delete(frame(("a", None, 7)))
    for _ in range(3):
        table.maintenance.compact()
        table.upsert(frame(("a", "older event", 6), ("other", "x", 1)))
        assert rows(table, "id") == [("other",)]
    table.upsert(frame(("a", "newer event", 8)))
    assert rows(table, "id", "n") == [("a", 8), ("other", 1)]


@pytest.mark.costly
@pytest.mark.parametrize("form", MERGES)
def test_compaction_is_right_beside_writers_that_end_in_any_order(make: Make, form: str) -> None:
    table = make(buckets=1, **MERGES[form])
    commits: list[Commit] = []
    writers = [open_write(table, ("all", f"w{i}", 1), (f"own{i}", f"w{i}", 1)) for i in range(4)]
    for i in (2, 0, 3, 1):
        commits.append(close(writers[i]))
        before = every_answer(table, commits)
        table.maintenance.compact()
        assert every_answer(table, commits) == before
    assert rows(table, "region", filter="id = 'all'") == [("w3",)]
    assert table.scan().count() == 5
    assert kinds(table) == ["base"]


def test_a_reader_with_an_older_view_still_finds_its_files(table: Table) -> None:
    table.upsert(frame(("a", "x", 1)))
    scan = table.scan()
    table.upsert(frame(("a", "y", 2)))
    table.maintenance.compact()
    assert scan.to_arrow()["region"].to_pylist() == ["x"]


def test_partitions_are_compacted_each_by_itself(make: Make, place: Place) -> None:
    table = make(partition_by="region", buckets=2)
    table.upsert(frame(*((f"k{i}", region, i) for i in range(6) for region in ("eu", "us"))))
    before = rows(table)
    assert table.maintenance.compact()[0].file_groups == 4
    assert rows(table) == before
    assert {str(Path(name).parent) for name in data_files(place)} == {"region=eu", "region=us"}


def silent(store: Store, no_reply: Mock, lands: bool) -> ScriptedStore:
    """A store that puts a data file, or not, and loses the reply; from then on it answers."""

    def is_staged(path: str) -> bool:
        return data_file_name(path) is not None or (path.startswith(STAGED) and not path.endswith(TICKET))

    return ScriptedStore(store, first("put", is_staged, no_reply, after=lands))


@pytest.fixture
def no_reply() -> Mock:
    return Mock(side_effect=CommitUnknownError("no reply"))


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("logs_only", [False, True], ids=["full", "of logs"])
def test_a_lost_reply_while_files_are_staged_says_that_nothing_was_published(
    simulated: Simulated, no_reply: Mock, logs_only: bool, lands: bool
) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    table.upsert(frame(("a", "x", 1)))
    table.maintenance.compact()
    for n in range(3):
        table.upsert(frame(("a", "x", n)))
    store = silent(simulated.store, no_reply, lands)
    other = Table("simulated", opening=Opening(store=store, environment=simulated.environment))
    with pytest.raises(StorageUnavailableError, match=r"nothing was published, .*Try again\. cause="):
        other.maintenance.compact(logs_only=logs_only)
    assert no_reply.called
    assert other.maintenance.compact()
    assert other.maintenance.plans.open() == []
    assert rows(table, "id", "n") == rows(other, "id", "n") == [("a", 2)]


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("operation", ["upsert", "overwrite"])
def test_so_it_does_to_a_task_of_a_job_which_is_run_again(
    simulated: Simulated, no_reply: Mock, operation: Any, lands: bool
) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    store = silent(simulated.store, no_reply, lands)
    job = Table("simulated", opening=Opening(store=store, environment=simulated.environment)).jobs.plan(
        operation, SCHEMA
    )
    with pytest.raises(StorageUnavailableError, match=r"nothing was published, .*Try again\. cause="):
        job.stage(frame(("a", "x", 1)), task=0, environment=simulated.environment)
    assert no_reply.called
    receipt = job.stage(frame(("a", "x", 2)), task=0, environment=simulated.environment)
    table.jobs.complete(job, [receipt])
    assert rows(table, "id", "n") == [("a", 2)]
    assert simulated.store.list(STAGED) == []
