"""Erasure: no byte of the rows is left in any file, whatever the table's merge, and everything else is as it was.

Parquet is written without compression here, so that what a file says can be found in its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count, product
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crdt_mor import InvalidInputError, Opening, SnapshotExpiredError, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError, ErasureUnfinishedError
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import data_file_name
from crdt_mor.payloads import Counter, ORSet, PartialUpdate
from crdt_mor.services import erasure, service
from crdt_mor.store.protocol import Store
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from tests.format.savepoints import savepoint
from tests.inside import hudi_folder_of, session_of, tail_of
from tests.simulated import Simulated
from tests.stores import Script, ScriptedStore, first, found_in
from tests.tiers import one_in, slow

pytestmark = pytest.mark.usefixtures("uncompressed")

KEY = "user-ada@lovelace"
OTHERS = [f"user-{n}@else" for n in range(8)]
MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "at"},
    "payloads": {"merge": {"seen": Counter(), "tags": ORSet()}},
    "partial": {"merge": PartialUpdate()},
}
SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("at", pa.int64()), ("name", pa.string()), ("seen", pa.int64()),
     ("tags", pa.list_(pa.string()))]
)  # fmt: skip


class World:
    """A table in memory on a simulated clock, and secrets that nobody else writes: `secret-1`, `secret-2`, …"""

    def __init__(self, **settings: Any) -> None:
        self.place = Simulated()
        self.numbers = count(1)
        self.table = self.place.create(SCHEMA, **{"key": "id", "buckets": 2} | settings)

    def opened(self, store: Store) -> Table:
        """The table once more, as another process would open it, by another way to its store."""
        return Table("simulated", opening=Opening(store=store, environment=self.place.environment))

    def rows(self, *keys: str, day: str = "mon") -> pa.Table:
        return pa.Table.from_pylist([self.row(key, day) for key in keys], SCHEMA)

    def row(self, key: str, day: str) -> dict[str, Any]:
        n = next(self.numbers)
        stem = f"secret-{n}" if key == KEY else f"other-{n}"
        return {"id": key, "day": day, "at": n, "name": stem, "seen": 1, "tags": [f"{stem}-tag"]}

    def where(self, *texts: str) -> list[str]:
        """The files in which any of the texts stands, wherever they are below the table."""
        return found_in(self.place.store, *texts)

    def shown(self, **scan: Any) -> list[dict[str, Any]]:
        return sorted(self.table.scan(**scan).to_arrow().to_pylist(), key=lambda row: (row["id"], row["day"]))


SECRETS = (KEY, "secret-")


def history(world: World) -> list[InstantTime]:
    """Commits, deletes and compactions of everybody, with an erased key in bases, logs and tombstones. Their times."""
    table, times = world.table, []
    for round_ in range(3):
        times.append(table.upsert(world.rows(KEY, *OTHERS)).completed_at)
        if round_ == 1:
            table.maintenance.compact()
            tombstone = world.rows(KEY, OTHERS[0]).select(["id", "day", "at"])
            times.append(table.delete(tombstone).completed_at)
            times.append(table.upsert(world.rows(KEY)).completed_at)
    return times


# --- no byte is left --------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(
    ("merge", "how", "partitions"), one_in(5, product(MERGES, ["keys", "frame", "filter"], [(), ("day",)]))
)
def test_no_byte_of_the_rows_is_left_in_any_file_and_the_others_stay(
    merge: str, how: str, partitions: tuple[str, ...]
) -> None:
    world = World(**MERGES[merge], partition_by=partitions)
    history(world)
    assert len(world.where(*SECRETS)) > 3
    others = world.shown(filter=pl.col("id") != KEY)
    would = world.table.maintenance.erase(**asked(how), dry_run=True)
    erased = world.table.maintenance.erase(**asked(how))
    assert (would.rows, would.groups) == (erased.rows, erased.groups)
    assert world.where(*SECRETS) == []
    assert (erased.rows, len(erased.groups)) == (1, 1)
    assert erased.files > 3
    assert erased.bytes > 0
    assert "SnapshotExpiredError" in erased.open_readers
    assert world.shown() == others


def asked(how: str, key: str = KEY) -> dict[str, Any]:
    frame = pl.DataFrame({"id": [key], "day": ["mon"]})
    ways: dict[str, dict[str, Any]] = {
        "keys": {"keys": [key]}, "frame": {"data": frame}, "filter": {"where": pl.col("id") == key},
    }  # fmt: skip
    return ways[how]


@pytest.mark.costly
@pytest.mark.parametrize("merge", MERGES)
def test_a_row_that_was_deleted_long_ago_goes_from_history(merge: str) -> None:
    world = World(**MERGES[merge])
    history(world)
    world.table.delete(world.rows(KEY).select(["id", "day", "at"]))
    world.table.maintenance.compact()
    assert world.where(*SECRETS)
    would = world.table.maintenance.erase(keys=KEY, dry_run=True)
    erased = world.table.maintenance.erase(keys=KEY)
    assert world.where(*SECRETS) == []
    assert erased.rows == would.rows == 0
    assert erased.groups == would.groups
    assert world.table.maintenance.erase(keys=KEY, dry_run=True).groups == ()
    assert world.table.maintenance.erase(keys=KEY).groups == ()


def test_a_row_that_moved_goes_from_the_partition_that_it_left() -> None:
    world = World(partition_by="day")
    world.table.upsert(world.rows(KEY, *OTHERS))
    with world.table.transaction() as tx:
        tx.delete(pl.DataFrame({"id": [KEY], "day": ["mon"]}))
        tx.upsert(world.rows(KEY, day="tue"))
    assert len(world.table.maintenance.erase(where=pl.col("id") == KEY).groups) == 2
    assert world.where(*SECRETS) == []


def test_a_row_of_that_key_in_another_partition_is_another_row() -> None:
    world = World(partition_by="day")
    world.table.upsert(world.rows(KEY, *OTHERS))
    world.table.upsert(world.rows(KEY, day="tue"))
    tuesday = world.shown(filter="day = 'tue'")
    world.table.maintenance.erase(pl.DataFrame({"id": [KEY], "day": ["mon"]}))
    assert world.shown(filter=pl.col("id") == KEY) == tuesday
    assert world.where("secret-1-tag") == []
    world.table.maintenance.erase(keys=[KEY])
    assert world.where(*SECRETS) == []


def test_several_keys_of_several_columns_go_at_once() -> None:
    world = World(key=["id", "day"], partition_by="day", buckets=4)
    world.table.upsert(world.rows(KEY, *OTHERS))
    world.table.upsert(world.rows(KEY, day="tue"))
    erased = world.table.maintenance.erase(keys=[(KEY, "mon"), (KEY, "tue")])
    assert (erased.rows, world.where(*SECRETS)) == (2, [])


def test_an_erasure_says_in_history_that_it_is_one_and_not_of_what() -> None:
    world = World()
    world.table.upsert(world.rows(KEY))
    world.table.maintenance.erase(keys=KEY)
    assert "an erasure" in str(world.table.history().to_pylist())
    assert KEY not in str(world.table.history().to_pylist())


# --- everything else is as it was -------------------------------------------------------------------------------------


def test_other_file_groups_keep_their_history_and_this_one_refuses_it() -> None:
    world = World(buckets=4)
    times = history(world)
    other = next(key for key in OTHERS if bucket_of(world, key) != bucket_of(world, KEY))
    before = [world.shown(filter=pl.col("id") == other, as_of=time) for time in times]
    erased = world.table.maintenance.erase(keys=KEY)
    assert [world.shown(filter=pl.col("id") == other, as_of=time) for time in times] == before
    for time in times:
        with pytest.raises(SnapshotExpiredError, match=erased.retained_from):
            world.shown(as_of=time)
    assert world.shown(as_of=erased.retained_from) == world.shown()


def bucket_of(world: World, key: str) -> int:
    (bucket,) = world.table.jobs.file_groups(pa.table({"id": [key]}))["bucket"].to_pylist()
    return int(bucket)


def test_a_row_that_is_written_later_is_a_new_row() -> None:
    world = World()
    history(world)
    world.table.maintenance.erase(keys=KEY)
    world.table.upsert(world.rows(KEY))
    (row,) = world.shown(filter=pl.col("id") == KEY)
    assert world.where(row["name"])
    world.table.maintenance.compact()
    assert world.shown(filter=pl.col("id") == KEY) == [row]


def test_an_open_view_that_lost_its_files_says_so() -> None:
    world = World()
    history(world)
    scan = world.table.scan()
    world.table.maintenance.erase(keys=KEY)
    with pytest.raises(SnapshotExpiredError):
        scan.to_arrow()


def test_of_an_erasure_in_very_many_file_groups_the_mark_is_the_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "GROUPS_MAX", 1)
    world = World(buckets=4)
    history(world)
    world.place.environment.sleep(3600)
    erased = world.table.maintenance.erase(keys=[KEY, *OTHERS[:4]])
    assert world.where(*SECRETS) == []
    retention = tail_of(world.table).retention
    assert retention.groups == ()
    assert retention.since >= erased.retained_from


# --- others at work ---------------------------------------------------------------------------------------------------


def test_a_write_that_may_bring_the_row_back_is_named_and_the_same_call_goes_on() -> None:
    world = World()
    history(world)
    late = world.opened(world.place.store).transaction(commit_info={"application": "nightly"})
    late.__enter__()
    late.upsert(world.rows(KEY, OTHERS[1]))
    with pytest.raises(ErasureUnfinishedError, match=r"nightly on simulated, pid 1.*erase again") as unfinished:
        world.table.maintenance.erase(keys=KEY)
    (pending,) = world.table.inspect.pending()["requested_at"].to_pylist()
    assert unfinished.value.pending == (pending,)
    assert KEY not in str(unfinished.value)
    assert world.shown(filter=pl.col("id") == KEY) == []
    versions = world.table.version
    with pytest.raises(ErasureUnfinishedError):
        world.table.maintenance.erase(keys=KEY)
    assert [c for c in commits(world) if c["version"] > versions] == []  # the delete is there, and is not repeated
    late.__exit__(None, None, None)
    erased = world.table.maintenance.erase(keys=KEY)
    assert world.where(*SECRETS) == []
    assert erased.versions == ()
    assert len(world.shown()) == len(OTHERS)


def commits(world: World) -> list[dict[str, Any]]:
    return [c for c in world.table.inspect.timeline().to_pylist() if c["action"] == "deltacommit"]


def test_maintain_finishes_what_had_to_wait() -> None:
    world = World()
    history(world)
    with world.opened(world.place.store).transaction() as late:
        late.upsert(world.rows(KEY))
        with pytest.raises(ErasureUnfinishedError):
            world.table.maintenance.erase(keys=KEY)
        (waiting,) = (a for a in world.table.maintenance.maintain().actions if a.service == "erasure")
        assert waiting.state == "due"
        assert "erase again" in waiting.error
    world.table.maintenance.clean(keep=timedelta(0), readers=timedelta(0))
    (due,) = (a for a in world.table.maintenance.maintain(dry_run=True).actions if a.service == "erasure")
    assert (due.state, due.error) == ("due", "")
    (done,) = (a for a in world.table.maintenance.maintain().actions if a.service == "erasure")
    assert (done.state, done.file_groups) == ("done", 1)
    assert world.where(*SECRETS) == []
    assert world.table.maintenance.erase(keys=KEY).groups == ()


@pytest.mark.parametrize("how", ["keys", "filter"])
def test_it_waits_for_such_a_write_and_erases_what_it_brings_elsewhere(how: str) -> None:
    world = World(partition_by="day")
    history(world)
    late = world.opened(world.place.store).transaction()
    late.__enter__()
    late.upsert(world.rows(KEY, day="tue"))
    with world.place.environment.every(20, ending(late), name="late"):
        erased = world.table.maintenance.erase(**asked(how), wait=timedelta(minutes=1))
    assert world.where(*SECRETS) == []
    assert (erased.rows, len(erased.versions)) == (2, 2)


def ending(transaction: Any) -> Callable[[], None]:
    once = iter([transaction])
    return lambda: next((t.__exit__(None, None, None) for t in once), None)


def test_a_silent_write_is_given_up_and_what_it_left_goes() -> None:
    world = World()
    history(world)
    store = InterruptedStore(world.place.store)
    dying = world.opened(store).transaction()
    dying.__enter__()
    dying.upsert(world.rows(KEY))
    store.arm(2, store.die)  # its log file is there by then
    with pytest.raises(ProcessDied):
        dying.__exit__(None, None, None)
    erased = world.table.maintenance.erase(keys=KEY, wait=timedelta(hours=1))
    assert erased.rows == 1
    assert world.where(*SECRETS) == []


def test_a_write_that_began_before_the_rows_were_gone_keeps_what_it_may_read() -> None:
    world = World()
    history(world)
    reading = world.opened(world.place.store)
    held: list[Any] = []

    def begin() -> None:
        held.append(reading.transaction())
        held[0].__enter__()

    before_the_clean = first("put", lambda path: "/plans/" in path, begin)
    erasing = world.opened(ScriptedStore(world.place.store, before_the_clean))
    with pytest.raises(ErasureUnfinishedError, match="may be reading them"):
        erasing.maintenance.erase(keys=KEY)
    assert len(held[0].scan().to_arrow()) in (len(OTHERS), len(OTHERS) + 1)
    held[0].__exit__(None, None, None)
    erasing.maintenance.erase(keys=KEY)
    assert world.where(*SECRETS) == []


def test_a_plan_of_others_that_ends_between_two_looks_is_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    history(world)
    other = world.opened(world.place.store).maintenance
    schedule = service.schedule
    folded: list[object] = []

    def beside(session: Any, planner: Any, *seen: Any) -> Any:
        """Another process plans just before an erasure does, and has executed its plan when that finds it taken."""
        if session is not session_of(world.table) or folded:
            return schedule(session, planner, *seen)
        folded.append(plan := other.plans.schedule())
        found = schedule(session, planner, *seen)
        assert found is None
        other.compact(plan)
        return found

    monkeypatch.setattr(service, "schedule", beside)
    erased = world.table.maintenance.erase(keys=KEY)
    assert folded
    assert erased.files
    assert world.where(*SECRETS) == []


@pytest.mark.parametrize("logs_only", [False, True])
def test_open_plans_over_the_rows_are_executed_first(logs_only: bool) -> None:
    world = World(buckets=4)
    history(world)
    assert world.table.maintenance.plans.schedule(logs_only=logs_only) is not None
    world.table.upsert(world.rows(KEY))
    world.table.maintenance.erase(keys=KEY)
    assert world.where(*SECRETS) == []
    assert world.table.maintenance.plans.open() == []


@pytest.mark.parametrize("merge", MERGES)
def test_a_log_compaction_between_its_steps_does_not_pass_for_a_compaction(
    merge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its barrier is after the delete, and its base file is a copy that has the row."""
    world = World(**MERGES[merge])
    history(world)
    fold = erasure._fold

    def fold_later(*arguments: Any) -> Any:
        monkeypatch.setattr(erasure, "_fold", fold)
        assert world.opened(world.place.store).maintenance.compact(logs_only=True)
        assert world.where(*SECRETS)
        return fold(*arguments)

    monkeypatch.setattr(erasure, "_fold", fold_later)
    world.table.maintenance.erase(keys=KEY)
    assert world.where(*SECRETS) == []


def test_staged_rows_of_a_job_that_nobody_ended_go() -> None:
    world = World()
    history(world)
    job = world.table.jobs.plan("upsert", SCHEMA)
    job.stage(world.rows(KEY), task=0, environment=world.place.environment)
    assert [path for path in world.where(*SECRETS) if "/staged/" in path]
    with pytest.raises(ErasureUnfinishedError):
        world.table.maintenance.erase(keys=KEY)
    world.table.jobs.abandon(job)
    world.table.maintenance.erase(keys=KEY)
    assert world.where(*SECRETS) == []


def test_what_a_put_left_that_died_goes_once_it_is_certain_that_it_is_dead() -> None:
    world = World()
    history(world)
    left = ".hoodie/.temp/put-of-the-dead"
    world.place.store.put(left, KEY.encode())
    world.place.environment.sleep(1)
    with pytest.raises(ErasureUnfinishedError, match="in a minute"):
        world.table.maintenance.erase(keys=KEY)
    world.table.maintenance.erase(keys=KEY, wait=timedelta(minutes=1))
    assert world.where(*SECRETS) == []


def test_savepoints_that_hold_the_rows_are_named_before_anything_is_deleted() -> None:
    world = World()
    history(world)
    stem = f"{bucket_of(world, KEY):08d}-"
    (held,) = [f for f in world.table.inspect.files()["path"].to_pylist() if f.startswith(stem)]
    kept: dict[str, object] = {"": {"partitionPath": "", "savepointDataFile": [held]}}
    path = f"{hudi_folder_of(world.table)}/20200101000000000_20200101000000002.savepoint"
    world.place.store.put(path, savepoint(kept))
    before = world.shown()
    for dry_run in (True, False):
        with pytest.raises(InvalidInputError, match=r"delete_savepoint.*20200101000000000_20200101000000002.savepoint"):
            world.table.maintenance.erase(keys=KEY, dry_run=dry_run)
    assert world.shown() == before
    assert world.table.inspect.pending().num_rows == 0
    world.place.store.delete(path)
    world.table.maintenance.erase(keys=KEY)
    assert world.where(*SECRETS) == []


# --- any history ------------------------------------------------------------------------------------------------------

STEPS = st.sampled_from(
    ["write", "write others", "delete", "tombstone", "move", "compact", "compact logs", "begin", "end", "give up"]
)


@pytest.mark.slow
@pytest.mark.parametrize("merge", [*list(MERGES)[:1], *map(slow, list(MERGES)[1:])])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=14), how=st.sampled_from(["keys", "filter"]))
def test_after_any_history_every_view_lacks_the_row_or_is_refused(merge: str, steps: list[str], how: str) -> None:
    world, times = World(**MERGES[merge], partition_by="day", buckets=2), []
    opened: list[Any] = []
    world.table.upsert(world.rows(KEY, *OTHERS[:2]))
    for step in steps:
        do(step, world, opened)
        times.append(world.table.inspect.timeline()["completed_at"].drop_null().to_pylist()[-1])
    for transaction in opened:
        transaction.__exit__(None, None, None)
    if (
        how == "keys" or world.table.scan(filter=pl.col("id") == KEY).count()
    ):  # a filter knows no key of which no row is left
        world.table.maintenance.erase(**asked(how))
        assert world.where(*SECRETS) == []
        for time in times:
            with suppress(SnapshotExpiredError):
                assert KEY not in [row["id"] for row in world.shown(as_of=time)]
    world.table.upsert(world.rows(KEY))
    world.table.maintenance.compact()
    assert KEY in [row["id"] for row in world.shown()]


def do(step: str, world: World, opened: list[Any]) -> None:
    table = world.table
    key_columns = ["id", "day", "at"]
    if step == "write":
        table.upsert(world.rows(KEY, OTHERS[0]))
    elif step == "write others":
        table.upsert(world.rows(*OTHERS[1:3]))
    elif step == "delete":
        table.delete(world.rows(KEY).select(["id", "day"]), plain=True)
    elif step == "tombstone":
        table.delete(world.rows(KEY).select(key_columns))
    elif step == "move":
        with table.transaction() as tx:
            tx.delete(world.rows(KEY).select(["id", "day"]), plain=True)
            tx.upsert(world.rows(KEY, day="tue"))
    elif step == "compact":
        table.maintenance.compact()
    elif step == "compact logs":
        table.maintenance.compact(logs_only=True)
    elif step == "begin":
        opened.append(world.opened(world.place.store).transaction())
        opened[-1].__enter__().upsert(world.rows(KEY, OTHERS[1]))
    elif step == "end" and opened:
        opened.pop().__exit__(None, None, None)
    elif step == "give up" and opened:
        opened.pop().__exit__(ValueError, ValueError(), None)


# --- a process that dies ----------------------------------------------------------------------------------------------


def moments(world: Callable[[], World], how: str, *, after: bool) -> Iterator[World]:
    """A world for each put, copy and delete of an erasure, in which the erasing process has died there."""
    for at in range(1, 400):
        this = world()
        store = InterruptedStore(this.place.store)
        table = this.opened(store)
        store.arm(at, store.die, after=after)
        try:
            table.maintenance.erase(**asked(how))
        except ProcessDied:
            yield this
        else:
            assert at > 10
            return
    raise AssertionError("an erasure does not take so many steps")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("merge", "how", "after"),
    [("latest", "filter", False), slow("ordering", "filter", True), slow("payloads", "keys", False)],
)
def test_an_erasure_that_died_at_any_moment_is_finished_by_the_next(merge: str, how: str, after: bool) -> None:
    def world() -> World:
        made = World(**MERGES[merge], buckets=1)
        made.table.upsert(made.rows(KEY, *OTHERS[:2]))
        made.table.maintenance.compact()
        made.table.upsert(made.rows(KEY, OTHERS[1]))
        return made

    for this in moments(world, how, after=after):
        this.table.maintenance.erase(**asked(how), wait=timedelta(hours=1))
        assert this.where(*SECRETS) == []
        assert [row["id"] for row in this.shown()] == OTHERS[:2]
        assert this.place.store.list(".hoodie/.crdt_mor/erasures") == []


MEANWHILE: dict[str, Callable[[World, Table], object]] = {
    "another process erases the same": lambda _, other: other.maintenance.erase(keys=KEY, wait=timedelta(hours=1)),
    "a compaction": lambda _, other: other.maintenance.compact(),
    "a log compaction": lambda _, other: other.maintenance.compact(logs_only=True),
    "a plan": lambda _, other: other.maintenance.plans.schedule(),
    "a clean": lambda _, other: other.maintenance.clean(keep=timedelta(0)),
    "a write": lambda world, other: other.upsert(world.rows(*OTHERS[:2])),
}


@pytest.mark.parametrize("meanwhile", [slow(name) for name in MEANWHILE])
@pytest.mark.parametrize("merge", ["latest", "ordering"])
def test_whatever_others_do_at_any_moment_no_byte_is_left(merge: str, meanwhile: str) -> None:
    for at in range(1, 400):
        world = World(**MERGES[merge], buckets=1)
        world.table.upsert(world.rows(KEY, *OTHERS[:2]))
        world.table.maintenance.compact()
        world.table.upsert(world.rows(KEY, OTHERS[1]))
        store, other = InterruptedStore(world.place.store), world.opened(world.place.store)
        erasing = world.opened(store)
        happened: list[bool] = []

        def interrupt(world: World = world, other: Table = other, happened: list[bool] = happened) -> None:
            happened.append(True)
            MEANWHILE[meanwhile](world, other)

        store.arm(at, interrupt)
        with suppress(ErasureUnfinishedError):
            erasing.maintenance.erase(keys=KEY, wait=timedelta(minutes=2))
        if not happened:
            assert at > 10
            return
        store.arm(0, None)
        erasing.maintenance.erase(keys=KEY, wait=timedelta(minutes=2))
        assert world.where(*SECRETS) == [], at
        assert [row["id"] for row in world.shown()] == OTHERS[:2]


def test_an_executor_that_slept_brings_no_byte_back() -> None:
    world = World(buckets=1)
    history(world)
    plan = world.table.maintenance.plans.schedule()
    assert plan is not None
    store = InterruptedStore(world.place.store)
    sleeper = world.opened(store)

    def meanwhile() -> None:
        world.table.maintenance.compact()
        world.table.upsert(world.rows(KEY))
        world.table.maintenance.erase(keys=KEY)

    store.arm(1, meanwhile)
    sleeper.maintenance.plans.execute(plan)
    assert store.count > 1
    assert world.where(*SECRETS) == []


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_meant_is_refused() -> None:
    maintenance = World(partition_by="day").table.maintenance
    for wrong in ({}, {"keys": ["a"], "where": "id = 'a'"}):
        with pytest.raises(InvalidInputError, match="exactly one of"):
            maintenance.erase(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"missing=\['day'\]"):
        maintenance.erase(pl.DataFrame({"id": ["a"]}))
    with pytest.raises(InvalidInputError, match="wait"):
        maintenance.erase(keys=["a"], wait=timedelta(-1))


def test_keys_that_nobody_has_written_leave_no_trace() -> None:
    world = World()
    world.table.upsert(world.rows(*OTHERS))
    version = world.table.version
    erased = world.table.maintenance.erase(keys=[KEY])
    assert (erased.rows, erased.groups, erased.files) == (0, (), 0)
    assert "nothing" in str(erased)
    assert world.table.version == version


def test_every_name_that_is_left_of_a_file_group_is_of_its_last_slice() -> None:
    world = World(buckets=1)
    history(world)
    world.table.maintenance.erase(keys=KEY)
    named = [data_file_name(stat.path) for stat in world.place.store.walk("")]
    assert len([name for name in named if name is not None]) == 1


def full_after_a_begin() -> Script:
    """The disk is full once a write has begun."""
    begun: list[str] = []

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == "put":
            if begun:
                raise StorageUnavailableError(f"disk full. put={path}")
            if path.endswith(".deltacommit.requested"):
                begun.append(path)
        return call()

    return script


def test_the_delete_of_an_erasure_that_died_on_a_full_disk_is_in_the_way_of_no_other() -> None:
    world = World()
    history(world)
    full = ScriptedStore(world.place.store, full_after_a_begin())
    with pytest.raises((StorageUnavailableError, CommitUnknownError)):
        world.opened(full).maintenance.erase(keys=KEY)
    (dead,) = world.table.inspect.pending()["requested_at"].to_pylist()
    erased = world.table.maintenance.erase(keys=KEY)
    assert erased.files
    assert world.where(*SECRETS) == []
    assert dead not in world.table.inspect.pending()["requested_at"].to_pylist()


def test_an_erasure_whose_delete_another_one_has_given_up_deletes_once_more() -> None:
    world = World()
    history(world)
    begun: list[str] = []

    def erased_by_another() -> None:
        begun.extend(world.table.inspect.pending()["requested_at"].to_pylist())
        assert world.table.maintenance.erase(keys=KEY).files

    slow = first("put", lambda path: path.endswith(".log.1_0-0-0"), erased_by_another)
    world.opened(ScriptedStore(world.place.store, slow)).maintenance.erase(keys=KEY)
    assert begun
    assert world.where(*SECRETS) == []
    assert world.table.inspect.pending().num_rows == 0
