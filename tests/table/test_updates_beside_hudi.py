"""Updates beside writes of Hudi's own that are under way: what these commit comes before, and is never lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import pyarrow as pa
import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.events.sweep import SWEEP_EVERY_MS
from crdt_mor.format.commit import CommitMetadata, encode_commit
from crdt_mor.hudi.records import claim_record
from crdt_mor.log.paths import heartbeat_path
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.parts import PartDone, UpdatePart
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from crdt_mor.write import beginning
from tests.inside import session_of
from tests.simulated import Simulated
from tests.simulation.foreign_commits import SCHEMA

NOW: Final = timedelta(0)
EXPIRY_S: Final = 600


@pytest.fixture
def world() -> Simulated:
    return Simulated()


@pytest.fixture
def table(world: Simulated) -> Table:
    made = world.create(SCHEMA, key="k", buckets=1)
    made.upsert(rows(a=0))
    return made


def rows(**values: int) -> pa.Table:
    return pa.table({"k": [*values], "v": [*values.values()]}, SCHEMA)


def shown(world: Simulated) -> dict[str, int]:
    return dict(again(world).scan().to_polars().sort("k").rows())


def again(world: Simulated) -> Table:
    return Table("simulated", opening=Opening(store=world.store, environment=world.environment))


def timeline(table: Table, name: str) -> str:
    return f"{session_of(table).publisher.projector.folder}/{name}"


def hudi_begins(world: Simulated, table: Table) -> InstantTime:
    """A write of Hudi's begins; its time."""
    world.environment.sleep(0.1)
    requested = from_ms(world.environment.now_ms())
    world.store.put(timeline(table, f"{requested}.deltacommit.requested"), b"")
    world.store.put(
        timeline(table, f"{requested}.deltacommit.inflight"), encode_commit(CommitMetadata({}, "UPSERT", {}))
    )
    world.environment.sleep(0.1)
    return requested


def hudi_completes(world: Simulated, table: Table, requested: InstantTime, data: pa.Table) -> None:
    world.environment.sleep(0.1)
    hudi_commits(table, data, requested, from_ms(world.environment.now_ms()))
    world.environment.sleep(0.1)


def here(parts: Sequence[UpdatePart]) -> list[PartDone]:
    return [part.execute() for part in parts]


def in_a_block(table: Table, wait: timedelta) -> None:
    with table.transaction(isolation="serializable", wait=wait) as tx:
        tx.update({"v": "v + 1"})


Change = Callable[[Table, timedelta], object]
CHANGES: Final[dict[str, Change]] = {
    "update": lambda table, wait: table.update({"v": "v + 1"}, wait=wait),
    "block": in_a_block,
    "parts": lambda table, wait: table.update({"v": "v + 1"}, execute_parts=here, wait=wait),
    "merge": lambda table, wait: (
        table.merge(rows(a=1), wait=wait).when_matched_update({"v": "target.v + source.v"}).execute()
    ),
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@each_change
def test_a_write_of_hudis_that_is_under_way_is_waited_for(world: Simulated, table: Table, change: Change) -> None:
    for _ in range(2):  # also of a table of which nothing is due
        requested = hudi_begins(world, table)
        other = again(world)
        for one in (table, other):
            with pytest.raises(EarlierWritePendingError, match=f"own timeline.*requested={requested} by=Hudi since="):
                change(one, NOW)
        assert table.inspect.pending().num_rows == 0
        hudi_completes(world, table, requested, rows(a=100, b=1))
        change(other, NOW)
        assert shown(world)["a"] == 101


@each_change
def test_it_computes_from_what_hudi_commits_while_it_waits(world: Simulated, table: Table, change: Change) -> None:
    requested, passes = hudi_begins(world, table), world.environment.sleep

    def ending(seconds: float) -> None:
        world.environment.sleep = passes  # type: ignore[method-assign]
        passes(seconds)
        hudi_completes(world, table, requested, rows(a=100))

    world.environment.sleep = ending  # type: ignore[method-assign]
    change(table, timedelta(seconds=60))
    assert shown(world) == {"a": 101}
    table.maintenance.compact()
    assert shown(world) == {"a": 101}


@pytest.mark.parametrize("is_sealed", [False, True])
def test_it_computes_from_what_hudi_commits_just_when_it_begins(
    world: Simulated, table: Table, monkeypatch: pytest.MonkeyPatch, is_sealed: bool
) -> None:
    """is_sealed: others have adopted it and moved it to a segment, all of which completed before the update began."""
    if is_sealed:
        monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    requested, begin = hudi_begins(world, table), beginning.begin

    def completing(*given: object) -> object:
        monkeypatch.setattr(beginning, "begin", begin)
        hudi_completes(world, table, requested, rows(a=100))
        begun = begin(*given)  # type: ignore[arg-type]
        for value in range(is_sealed * 2):
            world.environment.sleep(0.1)
            other = again(world)
            other.scan()  # which looks for what Hudi has written
            other.upsert(rows(b=value))
        return begun

    monkeypatch.setattr(beginning, "begin", completing)
    table.update({"v": "v + 1"}, "k = 'a'", wait=NOW)
    assert shown(world)["a"] == 101


def test_a_delete_by_a_filter_waits_and_a_write_that_reads_nothing_does_not(world: Simulated, table: Table) -> None:
    requested = hudi_begins(world, table)
    table.upsert(rows(b=1))
    table.delete(keys=["b"])
    with pytest.raises(EarlierWritePendingError):
        table.delete(where="v > 50", wait=NOW)
    hudi_completes(world, table, requested, rows(a=100))
    assert table.delete(where="v > 50", wait=NOW).deletes == 1
    assert shown(world) == {}


def test_what_hudi_requests_later_comes_later(world: Simulated, table: Table) -> None:
    with again(world).transaction(isolation="serializable", wait=NOW) as tx:
        requested = hudi_begins(world, table)
        tx.update({"v": "v + 1"})
    hudi_completes(world, table, requested, rows(a=100))
    assert shown(world) == {"a": 100}


def test_a_writer_of_hudis_that_is_silent_is_not_waited_for(world: Simulated, table: Table) -> None:
    requested = hudi_begins(world, table)
    world.environment.sleep(EXPIRY_S)
    world.store.touch(heartbeat_path(requested))
    world.environment.sleep(EXPIRY_S)
    with pytest.raises(EarlierWritePendingError):
        table.update({"v": "v + 1"}, wait=NOW)
    world.environment.sleep(1)
    table.update({"v": "v + 1"}, wait=NOW)
    assert shown(world) == {"a": 1}


def test_what_a_writer_of_ours_has_left_is_none_of_hudis(world: Simulated, table: Table) -> None:
    claimed = from_ms(world.environment.now_ms())
    world.store.put(timeline(table, f"{claimed}.deltacommit.inflight"), claim_record("died"))
    world.environment.sleep(0.1)
    table.update({"v": "v + 1"}, wait=NOW)
    assert shown(world) == {"a": 1}


def test_a_sweep_leaves_the_heartbeats_of_hudis_writers(world: Simulated, table: Table) -> None:
    """Another writer of Hudi's gives up one whose heartbeat is not there."""
    requested = hudi_begins(world, table)
    over = from_ms(world.environment.now_ms() - 10)
    for instant in (requested, over):
        world.store.touch(heartbeat_path(instant))
    table.upsert(rows(b=0))
    world.environment.sleep(SWEEP_EVERY_MS / 1000 + 1)
    with table.transaction() as tx:
        tx.upsert(rows(b=1))
    assert world.store.stat(heartbeat_path(over)) is None
    assert world.store.stat(heartbeat_path(requested)) is not None
