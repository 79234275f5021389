"""A table stays quick and small however long it lives: old versions go, the value stays small, history is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from crdt_mor import Opening, Table
from crdt_mor.log import publish
from crdt_mor.log.paths import VERSIONS, segment_path, version_path
from crdt_mor.log.tail import KEPT_VERSIONS
from tests.inside import tail_of
from tests.simulated import Simulated
from tests.table.compacting import close, open_write
from tests.table.helpers import Make, Place, frame, rows


def versions(place: Place) -> list[int]:
    return [int(stat.path.rpartition("/")[2].removesuffix(".json")) for stat in place.store.list(VERSIONS)]


def numbers(table: Table, **scan: Any) -> dict[Any, Any]:
    """`n` by key."""
    return {key: n for key, n in rows(table, "id", "n", **scan)}  # noqa: C416  `dict` asks for pairs


@pytest.mark.costly
def test_old_versions_are_deleted_oldest_first_and_a_range_is_kept(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 40)
    table = make(buckets=1)
    for i in range(150):
        table.upsert(frame((f"k{i % 5}", "x", i)))
    left = versions(place)
    assert left == list(range(left[0], table.version + 1)), "without a gap"
    assert 40 <= len(left) < 200
    assert left[0] > 0
    assert rows(place.open(), "id", "n") == [(f"k{i % 5}", i) for i in range(145, 150)]


@pytest.mark.costly
def test_a_handle_that_slept_through_the_deletion_of_its_version_finds_the_tail(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 4)
    table = make(buckets=1)
    table.upsert(frame(("a", "x", 0)))
    asleep = place.open()
    slept_at = asleep.version
    for i in range(80):
        table.upsert(frame(("a", "x", i)))
    assert versions(place)[0] > slept_at
    assert rows(asleep, "n") == [(79,)]
    asleep.upsert(frame(("a", "x", 80)))
    assert rows(table, "n") == [(80,)]


@pytest.mark.costly
def test_history_that_compaction_has_superseded_is_not_read_for_a_snapshot(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 4)
    monkeypatch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 2)
    table = make(buckets=1)
    commits = [table.upsert(frame((f"k{i % 7}", "x", i))) for i in range(40)]
    table.maintenance.compact()
    commits += [table.upsert(frame((f"k{i % 7}", "x", i))) for i in range(40, 80)]
    value = tail_of(place.open())
    superseded = {segment_path(s.name) for s in value.segments if s.superseded is not None}
    assert superseded, "the first forty commits have been consumed"
    assert sum(s.count for s in value.segments) + len(value.completions) == 81
    expected = {c.version: {f"k{j % 7}": j for j in range(i + 1)} for i, c in enumerate(commits)}
    reader, store = place.watched()
    assert numbers(reader) == expected[commits[-1].version]
    assert not superseded & set(store.paths("read"))
    for commit in (commits[0], commits[20], commits[39], commits[40], commits[60]):
        assert numbers(reader, as_of=commit) == expected[commit.version]
    assert superseded & set(store.paths("read")), "the past needs them"


@pytest.mark.costly
def test_a_commit_costs_the_same_number_of_store_operations_however_old_the_table_is(make: Make, place: Place) -> None:
    make(buckets=1)
    table, store = place.watched()
    counts: list[int] = []
    for i in range(60):
        store.calls.clear()
        table.upsert(frame(("a", "x", i)))
        counts.append(len(store.calls))
    usual = sorted(counts)[len(counts) // 2]
    assert max(counts[:15]) >= usual
    assert max(counts[1:]) < 3 * usual + 10, "sealing a segment costs a few more"
    assert counts[0] < 65, "the first one sweeps, and each event lists posts"


@pytest.mark.slow
def test_after_3000_commits_the_value_is_small_and_old_versions_are_gone(make: Make, place: Place) -> None:
    table = make(buckets=1)
    for i in range(3000):
        table.upsert(frame((f"k{i % 50}", "x", i)))
        if i % 500 == 499:
            table.maintenance.compact()
    left = versions(place)
    assert len(left) < KEPT_VERSIONS + 2 * publish.EXPIRE_EVERY + 10
    newest = place.store.stat(version_path(left[-1]))
    assert newest is not None
    assert newest.size < 40_000
    value = tail_of(place.open())
    assert len(value.completions) + sum(s.count for s in value.segments) == 3006
    assert len(value.segments) < 60
    assert numbers(place.open()) == {f"k{i % 50}": i for i in range(2950, 3000)}
    assert table.inspect.timeline().num_rows == 3006


def test_small_write_beside_writers_in_turns_and_an_open_block_is_one_event(simulated: Simulated) -> None:
    one = simulated.create(frame().schema, key="id", buckets=1)
    one.upsert(frame(("a", "x", 0)))
    other = Table("simulated", opening=Opening(store=simulated.store, environment=simulated.environment))

    def events(table: Table) -> int:
        before = one.version
        table.upsert(frame(("a", "x", 1)))
        return one.version - before

    assert [events(table) for table in (one, other, other, one, other)] == [1] * 5
    standing = open_write(one, ("b", "x", 2))
    assert [events(other), events(one), events(other)] == [1] * 3
    close(standing)
    assert rows(other, "id", "n") == [("a", 1), ("b", 2)]
