"""Archiving a table: the directory gets small, and nobody sees another row."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crdt_mor as mor
from crdt_mor.format.archive import decode_instants, decode_manifest
from crdt_mor.hudi.adoption import foreign_completions
from crdt_mor.log import publish
from crdt_mor.log.steps import List, Single, perform
from crdt_mor.planners import archive
from tests.driving import one_by_one
from tests.inside import session_of, store_of, tail_of
from tests.simulated import Simulated
from tests.table.archived import SCHEMA, TIMELINE, active, hudis, rows

HISTORY = f"{TIMELINE}/history"


@pytest.fixture(autouse=True)
def few_versions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 6)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 2)


def history(path: Path) -> list[str]:
    return sorted(file.name for file in (path / HISTORY).iterdir())


def write(table: mor.Table, commits: Sequence[int]) -> list[mor.Commit]:
    return [table.upsert(pa.table({"id": [f"k{n % 5}", f"x{n % 3}"], "n": [n, -n]})) for n in commits]


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    return mor.Table.create(str(fast_path), schema=SCHEMA, key="id", buckets=2)


@pytest.mark.slow
def test_the_directory_gets_small_and_every_reader_sees_the_same(table: mor.Table, fast_path: Path) -> None:
    commits = []
    checkpoint = table.scan().checkpoint
    for start in range(0, 40, 8):
        commits += write(table, range(start, start + 8))
        table.maintenance.compact()
    commits = commits[::7]
    before = [rows(table, as_of=commit) for commit in commits]
    changed = table.changes(since=checkpoint).to_arrow().num_rows
    files = len(active(fast_path))

    done = table.maintenance.archive(keep_commits=5)
    assert done.instants > 30
    assert "newest" in done.held_by
    assert len(active(fast_path)) == files - 3 * done.instants
    assert done.until is not None
    assert all(name.requested > done.until for name in active(fast_path))
    for reader in (table, mor.Table(str(fast_path))):
        assert [rows(reader, as_of=commit) for commit in commits] == before
        assert reader.changes(since=checkpoint).to_arrow().num_rows == changed
        assert rows(reader) == hudis(fast_path)
    assert table.maintenance.archive(keep_commits=5).instants == 0
    write(table, [99])
    assert ("k4", 99) in hudis(fast_path)
    assert rows(table) == hudis(fast_path)


def test_the_history_holds_what_stood_in_the_directory(table: mor.Table, fast_path: Path) -> None:
    write(table, range(12))
    table.maintenance.compact()
    write(table, range(12))
    table.maintenance.compact()
    stood = {name: (fast_path / TIMELINE / str(name)).read_bytes() for name in active(fast_path)}
    done = table.maintenance.archive(keep_commits=3)
    assert done.until is not None
    until = done.until
    (data_file, manifest) = history(fast_path)
    assert manifest == "manifest_1"
    assert decode_manifest((fast_path / HISTORY / manifest).read_bytes(), "") == (data_file,)
    data = (fast_path / HISTORY / data_file).read_bytes()
    instants = decode_instants(data, "")
    assert len(instants) == done.instants
    assert {instant.name: instant.metadata for instant in instants} == {
        name: content for name, content in stood.items() if name.state == "completed" and name.requested <= until
    }
    columns = pq.read_table(pa.BufferReader(data))
    assert columns.schema.field("version") == pa.field("version", pa.int32(), nullable=False)
    plans = {row["instantTime"]: row["plan"] for row in columns.to_pylist() if row["plan"]}
    assert plans == {
        name.requested: content
        for name, content in stood.items()
        if (name.action, name.state) == ("compaction", "requested") and name.requested <= until
    }
    assert {row["action"] for row in columns.to_pylist()} == {"deltacommit", "commit"}


@pytest.mark.slow
def test_ten_small_files_become_one_and_old_manifests_go(
    table: mor.Table, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "INSTANTS_MAX", 2)
    for start in range(0, 32, 8):
        write(table, range(start, start + 8))
        table.maintenance.compact()
    done = table.maintenance.archive(keep_commits=2)
    names = history(fast_path)
    manifests = [name for name in names if name.startswith("manifest_")]
    assert len(manifests) == 3
    newest = max(manifests, key=lambda name: int(name.removeprefix("manifest_")))
    counted = decode_manifest((fast_path / HISTORY / newest).read_bytes(), "")
    assert [name[-9:] for name in counted][:1] == ["1.parquet"]
    instants = [i for name in counted for i in decode_instants((fast_path / HISTORY / name).read_bytes(), name)]
    assert len({i.name for i in instants}) == len(instants) == done.instants
    assert [i.name.requested for i in instants] == sorted(i.name.requested for i in instants)
    assert rows(table) == hudis(fast_path)


@pytest.mark.slow
def test_a_pending_write_holds_what_came_after_it(table: mor.Table, fast_path: Path) -> None:
    write(table, range(10))
    table.maintenance.compact()
    with table.transaction() as straggler:
        write(table, range(10, 30))
        table.maintenance.compact()
        held = table.maintenance.archive(keep_commits=1)
        straggler.upsert(pa.table({"id": ["late"], "n": [1]}))
    assert 0 < held.instants <= 11
    assert "is unfinished" in held.held_by
    assert rows(table) == hudis(fast_path)
    write(table, range(30, 50))
    assert "not compacted" in table.maintenance.archive(keep_commits=1).held_by
    table.maintenance.compact()
    write(table, range(17))
    assert table.maintenance.archive(keep_commits=1).instants > 20
    assert rows(table) == hudis(fast_path)


def test_nothing_to_archive_is_said(table: mor.Table) -> None:
    assert table.maintenance.archive() == mor.results.Archived(
        0, None, "the newest 20 commits stay in the active timeline"
    )


@pytest.mark.parametrize("keep", [0, "3", None])
def test_what_is_no_number_of_commits_is_refused(table: mor.Table, keep: Any) -> None:
    with pytest.raises(mor.InvalidInputError, match="keep_commits"):
        table.maintenance.archive(keep_commits=keep)


@pytest.mark.slow
def test_a_clean_drops_what_is_archived_and_a_look_costs_one_listing(
    table: mor.Table, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 40, 8):
        write(table, range(start, start + 8))
        table.maintenance.compact()
    table.maintenance.archive(keep_commits=2)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    write(table, range(40, 44))
    value = tail_of(table)
    assert value.retention.dropped_count > 20
    stands = {name.requested for name in active(fast_path) if name.state == "completed"}
    assert value.standing == len(stands - {c.requested for c in value.completions})
    assert rows(mor.Table(str(fast_path))) == rows(table) == hudis(fast_path)
    table.maintenance.archive(keep_commits=2)
    assert rows(mor.Table(str(fast_path))) == rows(table) == hudis(fast_path)

    steps = one_by_one(foreign_completions(session_of(table).publisher.projector, tail_of(table)))
    asked: list[Single] = []
    with suppress(StopIteration):
        asked.append(next(steps))
        while True:
            asked.append(steps.send(perform(asked[-1], store_of(table), session_of(table).environment)))
    assert asked == [List(TIMELINE, numbered=True)]


def test_applications_that_wrote_long_ago_are_forgotten_when_it_is_due(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id")
    data = pa.table({"id": ["a"], "n": [1]})
    table.upsert(data, token=("old", 7))
    simulated.environment.sleep(timedelta(days=300).total_seconds())
    table.upsert(data, token=("young", 1))
    simulated.environment.sleep(timedelta(days=100).total_seconds())
    table.upsert(data)
    (done,) = [action for action in table.maintenance.maintain().actions if action.service == "tokens"]
    assert "1 application wrote nothing" in done.why
    assert [token.application for token in tail_of(table).tokens] == ["young"]
    assert table.upsert(data, token=("young", 1)).repeated
    assert not table.upsert(data, token=("old", 7)).repeated
    assert not [action for action in table.maintenance.maintain().actions if action.service == "tokens"]
