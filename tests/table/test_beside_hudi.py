"""Commits of Hudi's own writers between ours: what is handed out stays true, and what nobody would see is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NoReturn

import pyarrow as pa
import pytest

from crdt_mor import Commit, Opening, Scan, SnapshotExpiredError, Table, observe
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FutureSnapshotError, UnsupportedFeatureError
from crdt_mor.events import migration
from crdt_mor.events.session import Session
from crdt_mor.events.views import LOOK_EVERY_MS, Views
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log.steps import Steps
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.timeline import Timeline
from crdt_mor.observing import AdoptionEvent, Event
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from tests.inside import look_for_hudi, tail_of
from tests.simulation.foreign_commits import SCHEMA, rows
from tests.stores import WatchedStore


class Clock(SystemEnvironment):
    """Time that stands where a test puts it, not ahead of the store's."""

    def __init__(self) -> None:
        super().__init__()
        self.ms = super().now_ms() - 600_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture(autouse=True)
def _writes_do_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only reads and updates find the commits of Hudi, as within a minute in a bucket."""
    monkeypatch.setattr(Views, "_pause_ms", 1 << 62)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(fast_path: Path, clock: Clock) -> Table:
    made = Table.create(str(fast_path / "t"), SCHEMA, key="k", buckets=1, opening=Opening(environment=clock))
    made.upsert(rows("a"))
    look_for_hudi(made)
    return made


def hudi(table: Table, clock: Clock, key: str, ago_ms: int = 0) -> InstantTime:
    """A commit of Hudi's that begins now, or some time ago; when it completed."""
    clock.ms += 100
    requested, completed = from_ms(clock.ms - ago_ms), from_ms(clock.ms - ago_ms + 10)
    hudi_commits(table, rows(key), requested, completed)
    clock.ms += 100
    return completed


def later(table: Table, clock: Clock) -> None:
    """A minute passes and the table's clock moves with it, since something is committed."""
    clock.ms += 60_000
    table.upsert(rows("a"))


def keys(scan: Scan) -> list[str]:
    return sorted(scan.to_arrow()["k"].to_pylist())


# --- what is handed out -----------------------------------------------------------------------------------------------


HANDED_OUT: list[Callable[[Scan], object]] = [
    lambda scan: scan.checkpoint,
    lambda scan: scan.as_of,
    lambda scan: scan.version,
]


@pytest.mark.parametrize("hand_out", HANDED_OUT, ids=["checkpoint", "as_of", "version"])
@pytest.mark.parametrize("consistency", ["latest", "stable"])
def test_a_scan_hands_out_no_moment_before_which_hudi_has_committed_without_it(
    table: Table, clock: Clock, consistency: str, hand_out: Callable[[Scan], object]
) -> None:
    hudi(table, clock, "hudi")
    table.upsert(rows("b"))
    scan = table.scan(consistency=consistency)  # type: ignore[arg-type]
    assert keys(scan) == ["a", "b"], "it is not looked for at every scan"
    with pytest.raises(SnapshotExpiredError, match="scan again"):
        hand_out(scan)
    again = table.scan(consistency=consistency)  # type: ignore[arg-type]
    assert keys(again) == ["a", "b", "hudi"]
    assert hand_out(again)


def test_no_moment_is_handed_out_that_hudis_clock_has_reached_and_ours_has_not(table: Table, clock: Clock) -> None:
    """Commits of ours may still come before it: a follower would never get them."""
    clock.ms += 600_000  # as late as it is by the store's clock, so that what is ahead of the one is ahead of both
    start = table.scan().checkpoint
    other = Table(table.uri, opening=Opening(environment=clock))  # a writer that has looked before Hudi's commit
    completed = hudi(table, clock, "hudi", ago_ms=-15_000)
    look_for_hudi(table)
    scan = table.scan()
    assert keys(scan) == ["a", "hudi"]
    for hand_out in HANDED_OUT:
        with pytest.raises(FutureSnapshotError, match="scan again after that time"):
            hand_out(scan)
    with pytest.raises(FutureSnapshotError, match="not decided yet"):
        table.scan(as_of=completed)
    before = table.changes(start)
    other.upsert(rows("b"))
    after = table.changes(before.checkpoint)
    clock.ms += 15_000
    last = table.changes(after.checkpoint)
    assert [changes.to_arrow()["k"].to_pylist() for changes in (before, after)] == [[], ["b"]]
    assert last.to_arrow()["k"].to_pylist() == ["hudi"]
    assert table.scan().checkpoint
    assert keys(table.scan(as_of=completed)) == ["a", "b", "hudi"]


@pytest.mark.parametrize("consistency", ["latest", "stable"])
def test_a_checkpoint_that_was_handed_out_by_a_faster_clock_is_gone_on_from(
    table: Table, clock: Clock, consistency: Literal["latest", "stable"]
) -> None:
    """A follower's next process may run on a machine by whose clock Hudi's last commit has not come yet."""
    faster = Clock()
    faster.ms = clock.ms + 20_000
    hudi(table, clock, "hudi", ago_ms=-15_000)
    first = Table(table.uri, opening=Opening(environment=faster)).changes(consistency=consistency)
    assert sorted(first.to_arrow()["k"].to_pylist()) == ["a", "hudi"]
    hudi(table, clock, "later", ago_ms=-16_000)
    again = table.changes(first.checkpoint, consistency=consistency)
    assert (again.commits, again.checkpoint) == (0, first.checkpoint), "of what comes later nothing is decided here"
    assert table.changes(until=first.checkpoint, consistency=consistency).commits == first.commits
    table.upsert(rows("b"))
    last = table.changes(again.checkpoint, consistency=consistency)
    assert sorted(last.to_arrow()["k"].to_pylist()) == ["b", "later"]


def test_a_migration_goes_on_from_a_moment_at_which_a_faster_clock_has_aimed(table: Table, clock: Clock) -> None:
    """A machine by whose clock Hudi's last commit has not come yet took the step for one of another table."""
    to, aim, faster = f"{table.uri}.2", migration.aim, Clock()
    faster.ms = clock.ms + 20_000

    def aim_and_die(*args: Any) -> Steps[NoReturn]:
        yield from aim(*args)
        raise ProcessDied

    def overtaken(*args: Any) -> Steps[Timeline]:
        """Hudi commits, and before this process aims, another one does, at the moment of that commit."""
        patch.setattr(migration, "aim", aim_and_die)
        hudi(table, clock, "hudi", ago_ms=-15_000)
        patch.setattr(Session, "adopt", lambda self: None)  # the other one looked before Hudi's commit was there
        with pytest.raises(ProcessDied):
            Table(table.uri, opening=Opening(environment=faster)).maintenance.migrate(to, buckets=2)
        patch.undo()
        return (yield from aim(*args))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migration, "aim", overtaken)
        table.maintenance.migrate(to, buckets=2)
    assert keys(Table(to, opening=Opening(environment=clock)).scan()) == ["a", "hudi"]


def test_deciding_a_moment_makes_what_hudi_has_completed_by_then_part_of_the_table(table: Table, clock: Clock) -> None:
    completed = hudi(table, clock, "hudi")
    after = hudi(table, clock, "later", ago_ms=-15_000)
    moment = from_ms(to_ms(completed) + 2_000)
    assert completed < moment < after
    told: list[Event] = []
    with observe(told.append):
        assert keys(table.scan(as_of=moment)) == ["a", "hudi"]
    adopted = [event for event in told if isinstance(event, AdoptionEvent)]
    assert [(event.version, event.commits, event.cancelled) for event in adopted] == [(table.version, 1, 0)]
    other = Table(table.uri, opening=Opening(environment=clock))
    other.upsert(rows("b"))
    assert keys(other.scan(as_of=moment)) == keys(table.scan(as_of=moment)) == ["a", "hudi"]
    assert table.inspect.timeline()["requested_at"].to_pylist() == sorted(
        table.inspect.timeline()["requested_at"].to_pylist()
    )
    assert keys(table.scan()) == ["a", "b", "hudi", "later"]


def test_a_commit_of_hudis_that_turns_up_before_a_moment_that_was_decided_is_shown(table: Table, clock: Clock) -> None:
    clock.ms += 10_000
    moment = from_ms(clock.ms)
    assert keys(table.scan(as_of=moment)) == ["a"]
    hudi(table, clock, "hudi", ago_ms=5_000)
    assert keys(table.scan(as_of=moment)) == ["a", "hudi"], "as every commit of Hudi's in the past of the table is"


def test_a_transaction_hands_out_no_such_moment_either(table: Table, clock: Clock) -> None:
    hudi(table, clock, "hudi")
    with table.transaction() as tx:
        with pytest.raises(SnapshotExpiredError):
            _ = tx.scan().checkpoint
        tx.upsert(rows("b"))


def test_changes_since_what_was_handed_out_have_hudis_later_commits(table: Table, clock: Clock) -> None:
    scan = table.scan()
    since = scan.checkpoint
    hudi(table, clock, "hudi")
    table.upsert(rows("b"))
    changes = table.changes(since)
    assert sorted(changes.to_arrow()["k"].to_pylist()) == ["b", "hudi"]
    assert table.changes(changes.checkpoint).commits == 0


def test_a_moment_shows_the_same_when_it_is_asked_for_again(table: Table, clock: Clock) -> None:
    before = table.version
    hudi(table, clock, "hudi")
    mine = table.upsert(rows("b"))
    moments: list[Commit | int | str] = [mine, mine.version, mine.completed_at, before]
    first = [keys(table.scan(as_of=moment)) for moment in moments]
    assert first[0] == first[1] == first[2] == ["a", "b", "hudi"]
    assert first[3] == ["a"]
    clock.ms += LOOK_EVERY_MS + 1
    table.upsert(rows("c"))
    assert [keys(table.scan(as_of=moment)) for moment in moments] == first


def test_a_version_shows_the_same_before_and_after_hudis_commit_is_part_of_one(table: Table, clock: Clock) -> None:
    version = table.version
    hudi(table, clock, "hudi")
    assert keys(table.scan(as_of=version)) == ["a"]
    clock.ms += LOOK_EVERY_MS + 1
    table.upsert(rows("b"))
    assert keys(table.scan(as_of=version)) == ["a"]


def test_differences_and_files_of_a_moment_have_what_hudi_wrote_before_it(table: Table, clock: Clock) -> None:
    before = table.version
    hudi(table, clock, "hudi")
    mine = table.upsert(rows("b"))
    assert table.inspect.files(mine.completed_at).num_rows == 3
    other = Table(table.uri, opening=Opening(environment=clock))
    hudi(table, clock, "more")
    mine = other.upsert(rows("c"))
    assert sorted(other.diff(before, mine).to_arrow()["k"].to_pylist()) == ["b", "c", "hudi", "more"]


def test_a_scan_of_rows_does_not_look_into_hudis_timeline(table: Table, clock: Clock) -> None:
    store = WatchedStore(LocalStore(table.uri))
    scan = Table(table.uri, opening=Opening(store=store, environment=clock)).scan()
    store.calls.clear()
    assert keys(scan) == ["a"]
    assert [part.to_arrow().num_rows for part in scan.parts()] == [1]
    assert repr(scan)
    assert store.paths("list") == []
    assert scan.checkpoint
    assert ".hoodie/timeline" in store.paths("list")


def test_a_part_says_what_its_scan_says(table: Table) -> None:
    scan = table.scan()
    assert [(part.checkpoint, part.as_of) for part in scan.parts()] == [(scan.checkpoint, scan.as_of)]


# --- what nobody would see --------------------------------------------------------------------------------------------


def test_a_commit_below_a_compaction_of_ours_is_refused_by_name_until_it_is_taken_back(
    table: Table, clock: Clock
) -> None:
    later(table, clock)
    (compacted,) = table.maintenance.compact()
    completed = hudi(table, clock, "hudi", ago_ms=40_000)
    requested = from_ms(to_ms(completed) - 10)
    said = f"instant={requested} completed={completed} compaction={compacted.barrier}"
    with pytest.raises(UnsupportedFeatureError, match=said):
        Table(table.uri)
    with pytest.raises(UnsupportedFeatureError, match=said):
        look_for_hudi(table)
    with pytest.raises(UnsupportedFeatureError, match=said):
        table.changes()
    with pytest.raises(UnsupportedFeatureError, match=said):
        table.maintenance.compact()
    clock.ms += 700_000  # past the next sweep, on the store's clock too
    with pytest.raises(UnsupportedFeatureError, match=said):
        table.scan()
    for file in Path(table.uri, ".hoodie/timeline").glob(f"{requested}*"):
        file.rename(Path(table.uri).parent / file.name)
    again = Table(table.uri)
    again.upsert(rows("hudi"))
    assert keys(again.scan()) == ["a", "hudi"]


@pytest.mark.parametrize("ending", ["completed", "pending", "rolled back"])
def test_a_commit_with_the_requested_time_of_one_of_ours_is_refused_by_name(
    table: Table, clock: Clock, ending: str
) -> None:
    class GivenUpError(Exception):
        pass

    with suppress(GivenUpError), table.transaction() as ours:
        ours.upsert(rows("b"))
        requested = tail_of(table).pending[0].requested
        if ending == "rolled back":
            raise GivenUpError
        if ending == "pending":
            clock.ms += 100
            hudi_commits(table, rows("hudi"), requested, from_ms(clock.ms - 50))
            with pytest.raises(UnsupportedFeatureError, match=f"same requested time.* instant={requested}"):
                look_for_hudi(table)
    if ending != "pending":
        clock.ms += 100
        hudi_commits(table, rows("hudi"), requested, from_ms(clock.ms))
    for look in (lambda: look_for_hudi(table), lambda: Table(table.uri, opening=Opening(environment=clock))):
        with pytest.raises(UnsupportedFeatureError, match=f"same requested time.* instant={requested}"):
            look()


def test_writers_refuse_it_as_well(table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    later(table, clock)
    table.maintenance.compact()
    completed = hudi(table, clock, "hudi", ago_ms=40_000)
    monkeypatch.setattr("crdt_mor.events.sweep.SWEEP_EVERY_MS", -1)
    with pytest.raises(UnsupportedFeatureError, match=completed), table.transaction() as block:
        block.upsert(rows("b"))


def test_a_plan_that_would_bury_a_commit_is_cancelled_and_the_next_one_has_it(table: Table, clock: Clock) -> None:
    later(table, clock)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    hudi(table, clock, "hudi", ago_ms=40_000)
    assert table.maintenance.compact(plan) == []
    assert table.maintenance.plans.open() == []
    assert keys(Table(table.uri).scan()) == ["a", "hudi"]
    (compacted,) = table.maintenance.compact()
    assert compacted.rows == 2
    assert not list(Path(table.uri).rglob(f"*{plan.barrier}*.parquet")), "what the cancelled plan wrote is gone"


def test_a_commit_in_the_past_of_other_file_groups_is_shown(fast_path: Path, clock: Clock) -> None:
    table = Table.create(
        str(fast_path / "p"), SCHEMA.append(pa.field("p", pa.string())), key="k", partition_by="p", buckets=1,
        opening=Opening(environment=clock),
    )  # fmt: skip
    table.upsert(rows("a").append_column("p", pa.array(["one"])))
    clock.ms += 60_000
    table.upsert(rows("a").append_column("p", pa.array(["one"])))
    table.maintenance.compact()
    early = clock.ms - 40_000
    hudi_commits(table, rows("hudi").append_column("p", pa.array(["two"])), from_ms(early), from_ms(early + 10))
    assert keys(Table(table.uri, opening=Opening(environment=clock)).scan()) == ["a", "hudi"]


# --- updates ----------------------------------------------------------------------------------------------------------


def add_one(table: Table) -> None:
    table.update({"v": "v + 1"})


def add_one_in_a_block(table: Table) -> None:
    with table.transaction(isolation="serializable") as tx:
        tx.update({"v": "v + 1"})


@pytest.mark.parametrize("change", [add_one, add_one_in_a_block])
def test_an_update_computes_from_what_hudi_has_written_before_it(
    table: Table, clock: Clock, change: Callable[[Table], None]
) -> None:
    hudi(table, clock, "hudi")
    before = Table(table.uri, opening=Opening(environment=clock)).scan().to_polars().sort("k")
    change(table)
    after = Table(table.uri, opening=Opening(environment=clock)).scan().to_polars().sort("k")
    assert after["v"].to_list() == [value + 1 for value in before["v"]]


def test_a_schema_of_hudis_has_fields_under_their_names_in_files(fast_path: Path, clock: Clock) -> None:
    """They are the fields that people see under other names, and no new ones."""
    inner = pa.struct([("Total Sales", pa.int64()), ("at", pa.list_(pa.struct([("@t", pa.string())])))])
    schema = pa.schema([*SCHEMA, ("s", inner)])
    table = Table.create(str(fast_path / "t"), schema, key="k", buckets=1, opening=Opening(environment=clock))
    row = {"k": "a", "v": 1, "s": {"Total Sales": 2, "at": [{"@t": "x"}]}}
    table.upsert(pa.Table.from_pylist([row], schema))
    look_for_hudi(table)
    clock.ms += 100
    other = pa.Table.from_pylist([{**row, "k": "b"}], schema)
    avro = TableSchema(schema).avro("t")
    assert "Total Sales" not in avro
    hudi_commits(table, other, from_ms(clock.ms), from_ms(clock.ms + 10), schema=avro)
    clock.ms += 100
    look_for_hudi(table)
    assert table.schema == schema
    assert sorted(table.to_arrow().to_pylist(), key=lambda found: str(found["k"])) == [row, {**row, "k": "b"}]


def test_verify_reads_the_commits_of_hudi_again(table: Table, clock: Clock) -> None:
    hudi(table, clock, "b")
    look_for_hudi(table)
    assert keys(table.scan()) == ["a", "b"]
    path = max(Path(table.uri).glob(".hoodie/timeline/*_*.deltacommit"))
    path.write_bytes(b"{")
    (finding,) = table.verify().findings
    assert (finding.check, Path(finding.path).name) == ("Hudi's commit", path.name)
