"""Plans that fail: one key that cannot be merged keeps its file group as it is, and stops nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import CrdtMorError, Opening, Table
from crdt_mor.errors import CommitUnknownError, PayloadError
from crdt_mor.events.session import Session
from crdt_mor.model.instant import InstantTime
from crdt_mor.parts import CompactionPlan, DataFile
from crdt_mor.payloads import Counter
from crdt_mor.planners.compaction import CompactionPlan as FrozenPlan
from crdt_mor.services import compaction, service
from tests.simulated import Simulated

COUNTED = pa.schema([("id", pa.string()), ("n", pa.int64())])
MOST = 2**63 - 1
TOO_LARGE = r"file group (0000000\d)[ :].*counter/1 failed.*too large.*key='big'"
NO_POLICY = {"crdt_mor.compaction.log_files": "1", "crdt_mor.compaction.age": "off"}

Upkeep = Callable[[Table], object]


@pytest.fixture
def table(simulated: Simulated) -> Table:
    """A table of four file groups that are due with each log; the total of one key is larger than its column."""
    return poisoned(simulated)


def poisoned(simulated: Simulated, **settings: Any) -> Table:
    table = simulated.create(COUNTED, key="id", buckets=4, merge={"n": Counter()}, **settings)
    add(table, *(f"k{i}" for i in range(16)))
    add(table, "big", by=MOST)
    add(table, "big")
    table.set_properties(NO_POLICY)
    return table


def add(table: Table, *keys: str, by: int = 1) -> None:
    table.upsert(pa.table({"id": list(keys), "n": [by] * len(keys)}, schema=COUNTED))


def logs(table: Table) -> set[str]:
    """The file groups that have logs."""
    found = table.inspect.files().to_pylist()
    return {file["file_id"][:8] for file in found if file["kind"] == "log"}


def compactions(maintained: mor.results.Maintained) -> list[tuple[str, int, str]]:
    return [(a.state, a.file_groups, a.error) for a in maintained.actions if a.service == "compaction"]


def test_compact_compacts_all_others_and_names_the_key_and_what_the_payload_says(table: Table) -> None:
    with pytest.raises(PayloadError, match=TOO_LARGE):
        table.maintenance.compact()
    assert len(logs(table)) == 1
    assert table.maintenance.plans.open() == []
    add(table, "big", by=-1)
    assert [done.file_groups for done in table.maintenance.compact()] == [1]
    assert logs(table) == set()
    assert table.scan(filter="id = 'big'").to_polars()["n"].to_list() == [MOST]


def test_maintain_goes_on_with_all_others_and_tries_again_when_something_was_written(table: Table) -> None:
    first = compactions(table.maintenance.maintain())
    assert [(state, groups) for state, groups, _ in first] == [("done", 3), ("failed", 0)]
    assert "too large" in first[1][2]
    assert "key='big'" in first[1][2]
    (held,) = logs(table)
    table.maintenance.maintain()  # sweeps
    version = table.version
    again = table.maintenance.maintain()
    assert [(state, groups) for state, groups, _ in compactions(again)] == [("failed", 0)]
    assert f"file group {held}" in str(again)
    assert "compact" in compactions(again)[0][2]
    assert not again.ok
    assert table.version == version, "nothing is published for what is known to fail"

    add(table, *(f"k{i}" for i in range(16)))
    others = compactions(table.maintenance.maintain())
    assert [(state, groups) for state, groups, _ in others] == [("done", 3), ("failed", 0)]
    table.delete(keys=["big"])
    assert [(state, groups) for state, groups, _ in compactions(table.maintenance.maintain())] == [("done", 1)]
    assert logs(table) == set()
    assert table.to_polars()["n"].to_list() == [2] * 16


def test_a_plan_that_was_left_open_holds_nothing_once_its_key_was_deleted(table: Table) -> None:
    assert table.maintenance.plans.schedule() is not None
    table.delete(keys=["big"])
    found = table.maintenance.maintain()
    assert found.ok, "the plan cannot be completed, but what it could not do is done"
    assert logs(table) == set()
    assert table.maintenance.plans.open() == []


def test_compact_executes_what_a_failing_plan_left_open(table: Table) -> None:
    assert table.maintenance.plans.schedule() is not None
    table.delete(keys=["big"])
    assert [done.file_groups for done in table.maintenance.compact()] == [3, 1]
    assert logs(table) == set()


def test_a_note_counts_for_a_day_as_a_payload_may_be_mended(
    simulated: Simulated, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.maintenance.maintain()
    monkeypatch.setattr(Counter, "merge", lambda _, states: states.first())
    assert not table.maintenance.maintain().ok
    assert len(logs(table)) == 1
    simulated.environment.sleep(timedelta(days=1, minutes=1).total_seconds())
    table.maintenance.maintain()
    assert logs(table) == set()
    table.maintenance.maintain()
    assert [stat.path for stat in simulated.store.list(".hoodie/.crdt_mor/plans") if "failed" in stat.path] == []


def test_writers_that_do_upkeep_commit_and_go_on_with_their_other_file_groups(simulated: Simulated) -> None:
    table = poisoned(simulated, opening=Opening(maintain="inline"))
    told: list[mor.observing.UpkeepEvent] = []
    with mor.observe(lambda event: told.append(event) if isinstance(event, mor.observing.UpkeepEvent) else None):
        add(table, "big", *(f"k{i}" for i in range(16)))
    assert [(event.state, event.inline) for event in told] == [("done", True), ("failed", True)]
    assert "key='big'" in told[1].error
    assert len(logs(table)) == 1
    assert table.maintenance.plans.open() == []
    table.delete(keys=["big"])
    assert logs(table) == set()


def test_executors_elsewhere_tell_of_what_failed(table: Table) -> None:
    calls: list[int] = []

    def elsewhere(parts: Sequence[CompactionPlan]) -> list[list[DataFile] | CrdtMorError]:
        calls.append(len(parts))
        outcomes: list[list[DataFile] | CrdtMorError] = []
        for part in parts:
            try:
                outcomes.append(table.maintenance.plans.execute(part))
            except PayloadError as error:
                outcomes.append(error)
        return outcomes

    with pytest.raises(PayloadError, match=TOO_LARGE):
        table.maintenance.compact(execute_parts=elsewhere)
    assert calls == [4, 3]
    assert len(logs(table)) == 1

    def failing_store(_: Sequence[CompactionPlan]) -> list[list[DataFile] | CrdtMorError]:
        return [CommitUnknownError("the store did not answer")]

    add(table, "k0")
    with pytest.raises(CommitUnknownError):
        table.maintenance.compact(execute_parts=failing_store)
    assert len(table.maintenance.plans.open()) == 1, "it says nothing of a file group: the plan is executed later"


def test_a_damaged_file_stops_the_compaction_of_no_other_file_group(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", COUNTED, key="id", buckets=4)
    add(table, *(f"k{i}" for i in range(16)))
    table.set_properties(NO_POLICY)
    damaged, missing = sorted(fast_path.glob("t/.*.log.1_*"))[:2]
    damaged.write_bytes(damaged.read_bytes()[:-7])
    missing.unlink()
    found = compactions(table.maintenance.maintain())
    assert [(state, groups) for state, groups, _ in found] == [("done", 2), ("failed", 0)]
    assert damaged.name in found[1][2]
    assert missing.name in found[1][2]
    assert table.maintenance.plans.open() == []


def test_an_error_of_arrow_or_polars_stops_the_compaction_of_no_other_file_group(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded = compaction._compacted
    table.delete(keys=["big"])

    def faulty(session: Any, plan: FrozenPlan, threads: int) -> list[DataFile]:
        if plan.groups[0].file_id.startswith("00000002"):
            raise pa.ArrowInvalid("Rescaling Decimal value would cause data loss")
        return folded(session, plan, threads)

    monkeypatch.setattr(compaction, "_compacted", faulty)
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=r"file group 00000002 .*Rescaling"):
        table.maintenance.compact()
    assert logs(table) == {"00000002"}
    monkeypatch.undo()
    assert table.maintenance.maintain().ok, "it is our fault, so that each attempt may be another release's"


def test_an_erasure_of_other_file_groups_is_finished_and_one_that_cannot_be_says_why(table: Table) -> None:
    assert table.maintenance.plans.schedule() is not None
    held, groups = group_of(table, "big"), {key: group_of(table, key) for key in (f"k{i}" for i in range(16))}
    beside = next(key for key, group in groups.items() if group != held)
    same = next(key for key, group in groups.items() if group == held)
    table.maintenance.erase(keys=[beside])
    assert table.maintenance.plans.open() == []
    with pytest.raises(PayloadError, match=TOO_LARGE):
        table.maintenance.erase(keys=[same])
    assert table.maintenance.plans.open() == []
    table.delete(keys=["big"])
    table.maintenance.erase(keys=[same])


def group_of(table: Table, key: str) -> str:
    """The file group in which a key is."""
    found = table.scan(columns=["id"], filter=f"id = '{key}'", meta=True).to_arrow()
    return str(found["_hoodie_file_name"][0]).lstrip(".")[:8]


def test_two_processes_that_meet_the_same_failure_do_each_thing_once(
    simulated: Simulated, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one cancels and plans again while this one is about to: for this one nothing is left to do."""
    other = Table("simulated", opening=Opening(store=simulated.store, environment=simulated.environment))
    cancel, inner = service.cancel, list[mor.results.Maintained]()

    def beside(session: Session, barrier: InstantTime) -> bool:
        monkeypatch.setattr(service, "cancel", cancel)
        inner.append(other.maintenance.maintain())
        return cancel(session, barrier)

    monkeypatch.setattr(service, "cancel", beside)
    outer = table.maintenance.maintain()
    assert [(state, groups) for state, groups, _ in compactions(inner[0])] == [("done", 3), ("failed", 0)]
    assert ("done", 3) not in [(state, groups) for state, groups, _ in compactions(outer)]
    assert len(logs(table)) == 1
    assert [o for o in table.inspect.timeline()["operation"].to_pylist() if o == "COMPACT"] == ["COMPACT"]
