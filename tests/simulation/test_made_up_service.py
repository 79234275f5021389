"""A service that does not exist goes the way of every service: a row in the table of actions is all that it takes.

A *tally* counts the log files of some file groups. Hudi's timeline would show it in other words than a compaction, and
with other files: the plan's record stands in `inflight`, and nothing is put before the completed file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import InvalidInputError, UnsupportedVersionError
from crdt_mor.events.session import Session
from crdt_mor.hudi.actions import ACTIONS, PlannedAction
from crdt_mor.hudi.projection import Projector
from crdt_mor.log import tail
from crdt_mor.log.steps import Steps
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import OWN_KEY
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.services import service
from crdt_mor.services.service import Service
from tests.inside import run_sweep, session_of, tail_of
from tests.simulation.actors import GROUP, planned_world, planner, worker
from tests.simulation.small_store import Violation, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Role
from tests.tiers import slow


@dataclass(frozen=True, slots=True)
class Tally:
    """The plan of the made-up service."""

    barrier: InstantTime
    groups: tuple[FileGroup, ...]
    table_id: str | None = None

    @property
    def file_groups(self) -> Collection[FileGroup]:
        return self.groups

    def parts(self) -> list[Self]:
        return [replace(self, groups=(group,)) for group in self.groups]

    def encode(self) -> bytes:
        return json.dumps([self.barrier, self.groups, self.table_id]).encode()

    def require_outputs(self, files: Collection[DataFile]) -> None:
        if any(file.name.instant != self.barrier for file in files):
            raise InvalidInputError("a tally is completed with its own files")


def decode(data: bytes, path: str) -> Tally:
    barrier, groups, table_id = json.loads(data)
    return Tally(barrier, tuple((partition, file_id) for partition, file_id in groups), table_id)


def record(plan: Tally) -> bytes:
    return f"{OWN_KEY}: to count in {len(plan.groups)}".encode()


def extra(data: bytes, path: str) -> Mapping[str, str]:
    return {OWN_KEY: "1"} if data.startswith(OWN_KEY.encode()) else {}


def encode_completed(completion: Completion, avro_schema: str) -> bytes:
    return f"{OWN_KEY}: counted by {completion.version}".encode()


TALLY = PlannedAction(
    name="tally",
    completed="tally",
    begin_states=("inflight",),
    end_states=(),
    extra=extra,
    encode_completed=encode_completed,
    operation="COUNT",
    decode=decode,
    encode_record=record,
)


@pytest.fixture(autouse=True)
def the_table_has_a_row_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIONS, TALLY.name, TALLY)


# --- in every interleaving --------------------------------------------------------------------------------------------


def freeze(value: Timeline) -> Tally:
    return Tally(value.next_barrier, ((GROUP.partition, GROUP.file_id),))


MY_ROLES: Mapping[str, Role] = {
    **ROLES,
    "planner": partial(planner, action=TALLY, freeze=freeze),
    "compaction's planner": planner,
    "worker": partial(worker, action=TALLY),
}


def world(who: Sequence[str], *, projected: bool = False, **options: Any) -> World:
    """A table with a tally of its one file group."""
    objects, _ = planned_world(projected=projected, action=TALLY, freeze=freeze)
    place = Place(objects)
    place.live(who, MY_ROLES)
    return World(place.objects, place.actors, check_leftovers=True, faulty=is_version, **options)


@pytest.fixture
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a version may go as soon as there is a newer one, which is far more often than in life."""
    monkeypatch.setattr(tail, "KEPT_VERSIONS", 1)


@pytest.mark.usefixtures("nothing_is_kept")
@pytest.mark.parametrize(
    ("who", "options", "states"),
    [
        (["worker", "canceller"], {}, 200),
        (["worker", "canceller"], {"projected": True, "faults": 1}, 1_000),
        (["canceller", "planner"], {"faults": 1}, 1_000),
        slow(["worker", "canceller", "compaction's planner"], {}, 5_000),
        (["canceller", "sweeper"], {"projected": True}, 100),
    ],
    ids=str,
)
def test_it_keeps_the_promises_of_a_plan(who: Sequence[str], options: dict[str, Any], states: int) -> None:
    assert world(who, **options).search() > states


@pytest.mark.usefixtures("nothing_is_kept")
def test_the_search_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Projector, barrier: InstantTime, action: str) -> Steps[None]:
        return
        yield

    monkeypatch.setattr(Projector, "_withdraw", nothing)
    with pytest.raises(Violation, match="not gone"):
        world(["canceller"], projected=True).search(depth_first=True)


# --- in a table -------------------------------------------------------------------------------------------------------

COUNTS = ".hoodie/.crdt_mor/tallies"


def tallying(least: int = 1) -> Service[Tally]:
    """Counts the logs of the file groups that have at least `least` of them."""

    def require(session: Session) -> None:
        if least < 1:
            raise InvalidInputError("nothing to count")

    def plan(session: Session, value: Timeline, taken: Collection[FileGroup]) -> Tally | None:
        slices = fold_slices(session.views.snapshot_completions(value, None))
        groups = [found.group for found in slices if len(found.logs) >= least and found.group not in taken]
        return Tally(value.next_barrier, tuple(groups), value.table_id) if groups else None

    def execute(session: Session, part: Tally, threads: int) -> list[DataFile]:
        ((_, file_id),) = part.groups
        session.store.put(f"{COUNTS}/{part.barrier}-{file_id}", b"counted")
        return []

    return Service(TALLY, require, plan, execute, lambda _: 0)


@pytest.fixture
def table(fast_path: Path) -> Table:
    table = Table.create(fast_path, pa.schema([("id", pa.int64()), ("n", pa.int64())]), key="id", buckets=2)
    table.upsert(pl.DataFrame({"id": range(10), "n": range(10)}))
    return table


def told(table: Table) -> dict[str, bytes]:
    """What Hudi's timeline directory holds of tallies."""
    session = session_of(table)
    paths = [stat.path for stat in session.store.list(session.publisher.projector.folder) if ".tally" in stat.path]
    return {path.rpartition("/")[2]: session.store.read(path) or b"" for path in paths}


def shown(table: Table) -> list[tuple[str, str | None]]:
    """What `inspect` says of tallies."""
    entries = table.inspect.timeline().to_pylist()
    return [(entry["state"], entry["operation"]) for entry in entries if entry["action"] == "tally"]


def test_it_is_scheduled_executed_and_completed(table: Table) -> None:
    session, rows = session_of(table), table.scan().to_arrow()
    plan = service.schedule(session, tallying())
    assert plan is not None
    begun = {f"{plan.barrier}.tally.inflight": b"crdt_mor: to count in 2"}
    assert told(table) == begun
    assert shown(table) == [("planned", None)]

    assert service.schedule(session, tallying()) is None, "both file groups are in an open plan"
    assert table.maintenance.plans.schedule() is None, "of whatever action that plan is"
    assert table.maintenance.plans.open() == [], "and no compaction's"

    other = session_of(Table(table.uri))
    assert service.open_plans(other, TALLY) == [plan]
    for executor in (session, other):
        assert service.execute(executor, tallying(), plan).files == []
    assert len(session.store.list(COUNTS)) == 2, "once a part, however many execute it"
    assert told(table) == begun

    with pytest.raises(InvalidInputError, match="its own files"):
        service.complete(session, plan, [GROUP.logs[0]])
    done = service.complete(other, plan, [])
    assert done is not None
    assert service.complete(session, plan, []) == done
    completed = {f"{plan.barrier}_{done.completed}.tally": f"crdt_mor: counted by {done.version}".encode()}
    assert told(table) == begun | completed
    assert shown(table) == [("completed", "COUNT")]
    assert not service.cancel(session, plan.barrier)
    assert table.scan().to_arrow().equals(rows)
    assert len(table.maintenance.compact()) == 1, "its file groups are free again"


def test_it_is_scheduled_and_cancelled(table: Table) -> None:
    session = session_of(table)
    plan = service.schedule(session, tallying())
    assert plan is not None
    assert service.cancel(session, plan.barrier)
    assert told(table) == {}
    assert shown(table) == [("rolled back", None)]
    assert service.execute(session, tallying(), plan).files == []
    assert service.complete(session, plan, []) is None
    assert session.store.list(COUNTS) == []
    assert service.schedule(session, tallying()) is not None


def test_a_sweep_removes_what_a_stalled_helper_puts_after_it_was_forgotten(table: Table) -> None:
    session = session_of(table)
    plan = service.schedule(session, tallying())
    assert plan is not None
    late = told(table)
    service.cancel(session, plan.barrier)
    session.remember(run_sweep(table))
    assert shown(table) == [], "it is forgotten"
    for name, data in late.items():
        session.store.put(f"{session.publisher.projector.folder}/{name}", data)
    run_sweep(table)
    assert told(table) == {}


def test_it_is_refused_before_anything_is_published(table: Table) -> None:
    version = tail_of(table).version
    with pytest.raises(InvalidInputError, match="nothing to count"):
        service.schedule(session_of(table), tallying(0))
    assert service.schedule(session_of(table), tallying(100)) is None
    assert tail_of(table).version == version


def test_a_release_without_the_row_asks_to_be_upgraded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = service.schedule(session_of(table), tallying())
    assert plan is not None
    monkeypatch.delitem(ACTIONS, TALLY.name)
    other = Table(table.uri)
    with pytest.raises(UnsupportedVersionError, match=r"Upgrade crdt-mor.*tally"):
        other.upsert(pl.DataFrame({"id": [1], "n": [1]}))


def test_a_plan_with_two_files_before_it_is_completed_has_no_row() -> None:
    with pytest.raises(AssertionError, match="only file"):
        replace(TALLY, begin_states=("requested", "inflight"))


def test_a_new_action_needs_a_new_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that read format 5 know these actions: they would fail at another one, not ask to be upgraded."""
    monkeypatch.delitem(ACTIONS, TALLY.name)
    assert (FORMAT, set(ACTIONS)) == (7, {"deltacommit", "compaction", "clean", "rollback", "restore"})
