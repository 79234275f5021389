"""`maintain`: what is due by the table's policies is done, says why, and is safe beside any number of others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.errors import PayloadError
from crdt_mor.model.instant import from_ms
from crdt_mor.model.policies import Policies
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.planners.erasure import Erasure
from crdt_mor.services import erasure, maintain_inline, service
from crdt_mor.services import maintain as engine
from crdt_mor.services.clean import Cleaner
from crdt_mor.testing.faults import ProcessDied
from tests.inside import session_of
from tests.simulated import Simulated
from tests.stores import ScriptedStore, WatchedStore, refusing
from tests.table.helpers import SCHEMA, Make, Place, files, frame, rows

T = TypeVar("T")

EAGER = {"crdt_mor.compaction.log_files": "2"}


@pytest.fixture
def eager(make: Make) -> Table:
    """A table of one file group that is compacted when it has two logs."""
    table = make(buckets=1)
    table.set_properties(EAGER)
    return table


def write(table: Table, count: int) -> list[mor.Commit]:
    return [table.upsert(frame(("a", "x", i), (f"k{i}", "x", i))) for i in range(count)]


def done(maintained: mor.results.Maintained) -> list[tuple[str, str]]:
    return [(action.service, action.state) for action in maintained.actions]


def kinds(table: Table) -> list[str]:
    return sorted(table.inspect.files()["kind"].to_pylist())


def test_what_is_due_is_compacted_and_the_result_says_why(eager: Table) -> None:
    commits = write(eager, 2)
    before = [rows(eager), *(rows(eager, as_of=commit) for commit in commits)]
    found = eager.maintenance.maintain()
    compaction = found.actions[0]
    assert (compaction.service, compaction.state) == ("compaction", "done")
    assert compaction.why == "file group 00000000 has 2 logs; the policy is 2"
    assert (compaction.file_groups, compaction.rows, compaction.files_written) == (1, 3, 1)
    assert found.ok
    assert found.bytes_written == compaction.bytes_written > 0
    assert "since file group 00000000 has 2 logs; the policy is 2: 1 file group, wrote 1 file" in str(found)
    assert kinds(eager) == ["base"]
    assert [rows(eager), *(rows(eager, as_of=commit) for commit in commits)] == before


def test_what_is_not_due_is_left_alone_and_nothing_is_published(eager: Table) -> None:
    eager.maintenance.maintain()
    write(eager, 1)
    version = eager.version
    again = eager.maintenance.maintain()
    assert again.actions == ()
    assert str(again).startswith("nothing is due; compaction is due when a file group has 2 logs, now at most 1 (")
    assert eager.version == version
    assert kinds(eager) == ["log"]


def test_maintain_with_nothing_due_names_each_threshold_and_how_near_it_is(make: Make) -> None:
    table = make(buckets=1)
    table.maintenance.maintain()
    write(table, 3)
    done = table.maintenance.maintain()
    assert (done.actions, done.waits[0]) == (
        (), "compaction is due when a file group has 10 logs, now at most 3 (crdt_mor.compaction.log_files)",
    )  # fmt: skip
    assert [one.rpartition("(")[2] for one in done.waits[1:]] == [
        "crdt_mor.compaction.log_bytes, crdt_mor.compaction.log_ratio)", "crdt_mor.compaction.age)",
        "clean is due when history is older than 7d",
    ]  # fmt: skip
    assert str(done).startswith(
        f"nothing is due; {done.waits[0]}; compaction is due when a file group's logs have 1.0 MiB and 1 times "
    )


def test_upsert_into_a_table_that_nobody_maintains_warns_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain_inline, "MANY_COMMITS", 3)
    table = make(buckets=1)
    write(table, 2)
    with pytest.warns(mor.errors.UpkeepWarning, match=r"run table\.maintenance\.maintain\(\).* commits=3") as told:
        write(table, 3)
    assert [warning.filename for warning in told] == [__file__]


def test_upsert_into_a_table_that_is_never_archived_warns_of_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain_inline, "MANY_COMMITS", 3)
    table = make(buckets=1)
    table.set_properties({"crdt_mor.archive.commits": "off"})
    write(table, 4)


def test_a_dry_run_says_what_is_due_and_changes_nothing(eager: Table, place: Place) -> None:
    write(eager, 3)
    plan = eager.maintenance.plans.schedule()
    assert plan is not None
    before = files(place)
    found = eager.maintenance.maintain(dry_run=True)
    assert found.dry_run
    assert {state for _, state in done(found)} == {"due"}
    assert found.actions[0].why.startswith(f"plan {plan.barrier} has been open for")
    eager.maintenance.compact(plan)
    write(eager, 2)
    found = eager.maintenance.maintain(dry_run=True)
    assert found.actions[0].why == "file group 00000000 has 2 logs; the policy is 2"
    assert before.keys() - files(place).keys() == set()
    assert kinds(eager) == ["base", "log", "log"]


def test_a_dry_run_writes_no_object(eager: Table, place: Place) -> None:
    write(eager, 3)
    before = files(place)
    place.open().maintenance.maintain(dry_run=True)
    assert files(place) == before


READ_ONLY = refusing("put", "copy", "delete", "touch", "now_ms")
"""The store of a user who may only read: the clock of a disk is the time of a file that is touched."""


def test_a_user_who_may_only_read_is_told_what_is_due(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    table.set_properties({**EAGER, "crdt_mor.retention": "1h", "crdt_mor.readers": "0s"})
    first = write(table, 2)[0]
    table.maintenance.compact()
    simulated.environment.sleep(7_200)
    write(table, 2)
    table.maintenance.compact()
    simulated.environment.sleep(7_200)
    write(table, 2)
    session = session_of(table)
    erasure.note(session, Erasure(first.requested_at, (), "of another table"))
    erasure.note(session, Erasure(from_ms(1), (), session.config.table_id))  # of a delete that was rolled back

    def told(table: Table) -> list[str]:
        found = table.maintenance.maintain(dry_run=True)
        assert {action.state for action in found.actions} == {"due"}
        would = [table.maintenance.clean(dry_run=True), table.maintenance.restore(first, dry_run=True)]
        return [*map(str, (*found.actions, *would))]

    reader = Table(
        "simulated", opening=Opening(store=ScriptedStore(simulated.store, READ_ONLY), environment=simulated.environment)
    )
    assert told(reader) == told(table)
    assert any("clean due" in said for said in told(reader))


def test_an_open_plan_that_somebody_left_is_finished_first(eager: Table, place: Place) -> None:
    write(eager, 2)
    left = eager.maintenance.plans.schedule()
    assert left is not None
    write(eager, 2)
    found = place.open().maintenance.maintain()
    assert found.actions[0].why.startswith(f"plan {left.barrier} has been open for ")
    assert found.actions[1].why == "file group 00000000 has 2 logs; the policy is 2"
    assert kinds(eager) == ["base"]
    assert eager.maintenance.plans.open() == []


def test_many_groups_are_compacted_in_bounded_plans_and_each_is_seen_by_itself(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PLAN_GROUPS", 3)
    table = make(buckets=8)
    table.set_properties({"crdt_mor.compaction.log_files": "1"})
    table.upsert(frame(*((f"k{i}", "x", i) for i in range(64))))
    found = [action for action in table.maintenance.maintain().actions if action.service == "compaction"]
    assert [action.file_groups for action in found] == [3, 3, 2]
    assert [action.why for action in found] == [f"{count} file groups are due" for count in (3, 3, 2)]
    assert len({why for action in found for why in action.details}) == 8
    assert table.count() == 64


def test_a_plan_is_bounded_by_bytes_but_takes_at_least_one_group(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PLAN_BYTES", 1)
    table = make(buckets=2)
    table.set_properties({"crdt_mor.compaction.log_files": "1"})
    table.upsert(frame(*((f"k{i}", "x", i) for i in range(8))))
    found = [action for action in table.maintenance.maintain().actions if action.service == "compaction"]
    assert [action.file_groups for action in found] == [1, 1]


def test_a_plan_that_cannot_be_executed_is_named_and_everything_else_is_done(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(buckets=2)
    table.set_properties({"crdt_mor.compaction.log_files": "1"})
    table.upsert(frame(("a", "x", 1)))
    broken = table.maintenance.plans.schedule()
    assert broken is not None
    table.upsert(frame(*((f"k{i}", "x", i) for i in range(8))))
    execute = service.execute

    def fail(session: Any, how: Any, plan: Any, **options: Any) -> Any:
        if plan.barrier == broken.barrier:
            raise PayloadError("the payload raised")
        return execute(session, how, plan, **options)

    monkeypatch.setattr(service, "execute", fail)
    found = table.maintenance.maintain()
    assert not found.ok
    assert (found.actions[0].state, found.actions[0].error) == ("failed", "the payload raised")
    assert found.actions[1].state == "done"
    assert found.actions[1].file_groups == 1
    monkeypatch.undo()
    assert table.maintenance.maintain().ok
    assert table.count() == 9


@pytest.mark.parametrize("at", ["scheduled", "executed"])
def test_who_is_killed_in_the_middle_leaves_what_the_next_run_finishes(
    eager: Table, place: Place, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    write(eager, 2)
    before = rows(eager)
    monkeypatch.setattr(service, "execute" if at == "scheduled" else "complete", Mock(side_effect=ProcessDied))
    with pytest.raises(ProcessDied):
        eager.maintenance.maintain()
    monkeypatch.undo()
    assert len(place.open().maintenance.plans.open()) == 1
    found = place.open().maintenance.maintain()
    assert found.actions[0].why.startswith("plan ")
    assert kinds(eager) == ["base"]
    assert rows(eager) == before
    assert place.open().maintenance.maintain().actions == ()


def test_two_at_once_do_each_thing_once(eager: Table, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    write(eager, 2)
    before, other, execute = rows(eager), place.open(), service.execute
    inner: list[mor.results.Maintained] = []

    def beside(session: Any, how: Any, plan: Any, **options: Any) -> Any:
        monkeypatch.setattr(service, "execute", execute)
        inner.append(other.maintenance.maintain())  # while this one is about to execute its plan
        return execute(session, how, plan, **options)

    monkeypatch.setattr(service, "execute", beside)
    outer = eager.maintenance.maintain()
    assert inner[0].ok
    assert outer.ok
    assert inner[0].actions[0].why.startswith("plan ")
    assert [o for o in eager.inspect.timeline()["operation"].to_pylist() if o == "COMPACT"] == ["COMPACT"]
    assert rows(eager) == before


def test_a_sweep_is_due_when_the_last_one_is_a_while_ago(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    write(table, 1)
    assert done(table.maintenance.maintain()) == []
    simulated.environment.sleep(300)
    found = table.maintenance.maintain()
    assert [(action.service, action.why) for action in found.actions] == [("sweep", "the last one was 5m ago")]
    assert done(table.maintenance.maintain()) == []


def test_a_table_without_new_commits_is_swept_once_an_hour(simulated: Simulated) -> None:
    def services(table: Table) -> list[str]:
        return [action.service for action in table.maintenance.maintain().actions]

    table = simulated.create(SCHEMA, key="id", buckets=1)
    write(table, 1)
    simulated.environment.sleep(300)
    assert services(table) == ["sweep"]
    version = table.version
    for _ in range(11):
        simulated.environment.sleep(300)
        assert services(table) == []
    assert table.version == version
    simulated.environment.sleep(600)
    assert services(table) == ["sweep"]
    write(table, 2)
    simulated.environment.sleep(61)
    assert services(table) == ["sweep"]
    begun = from_ms(simulated.environment.now_ms())
    session_of(table).store.put(f".hoodie/timeline/{begun}.deltacommit.requested", b"")
    simulated.environment.sleep(61)
    assert "sweep" in services(table), "Hudi began a write"


def test_how_much_is_kept_is_a_time_and_a_number(eager: Table) -> None:
    for wrong in (7, "7d", timedelta(days=-1)):
        with pytest.raises(InvalidInputError, match="keep must be a time of 0 or more"):
            eager.maintenance.maintain(keep=wrong)  # type: ignore[arg-type]
    for number in (0, True, "10"):
        with pytest.raises(InvalidInputError, match="number of last commits to keep"):
            eager.maintenance.maintain(keep_commits=number)  # type: ignore[arg-type]


def hourly(table: Table, count: int) -> list[mor.Commit]:
    """So many commits, an hour apart, the last one an hour ago."""
    commits = []
    for i in range(count):
        commits.append(table.upsert(frame(("a", "x", i))))
        table.environment.sleep(3600)
    return commits


def cleans(maintained: mor.results.Maintained) -> list[mor.results.Upkeep]:
    return [action for action in maintained.actions if action.service == "clean"]


def test_history_goes_when_it_is_older_than_the_table_keeps_it_and_what_it_freed_is_told(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    table.set_properties({"crdt_mor.retention": "2h", "crdt_mor.readers": "0s", **EAGER})
    commits = hourly(table, 5)
    due = cleans(table.maintenance.maintain(dry_run=True))
    assert [(action.state, action.why) for action in due] == [("due", "history is kept for 2h, and some is older")]
    assert rows(table, "n", as_of=commits[0]) == [(0,)]
    found = table.maintenance.maintain()
    assert [action.state for action in cleans(found)] == ["done"]
    with pytest.raises(mor.SnapshotExpiredError):
        table.scan(as_of=commits[0]).to_arrow()
    assert rows(table, "n", as_of=commits[-1]) == [(4,)]
    table.environment.sleep(3 * 3600)
    found = table.maintenance.maintain()
    assert found.files_removed == 5, "the logs that the compaction has folded are in no view that is kept"
    assert found.bytes_removed > 0
    assert "clean done, since history is kept for 2h, and some is older: removed 5 files, " in str(found)
    version = table.version
    assert cleans(table.maintenance.maintain()) == []
    assert table.version == version
    table.environment.sleep(24 * 3600)
    assert cleans(table.maintenance.maintain()) == [], "no commit has become too old, and a clean is none"


def test_what_a_call_keeps_goes_before_what_the_table_says(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    table.set_properties({"crdt_mor.retention": "forever", "crdt_mor.retention.commits": "1", **EAGER})
    commits = hourly(table, 4)
    assert cleans(table.maintenance.maintain()) == [], "for ever is longer than any number of commits"
    found = cleans(table.maintenance.maintain(keep_commits=2))
    assert found[0].why == "history is kept for 2 commits, and some is older"
    assert rows(table, "n", as_of=commits[2]) == [(2,)]
    with pytest.raises(mor.SnapshotExpiredError):
        table.scan(as_of=commits[0]).to_arrow()


@pytest.mark.parametrize("open_before", [False, True])
def test_a_clean_lists_the_table_once_unless_it_finishes_another(simulated: Simulated, open_before: bool) -> None:
    store = WatchedStore(simulated.store)
    table = Table.create(
        "listing", SCHEMA, key="id", buckets=1, opening=Opening(store=store, environment=simulated.environment)
    )
    hourly(table, 4)
    table.maintenance.compact()
    hourly(table, 4)
    table.maintenance.compact()
    if open_before:
        service.schedule(session_of(table), Cleaner(session_of(table), RetentionPolicy(keep_ms=3 * 3_600_000)).planner)
    run = engine._Run(session_of(table), Policies(keep_ms=2 * 3_600_000, readers_ms=0), dry_run=False)
    store.calls.clear()
    (action,) = engine._clean(run)  # without the sweep, which lists the table as well
    assert (action.state, len(store.paths("walk"))) == ("done", 1 + open_before)
    assert table.maintenance.clean(timedelta(hours=2), readers=timedelta(0)).files == 0


@pytest.mark.slow
def test_a_clean_that_is_not_due_lists_the_table_only_where_a_file_could_go(simulated: Simulated) -> None:
    store = WatchedStore(simulated.store)
    table = Table.create(
        "listing", SCHEMA, key="id", buckets=1, opening=Opening(store=store, environment=simulated.environment)
    )
    hourly(table, 4)
    table.maintenance.compact()
    run = engine._Run(session_of(table), Policies(keep_ms=24 * 3_600_000, readers_ms=0), dry_run=False)
    store.calls.clear()
    assert (list(engine._clean(run)), len(store.paths("walk"))) == ([], 0), "all files are of the history that is kept"
    hourly(table, 48)
    table.environment.sleep(1800)  # no commit lies at the mark
    assert table.maintenance.clean(timedelta(hours=24), readers=timedelta(0)).files > 0
    run = engine._Run(session_of(table), Policies(keep_ms=24 * 3_600_000, readers_ms=0), dry_run=False)
    store.calls.clear()
    assert (list(engine._clean(run)), len(store.paths("walk"))) == ([], 1), (
        "files that the value names may be gone, or not"
    )


def test_each_thing_that_was_done_is_told(eager: Table) -> None:
    write(eager, 2)
    told: list[mor.observing.Event] = []
    with mor.observe(told.append):
        eager.maintenance.maintain()
    upkeep = [event for event in told if isinstance(event, mor.observing.UpkeepEvent)]
    assert [(event.service, event.state, event.inline) for event in upkeep[:1]] == [("compaction", "done", False)]
    parts = [event for event in told if isinstance(event, mor.observing.PartEvent)]
    assert [(event.parts, event.rows) for event in parts] == [(1, 3)]


def test_the_logs_of_a_group_become_one_where_that_is_asked_for_and_a_compaction_is_not_due(make: Make) -> None:
    table = make(buckets=1)
    write(table, 1)
    table.maintenance.compact()
    table.set_properties({"crdt_mor.log_compaction.log_files": "3"})
    commits = write(table, 3)
    before = [rows(table), *(rows(table, as_of=commit) for commit in commits)]
    found = table.maintenance.maintain()
    assert [(action.service, action.why) for action in found.actions] == [
        ("log_compaction", "file group 00000000 has 3 logs; the policy for a log compaction is 3")
    ]
    assert kinds(table) == ["base", "carry"]
    assert [rows(table), *(rows(table, as_of=commit) for commit in commits)] == before
    assert table.maintenance.maintain().actions == ()
    table.set_properties({"crdt_mor.compaction.log_files": "4"})
    write(table, 3)
    found = table.maintenance.maintain()
    assert [action.service for action in found.actions] == ["compaction"], "a carry at rest counts as a log"
    assert kinds(table) == ["base"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (r"^hoodie\.table\.version=9$", "hoodie.table.version=8", "tables of version 8 can be read, but not written"),
        ("=MERGE_ON_READ$", "=COPY_ON_WRITE", "only merge-on-read tables can be written"),
        (r"^hoodie\.table\.type", "hoodie.table.metadata.partitions=files\nhoodie.table.type", "a metadata table"),
    ],
)
def test_a_table_that_forbids_upkeep_says_so_and_nothing_is_changed(
    make: Make, path: str, before: str, after: str, message: str
) -> None:
    table = make(buckets=1)
    table.set_properties(EAGER)
    write(table, 3)
    properties = Path(path) / ".hoodie/hoodie.properties"
    properties.write_text(re.sub(before, after, properties.read_text(), flags=re.MULTILINE))
    was = files(path)
    for dry_run in (True, False):
        found = Table(path).maintenance.maintain(dry_run=dry_run)
        assert [(action.service, action.state) for action in found.actions] == [("maintain", "refused")]
        assert found.ok, "a refusal is no failure"
        assert message in str(found)
    assert {name: data for name, data in files(path).items() if "properties" not in name} == {
        name: data for name, data in was.items() if "properties" not in name
    }
    with pytest.raises(InvalidInputError, match=message):
        Table(path).maintenance.compact()


# --- by writers -------------------------------------------------------------------------------------------------------


def inline_events(told: list[mor.observing.Event]) -> list[mor.observing.UpkeepEvent]:
    return [event for event in told if isinstance(event, mor.observing.UpkeepEvent) and event.inline]


@pytest.fixture
def told() -> Iterator[list[mor.observing.Event]]:
    events: list[mor.observing.Event] = []
    with mor.observe(events.append):
        yield events


def test_writers_do_no_upkeep_unless_they_are_asked_to(eager: Table, told: list[mor.observing.Event]) -> None:
    write(eager, 5)
    assert kinds(eager) == ["log"] * 5
    assert inline_events(told) == []


def test_a_table_can_ask_its_writers_to_compact_what_is_due(
    eager: Table, place: Place, told: list[mor.observing.Event]
) -> None:
    eager.set_properties({"crdt_mor.maintain": "inline"})
    other = place.open()
    for i in range(5):
        other.upsert(frame((f"k{i}", "x", i)))
    assert len(kinds(eager)) <= 2
    assert [event.why for event in inline_events(told)] == ["file group 00000000 has 2 logs; the policy is 2"] * 2
    assert eager.count() == 5


def test_a_writer_can_be_asked_and_another_can_decline(make: Make, place: Place) -> None:
    table = make(buckets=1, opening=Opening(maintain="off"))
    table.set_properties(EAGER | {"crdt_mor.maintain": "inline"})
    write(table, 3)
    assert kinds(table) == ["log"] * 3
    table.set_properties({"crdt_mor.maintain": None})
    place.open(opening=Opening(maintain="inline")).upsert(frame(("z", "x", 1)))
    assert kinds(table) == ["base"]
    with pytest.raises(InvalidInputError, match='maintain must be "inline", "off"'):
        place.open(opening=Opening(maintain="on"))  # type: ignore[arg-type]


def test_a_write_of_many_processes_does_it_as_well(eager: Table, place: Place) -> None:
    eager.set_properties({"crdt_mor.maintain": "inline"})
    write(eager, 1)
    other = place.open()
    job = other.jobs.plan("upsert", SCHEMA)
    other.jobs.complete(job, [job.stage(frame(("b", "x", 1)), task=0)])
    assert kinds(eager) == ["base"]


def test_only_what_the_writer_has_written_is_compacted(make: Make) -> None:
    table = make(partition_by="region", buckets=1)
    table.set_properties({"crdt_mor.compaction.log_files": "1"})
    table.upsert(frame(("a", "eu", 1)))
    table.set_properties({"crdt_mor.maintain": "inline"})
    table.upsert(frame(("a", "us", 1)))
    found = table.inspect.files()
    assert dict(zip(found["partition"].to_pylist(), found["kind"].to_pylist(), strict=True)) == {
        "region=eu": "log", "region=us": "base"
    }  # fmt: skip


def test_upkeep_that_fails_fails_no_commit_and_is_told(
    eager: Table, monkeypatch: pytest.MonkeyPatch, told: list[mor.observing.Event]
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no memory")

    eager.set_properties({"crdt_mor.maintain": "inline"})
    monkeypatch.setattr(service, "execute", fail)
    commits = write(eager, 3)
    assert len(rows(eager)) == 4
    assert eager.history(1)["version"].to_pylist() == [commits[-1].version]
    events = inline_events(told)
    assert {(event.state, event.error) for event in events} == {("failed", "no memory")}


def test_a_plan_that_a_dead_writer_left_is_finished_by_a_later_one(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1, opening=Opening(maintain="inline"))
    table.set_properties(EAGER | {"crdt_mor.compaction.log_files": "3"})
    write(table, 2)
    left = table.maintenance.plans.schedule()
    assert left is not None
    write(table, 3)
    assert table.maintenance.plans.open() == [left], "it is young: its executor may be at work"
    simulated.environment.sleep(3600)
    write(table, 1)
    assert table.maintenance.plans.open() == []
    assert kinds(table) == ["base"]


def test_nothing_is_asked_of_the_store_where_nothing_is_due(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    table.set_properties(EAGER | {"crdt_mor.maintain": "inline", "crdt_mor.compaction.log_files": "off"})
    write(table, 1)  # sweeps
    counts = []
    for mode in ("off", "inline"):
        store = WatchedStore(simulated.store)
        opening = Opening(store=store, maintain=mode, environment=simulated.environment)
        watched = Table("simulated", opening=opening)
        watched.upsert(frame(("a", "x", 1)))  # follows another process's event
        store.calls.clear()
        watched.upsert(frame(("a", "x", 1)))
        counts.append(len(store.calls))
    assert counts[0] == counts[1]
