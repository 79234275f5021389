"""A process of ours dies, and then Hudi has its turn: no commit of ours is lost, and Hudi is not locked out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.format.commit import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlanRecord,
    WriteStat,
    decode_compaction_plan,
    encode_commit,
    encode_compaction_plan,
)
from crdt_mor.hudi.projection import avro_schema
from crdt_mor.hudi.records import claim_record
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.names import data_file_name
from crdt_mor.model.slices import fold_slices
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.testing.simulation.hudi_writer import HUDIS_TOKEN, hudi_commits
from tests.inside import look_for_hudi, run_sweep, session_of, tail_of
from tests.simulated import Simulated
from tests.simulation.foreign_commits import SCHEMA
from tests.stores import Dying, ScriptedStore, WatchedStore, first

HUDI: Final = ".hoodie/timeline"
EXPIRY: Final = timedelta(seconds=60)


@pytest.fixture
def world() -> Simulated:
    return Simulated()


@pytest.fixture
def table(world: Simulated) -> Table:
    """A base file with a log that Hudi knows of."""
    made = world.create(SCHEMA, key="k", buckets=1, opening=Opening(writer_expiry=EXPIRY))
    made.upsert(rows(a=1, b=1))
    made.maintenance.compact()
    made.upsert(rows(a=2))
    return made


def rows(**values: int) -> pa.Table:
    return pa.table({"k": [*values], "v": [*values.values()]}, SCHEMA)


def opened(world: Simulated, store: Any = None) -> Table:
    place = world.store if store is None else store
    return Table("simulated", opening=Opening(store=place, environment=world.environment, writer_expiry=EXPIRY))


def shown(world: Simulated) -> dict[str, int]:
    return dict(opened(world).scan().to_polars().sort("k").rows())


def in_hudis(world: Simulated, ending: str) -> list[str]:
    return sorted(stat.path for stat in world.store.list(HUDI) if stat.path.endswith(ending))


def dies_before(world: Simulated, ending: str, do: Callable[[Table], object], *, skipped: int = 0) -> None:
    """A process dies as it is about to put an object whose path ends so. skipped: how many of them it puts before."""
    dying = Dying(lambda operation, path: operation == "put" and path.endswith(ending), skipped + 1)
    table = opened(world, ScriptedStore(world.store, dying))
    with pytest.raises(ProcessDied):
        do(table)


def untold(world: Simulated) -> None:
    """A commit that is published, and of which Hudi is not told."""
    dies_before(world, ".deltacommit", lambda table: table.upsert(rows(b=3, c=3)))
    world.environment.sleep(1)


def hudi_compacts(world: Simulated, barrier: InstantTime, *, without: str = "") -> list[str]:
    """Hudi compacts what it knows of. Returns what it puts."""
    session = session_of(opened(world))
    (found,) = fold_slices(session.views.completions(session.tail()))
    assert found.base is not None
    logs = tuple(str(log.name) for log in found.logs if log.name.instant != without)
    base = str(replace(found.base.name, token=HUDIS_TOKEN, instant=barrier))
    operation = CompactionOperation(str(found.base.name.instant), logs, str(found.base.name), found.file_id, "", {})
    record = encode_compaction_plan(CompactionPlanRecord((operation,), extra={}))
    return executed(world, barrier, [base], b"as Hudi wrote it", record)


def executed(
    world: Simulated, barrier: InstantTime, bases: list[str], content: bytes, record: bytes | None = None
) -> list[str]:
    """What Hudi's executor leaves."""
    session = session_of(opened(world))
    stats = {"": [WriteStat(file_id=base.partition("_")[0], path=base, partition_path="") for base in bases]}
    extra = {"schema": avro_schema(session.tail().schema, session.config.name)}
    done = encode_commit(CommitMetadata(stats, "COMPACT", extra, compacted=True))
    completed = from_ms(world.environment.now_ms())
    objects = {
        **dict.fromkeys(bases, content),
        **({} if record is None else {f"{HUDI}/{barrier}.compaction.requested": record}),
        f"{HUDI}/{barrier}.compaction.inflight": b"",
        f"{HUDI}/{barrier}_{completed}.commit": done,
    }
    for path, data in objects.items():
        world.store.put(path, data)
    world.environment.sleep(1)
    return [*objects]


# --- compactions of Hudi's --------------------------------------------------------------------------------------------


def test_a_compaction_of_hudis_without_a_commit_of_ours_below_it_is_refused_by_name(
    world: Simulated, table: Table
) -> None:
    untold(world)
    commit = tail_of(opened(world)).completions[-1]
    barrier = from_ms(world.environment.now_ms() + 1)
    put = hudi_compacts(world, barrier, without=commit.requested)
    said = f"misses an earlier commit.*compaction={barrier} commit={commit.requested}"
    for use in (lambda: opened(world), lambda: look_for_hudi(table), lambda: table.upsert(rows(d=1))):
        with pytest.raises(UnsupportedFeatureError, match=said):
            use()
    for path in put:
        world.store.delete(path)
    assert opened(world).maintenance.maintain().ok
    assert in_hudis(world, f"{commit.completed}.deltacommit")
    assert shown(world) == {"a": 2, "b": 3, "c": 3}
    assert opened(world).verify().is_sound


def test_a_compaction_of_hudis_with_all_commits_below_it_is_adopted(world: Simulated, table: Table) -> None:
    barrier = from_ms(world.environment.now_ms() + 1)
    hudi_compacts(world, barrier)
    look_for_hudi(table)
    table.upsert(rows(d=1))
    assert [c.requested for c in tail_of(table).completions if c.adopted] == [barrier]


def test_an_overwrite_of_which_hudi_was_not_told_is_not_buried_by_a_compaction_of_hudis(
    world: Simulated, table: Table
) -> None:
    before = session_of(table).tail()
    (known,) = fold_slices(session_of(table).views.completions(before))
    dies_before(world, ".commit", lambda t: t.overwrite(rows(z=9)))
    world.environment.sleep(1)
    barrier = from_ms(world.environment.now_ms() + 1)
    assert known.base is not None
    logs = tuple(str(log.name) for log in known.logs)
    operation = CompactionOperation(str(known.base.name.instant), logs, str(known.base.name), known.file_id, "", {})
    base = str(replace(known.base.name, token=HUDIS_TOKEN, instant=barrier))
    executed(world, barrier, [base], b"", encode_compaction_plan(CompactionPlanRecord((operation,), extra={})))
    with pytest.raises(UnsupportedFeatureError, match="misses an earlier commit"):
        opened(world)


# --- plans of ours ----------------------------------------------------------------------------------------------------


def hudi_executes(world: Simulated, table: Table, barrier: InstantTime) -> None:
    """Hudi executes a plan of ours, that of a table with one file group: its base file holds the same rows."""
    found = [(stat.path, data_file_name(stat.path)) for stat in world.store.walk("")]
    ((path, name),) = [(path, name) for path, name in found if name and name.instant == barrier and ".log." not in path]
    content = world.store.read(path)
    assert content is not None
    executed(world, barrier, [str(replace(name, token=HUDIS_TOKEN))], content)


def planned(table: Table) -> InstantTime:
    """A plan that is executed, so that there is a base file to take for Hudi's, and not completed."""
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.plans.execute(plan)
    return plan.barrier


def test_hudi_is_told_the_sizes_of_a_plan_without_which_its_executor_fails(world: Simulated, table: Table) -> None:
    planned(table)
    (path,) = in_hudis(world, ".compaction.requested")[-1:]
    data = world.store.read(path)
    assert data is not None
    (operation,) = decode_compaction_plan(data, path).operations
    (found,) = fold_slices(session_of(table).views.completions(session_of(table).tail()))
    assert operation.metrics == {
        "TOTAL_LOG_FILES": 1.0, "TOTAL_LOG_FILES_SIZE": float(found.logs[0].size),
        "TOTAL_IO_READ_MB": 0.0, "TOTAL_IO_WRITE_MB": 0.0, "TOTAL_IO_MB": 0.0,
    }  # fmt: skip


def test_a_plan_of_ours_that_hudi_executed_is_a_compaction_of_hudis(world: Simulated, table: Table) -> None:
    barrier = planned(table)
    hudi_executes(world, table, barrier)
    look_for_hudi(table)
    assert shown(world) == {"a": 2, "b": 1}
    assert table.maintenance.plans.open() == []
    table.upsert(rows(c=4))
    assert not tail_of(table).plans
    assert [c.requested for c in tail_of(table).completions if c.adopted] == [barrier]
    assert table.maintenance.compact()
    assert shown(world) == {"a": 2, "b": 1, "c": 4}
    assert opened(world).verify().is_sound


def test_what_an_executor_of_ours_left_of_a_plan_that_hudi_executed_goes_with_its_adoption(
    world: Simulated, table: Table
) -> None:
    barrier = planned(table)
    hudi_executes(world, table, barrier)
    look_for_hudi(table)
    table.upsert(rows(c=4))
    left = [stat.path for stat in world.store.walk("") if (n := data_file_name(stat.path)) and n.instant == barrier]
    assert [HUDIS_TOKEN in path for path in left] == [True]
    assert shown(world) == {"a": 2, "b": 1, "c": 4}


def test_a_plan_that_both_have_completed_is_ours_and_what_hudi_put_is_swept(world: Simulated, table: Table) -> None:
    dies_before(world, ".commit", lambda t: t.maintenance.compact())
    barrier = tail_of(opened(world)).completions[-1].requested
    world.environment.sleep(1)
    hudi_executes(world, table, barrier)
    assert shown(world) == {"a": 2, "b": 1}
    opened(world).upsert(rows(c=4))
    assert len(in_hudis(world, ".commit")) == 3
    assert opened(world).maintenance.maintain().ok
    assert len(in_hudis(world, ".commit")) == 2
    assert not [stat.path for stat in world.store.walk("") if HUDIS_TOKEN in stat.path]
    assert shown(world) == {"a": 2, "b": 1, "c": 4}
    assert opened(world).verify().is_sound


def test_a_plan_that_hudi_executed_before_it_was_given_up_is_adopted(world: Simulated, table: Table) -> None:
    barrier = planned(table)
    hudi_executes(world, table, barrier)
    assert table.maintenance.roll_back(barrier).kind == "compaction"
    assert shown(world) == {"a": 2, "b": 1}
    assert in_hudis(world, f"{barrier}.compaction.requested")
    world.environment.sleep(90)
    opened(world).upsert(rows(c=4))
    value = tail_of(opened(world))
    assert not value.rolled_back
    assert barrier in [c.requested for c in value.completions if c.adopted]
    assert shown(world) == {"a": 2, "b": 1, "c": 4}
    assert opened(world).verify().is_sound


def test_a_plan_of_ours_that_hudi_executed_without_a_commit_of_its_own_is_refused(
    world: Simulated, table: Table
) -> None:
    """The clock of the one writer is behind, so that the plan could not know its commit."""
    requested = from_ms(world.environment.now_ms() + 1)
    world.environment.sleep(60)
    barrier = planned(table)
    hudi_executes(world, table, barrier)
    hudi_commits(table, rows(a=7), requested, from_ms(to_ms(requested) + 2))
    with pytest.raises(UnsupportedFeatureError, match=f"instant={requested}"):
        opened(world)


# --- who is told, and when --------------------------------------------------------------------------------------------


def test_maintain_tells_hudi_of_the_newest_version_whatever_is_due(world: Simulated, table: Table) -> None:
    untold(world)
    due = [str(action) for action in opened(world).maintenance.maintain(dry_run=True).actions]
    assert f"hudi due, since Hudi was not told of version {opened(world).version}" in due
    done = [action for action in opened(world).maintenance.maintain().actions if action.service == "hudi"]
    assert [(action.state, action.files_written) for action in done] == [("done", 1)]
    commit = tail_of(opened(world)).completions[-1]
    assert in_hudis(world, f"{commit.requested}_{commit.completed}.deltacommit")
    assert not [a for a in opened(world).maintenance.maintain().actions if a.service == "hudi"]


def test_verify_says_of_which_commits_hudi_is_not_told_and_what_to_run(world: Simulated, table: Table) -> None:
    untold(world)
    found = opened(world).verify()
    commit = tail_of(opened(world)).completions[-1]
    (hint,) = found.hints
    assert found.is_sound
    assert (hint.check, hint.path) == ("unprojected", f"{HUDI}/{commit.requested}_{commit.completed}.deltacommit")
    assert "crdt-mor maintain" in hint.advice
    opened(world).maintenance.maintain()
    assert not opened(world).verify().hints


def test_a_table_that_is_opened_for_a_write_tells_hudi_before_the_write(world: Simulated, table: Table) -> None:
    untold(world)
    session = session_of(opened(world))
    version = session.tail().version
    session.adopt()
    assert session.tail().version == version
    commit = session.tail().completions[-1]
    assert in_hudis(world, f"{commit.requested}_{commit.completed}.deltacommit")


def puts_of(world: Simulated, do: Callable[[Table], object]) -> list[str]:
    """The files of Hudi's timeline that are put, in order, without their times."""
    store = WatchedStore(world.store)
    do(opened(world, store))
    return [path.rpartition("/")[2].partition(".")[2] for path in store.paths("put") if path.startswith(f"{HUDI}/2")]


def begin(table: Table) -> None:
    table.transaction().__enter__()


def clean(table: Table) -> None:
    assert table.maintenance.clean(commits=1, readers=timedelta(0)).files


def restore(table: Table) -> None:
    table.maintenance.restore(table.version - 1)


@pytest.mark.parametrize(
    ("do", "put"),
    [
        (lambda table: table.upsert(rows(c=1)), ["deltacommit.requested", "deltacommit.inflight", "deltacommit"]),
        (begin, ["deltacommit.requested", "deltacommit.inflight"]),
        (lambda table: table.maintenance.compact(), ["compaction.requested", "commit", "compaction.inflight"]),
        (clean, ["clean", "clean.requested", "clean.inflight"]),
        (restore, ["restore", "restore.requested", "restore.inflight"]),
    ],
    ids=["commit", "begin", "compact", "clean", "restore"],
)  # fmt: skip
def test_what_begins_is_requested_first_and_what_ends_at_once_is_completed_first(
    world: Simulated, table: Table, do: Callable[[Table], object], put: list[str]
) -> None:
    assert puts_of(world, do)[: len(put)] == put


# --- writers that died before their version ---------------------------------------------------------------------------


def dead(world: Simulated) -> InstantTime:
    """A process has claimed a time and put its log file, and died before its version. A later commit follows."""
    dies_before(world, ".json", lambda table: table.upsert(rows(a=9, c=9)))
    (path,) = [path for path in in_hudis(world, "requested") if not in_hudis_completed(world, path)]
    world.environment.sleep(1)
    opened(world).upsert(rows(b=5))
    return InstantTime(path.rpartition("/")[2][:17])


def in_hudis_completed(world: Simulated, path: str) -> bool:
    time = path.rpartition("/")[2][:17]
    return any(f"/{time}_" in stat.path for stat in world.store.list(HUDI))


def files_of(world: Simulated, instant: str) -> list[str]:
    return [stat.path for stat in world.store.walk("") if instant in stat.path] + [
        stat.path for stat in world.store.list(HUDI) if instant in stat.path
    ]


def test_a_writer_that_died_with_its_claim_is_pending(world: Simulated, table: Table) -> None:
    instant = dead(world)
    (row,) = opened(world).inspect.pending().to_pylist()
    assert (row["requested_at"], row["application"], row["silent"]) == (instant, None, timedelta(seconds=1))


def test_roll_back_gives_up_a_writer_that_died_with_its_claim(world: Simulated, table: Table) -> None:
    instant = dead(world)
    done = opened(world).maintenance.roll_back(instant)
    assert (done.instant, done.kind, done.repeated, done.left) == (instant, "write", False, 0)
    assert files_of(world, instant) == []
    assert opened(world).inspect.pending().num_rows == 0
    assert shown(world) == {"a": 2, "b": 5}
    with pytest.raises(InvalidInputError, match="knows no write or plan"):
        opened(world).maintenance.roll_back(instant)


def test_maintain_sweeps_a_writer_that_died_with_its_claim_however_long_ago_the_last_sweep_was(
    world: Simulated, table: Table
) -> None:
    world.environment.sleep(90)
    opened(world).maintenance.maintain()
    instant = dead(world)
    done = opened(world).maintenance.maintain()
    assert [str(a) for a in done.actions if a.service == "sweep"] == [
        "sweep done, since 1 given-up write may have left files"
    ]
    assert files_of(world, instant) == []


def test_maintain_gives_up_a_silent_writer_however_long_ago_the_last_sweep_was(world: Simulated, table: Table) -> None:
    begin(opened(world))
    world.environment.sleep(59)
    run_sweep(opened(world))
    world.environment.sleep(2)
    opened(world).maintenance.maintain()
    assert opened(world).inspect.pending().num_rows == 0


def test_a_writer_whose_claim_was_given_up_by_hand_commits_at_another_time(world: Simulated, table: Table) -> None:
    """It is alive, and about to put its version."""
    gone: list[str] = []

    def give_up() -> None:
        (row,) = opened(world).inspect.pending().to_pylist()
        gone.append(row["requested_at"])
        opened(world).maintenance.roll_back(gone[0])

    late = first("put", lambda path: "/.crdt_mor/timeline/" in path, give_up)
    commit = opened(world, ScriptedStore(world.store, late)).upsert(rows(a=9, c=9))
    assert commit.requested_at > gone[0]
    assert shown(world) == {"a": 9, "b": 1, "c": 9}
    assert not [stat.path for stat in world.store.walk("") if gone[0] in stat.path]
    assert opened(world).verify().is_sound


def test_a_claim_of_an_earlier_release_ends_an_attempt_at_its_time(world: Simulated, table: Table) -> None:
    """Such a release claims a time by the other of the two files."""
    claimed: list[str] = []

    def is_claim(path: str) -> bool:
        if not path.endswith("deltacommit.requested"):
            return False
        claimed.append(path.removesuffix(".requested") + ".inflight")
        return True

    beside = first("put", is_claim, lambda: world.store.put(claimed[0], claim_record("an earlier release")))
    commit = opened(world, ScriptedStore(world.store, beside)).upsert(rows(c=9))
    assert commit.requested_at not in claimed[0]
    assert world.store.read(claimed[0]) == claim_record("an earlier release")
    assert shown(world) == {"a": 2, "b": 1, "c": 9}


def test_a_claim_at_a_time_that_is_archived_is_no_pending_write(
    world: Simulated, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value does not tell whether it was committed; a stalled helper may have put its file."""
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 2)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 1)
    for number in range(4):
        table.upsert(rows(a=number))
        table.maintenance.compact()
    assert table.maintenance.archive(keep_commits=1).instants
    archived = tail_of(table).archive.watermark
    world.store.put(f"{HUDI}/{archived}.deltacommit.requested", claim_record("stalled"))
    assert opened(world).inspect.pending().num_rows == 0
    with pytest.raises(InvalidInputError):
        opened(world).maintenance.roll_back(archived)
