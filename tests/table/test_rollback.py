"""A write or a plan that is given up by hand: one event, then its files; a process at work on it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import crdt_mor as mor
from tests.inside import run_sweep, session_of
from tests.stores import ScriptedStore, refusing
from tests.table.helpers import SCHEMA, frame


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    table = mor.Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(frame(("a", "eu", 1)))
    return table


def files_of(table: mor.Table, instant: str) -> list[str]:
    """All files whose names bear an instant."""
    return [path.name for path in Path(table.uri).rglob("*") if instant in path.name]


def the_pending(table: mor.Table) -> str:
    (instant,) = table.inspect.pending()["requested_at"].to_pylist()
    return str(instant)


def test_a_pending_write_is_given_up_and_its_writer_is_told(table: mor.Table) -> None:
    other = mor.Table(table.uri)
    write = table.transaction(token=("load", 1))
    write.__enter__().upsert(frame(("a", "eu", 2), ("b", "eu", 2)))
    instant = the_pending(other)
    done = other.maintenance.roll_back(instant)
    assert (done.instant, done.kind, done.application, done.repeated) == (instant, "write", "load", False)
    assert str(done).startswith(f"rolled back the write {instant} of load (process ")
    assert files_of(table, instant) == []
    with pytest.raises(mor.errors.WriterExpiredError, match="a user or a restore rolled the write back"):
        write.__exit__(None, None, None)
    assert files_of(table, instant) == []
    assert table.to_arrow().to_pylist() == frame(("a", "eu", 1)).to_pylist()
    table.upsert(frame(("b", "eu", 2)), token=("load", 1))
    assert table.count() == 2


def test_nothing_holds_stable_reads_back_any_more(table: mor.Table) -> None:
    write = table.transaction()
    write.__enter__()
    table.upsert(frame(("b", "eu", 1)))
    assert table.scan(consistency="stable").count() == 1
    table.maintenance.roll_back(the_pending(table))
    assert table.scan(consistency="stable").count() == 2
    with pytest.raises(mor.errors.WriterExpiredError):
        write.__exit__(None, None, None)


def test_a_job_of_many_processes_is_given_up_with_what_its_tasks_have_staged(table: mor.Table) -> None:
    job = table.jobs.plan("upsert", SCHEMA)
    receipt = job.stage(frame(("b", "eu", 2)), task=0)
    instant = the_pending(table)
    assert files_of(table, instant)
    assert table.maintenance.roll_back(instant).kind == "write"
    assert files_of(table, instant) == []
    with pytest.raises(mor.errors.WriterExpiredError):
        table.jobs.complete(job, [receipt])


def test_an_open_plan_is_cancelled_with_its_outputs(table: mor.Table) -> None:
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    files = table.maintenance.plans.execute(plan)
    done = table.maintenance.roll_back(plan.barrier)
    assert (done.kind, str(done).partition(":")[0]) == (
        "compaction",
        f"cancelled the plan of compaction {plan.barrier}",
    )
    assert not [name for name in files_of(table, plan.barrier) if not name.endswith(".json")]
    assert table.maintenance.plans.complete(plan, files) is None
    assert table.count() == 1


def test_the_moment_names_a_write_as_well(table: mor.Table) -> None:
    table.jobs.plan("upsert", SCHEMA).stage(frame(("b", "eu")), task=0)
    (since,) = table.inspect.pending()["since"].to_pylist()
    assert table.maintenance.roll_back(since).kind == "write"


def test_what_was_given_up_before_is_said_to_be_also_once_it_is_forgotten(table: mor.Table) -> None:
    table.jobs.plan("upsert", SCHEMA).stage(frame(("b", "eu")), task=0)
    instant = the_pending(table)
    table.maintenance.roll_back(instant)
    again = table.maintenance.roll_back(instant)
    assert (again.kind, again.repeated) == ("write", True)
    session = session_of(table)
    for _ in range(2):
        session.remember(run_sweep(table))
    assert session.tail().rolled_back == ()
    assert table.maintenance.roll_back(instant) == again
    assert str(again) == f"the write {instant} was already given up"
    (told,) = [row for row in table.history().to_pylist() if row["operation"] == "ROLLBACK"]
    assert (told["kind"], told["files"]) == ("upkeep", 0)


def test_a_commit_cannot_be_rolled_back(table: mor.Table) -> None:
    (commit,) = table.history().to_pylist()
    version = table.version
    with pytest.raises(
        mor.InvalidInputError, match=r"only pending writes can be rolled back.*operation=UPSERT"
    ) as error:
        table.maintenance.roll_back(commit["requested_at"])
    assert f"completed={commit['completed_at']}" in str(error.value)
    assert (table.version, table.count()) == (version, 1)


def test_an_instant_that_nobody_knows_is_refused_and_nothing_happens(table: mor.Table) -> None:
    version = table.version
    with pytest.raises(mor.InvalidInputError, match=r"inspect\.pending.*instant=20200101000000000"):
        table.maintenance.roll_back("20200101000000000")
    assert table.version == version


@pytest.mark.parametrize("instant", ["", "2020", "20201301000000000", 3, None, "２" * 17])
def test_what_is_no_instant_is_refused(table: mor.Table, instant: object) -> None:
    with pytest.raises(mor.InvalidInputError):
        table.maintenance.roll_back(instant)  # type: ignore[arg-type]


def test_files_that_may_not_be_removed_are_counted(table: mor.Table) -> None:
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.plans.execute(plan)
    sticky = refusing("delete", of=lambda path: path.endswith(".parquet"))
    other = mor.Table(table.uri, opening=mor.Opening(store=ScriptedStore(mor.store.LocalStore(table.uri), sticky)))
    done = other.maintenance.roll_back(plan.barrier)
    assert done.left == 1
    assert str(done).endswith("1 of its files could not be removed; the next sweep tries again")
    again = table.maintenance.roll_back(plan.barrier)
    assert (again.repeated, again.left) == (True, 1)
    run_sweep(table)
    assert table.maintenance.roll_back(plan.barrier).left == 0
