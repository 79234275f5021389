"""Each condition of archiving is needed: else hudi-rs loses rows, or a stale file stands where Hudi's readers look."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.events import archive as steps
from crdt_mor.events import sweep
from crdt_mor.log import publish
from crdt_mor.log.steps import Steps, run
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import TimelineFileName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners import archive
from crdt_mor.planners.archive import Prefix
from tests.inside import run_sweep, session_of, tail_of
from tests.table.archived import SCHEMA, active, hudis, rows

ARCHIVABLE = archive.archivable


@pytest.fixture(autouse=True)
def everything_is_soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 1)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)


@pytest.fixture
def table(fast_path: Path) -> mor.Table:
    return mor.Table.create(str(fast_path), schema=SCHEMA, key="id", buckets=1)


def put(writer: mor.Table | mor.Transaction, key: str, n: int = 1) -> None:
    writer.upsert(pa.table({"id": [key], "n": [n]}))


def first_and_archived(table: mor.Table, folder: Path, state: str) -> tuple[Path, bytes]:
    """Archive six commits and compactions; a file of the first one, as it stood in Hudi's active timeline before."""
    put(table, "first")
    name = next(name for name in active(folder) if name.state == state)
    path = folder / ".hoodie/timeline" / str(name)
    data = path.read_bytes()
    for n in range(6):
        put(table, f"k{n}")
        table.maintenance.compact()
    table.maintenance.archive(keep_commits=1)
    return path, data


def leave_out(monkeypatch: pytest.MonkeyPatch, condition: str) -> None:
    """Archive as if one of the conditions were not there."""

    def careless(
        value: Timeline, completions: Iterable[Completion], named: Iterable[TimelineFileName], oldest: int, keep: int
    ) -> Prefix:
        names = list(named)
        if condition == "a":
            open_ = {p.requested for p in value.pending} | {p.barrier for p in value.plans}
            value = replace(value, pending=(), plans=())
            names = [name for name in names if name.requested not in open_]
        if condition == "c":
            value = replace(value, rolled_back=())
        return ARCHIVABLE(value, completions, names, 1 << 40 if condition == "d" else oldest, keep)

    monkeypatch.setattr(steps, "archivable", careless)
    monkeypatch.setattr(publish, "require_invariants", lambda previous, following: None)
    if condition == "b":
        monkeypatch.setattr(archive, "_groups_of_logs", lambda completion: set())


@pytest.mark.parametrize("condition", ["", "a"])
def test_a_write_pending_since_before_what_is_archived(
    table: mor.Table, fast_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    leave_out(monkeypatch, condition)
    put(table, "first")
    with table.transaction() as straggler:
        put(table, "second")
        table.maintenance.compact()
        put(table, "third")
        table.maintenance.compact()
        put(table, "fourth")
        table.maintenance.archive(keep_commits=1)
        put(straggler, "late")
    assert (hudis(fast_path) == rows(table)) is (condition == "")


@pytest.mark.parametrize("condition", ["", "b"])
def test_a_log_that_no_later_compaction_has_consumed(
    table: mor.Table, fast_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    leave_out(monkeypatch, condition)
    put(table, "first")
    with table.transaction() as straggler:
        put(table, "second")
        table.maintenance.compact()
        put(straggler, "late")
    for _ in range(3):
        table.upsert(pa.table({"id": ["next"], "n": [2]}))
    table.maintenance.archive(keep_commits=1)
    assert (hudis(fast_path) == rows(table)) is (condition == "")


@pytest.mark.parametrize("condition", ["", "c"])
def test_a_file_of_a_write_that_was_given_up(
    table: mor.Table, fast_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    leave_out(monkeypatch, condition)
    put(table, "first")
    table.maintenance.compact()
    monkeypatch.setattr(sweep, "sweep", _no_sweep)
    with suppress(ZeroDivisionError), table.transaction() as given_up:
        put(given_up, "never")
        (pending,) = tail_of(table).pending
        raise ZeroDivisionError
    (log,) = fast_path.glob("*.log.*")
    instant = log.name.split("_")[1][:17]
    late = fast_path / log.name.replace(instant, pending.requested)
    late.write_bytes(log.read_bytes())
    for n in range(3):
        put(table, "second", n)
        table.maintenance.compact()
    table.maintenance.archive(keep_commits=1)
    assert late.exists()
    assert (tail_of(table).archive.watermark < pending.requested) is (condition == "")


def _no_sweep(publisher: object, known: Timeline) -> Steps[Timeline]:
    return known
    yield


@pytest.mark.parametrize("condition", ["", "d"])
def test_a_helper_that_stalled_while_its_version_stood(
    table: mor.Table, fast_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    leave_out(monkeypatch, condition)
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 100)
    put(table, "first")
    session = session_of(table)
    stalled = session.tail()
    for n in range(6):
        put(table, f"k{n}")
        if n % 2:
            table.maintenance.compact()
    table.maintenance.archive(keep_commits=1)
    run(session.publisher.project(stalled), session.store, session.environment)
    watermark = session.tail().archive.watermark
    assert all(name.requested > watermark for name in active(fast_path)) is (condition == "")


def test_a_helper_whose_version_is_gone_takes_back_what_it_put(table: mor.Table, fast_path: Path) -> None:
    put(table, "first")
    session = session_of(table)
    stalled = session.tail()
    for n in range(6):
        put(table, f"k{n}")
        if n % 2:
            table.maintenance.compact()
    done = table.maintenance.archive(keep_commits=1)
    assert done.instants
    stood = active(fast_path)
    run(session.publisher.project(stalled), session.store, session.environment)
    assert active(fast_path) == stood
    assert hudis(fast_path) == rows(table)


def test_the_sweep_removes_what_stands_below_the_watermark(table: mor.Table, fast_path: Path) -> None:
    late, data = first_and_archived(table, fast_path, "requested")
    late.write_bytes(data)
    session = session_of(table)
    session.remember(run_sweep(table))
    assert not late.exists()
    assert hudis(fast_path) == rows(table)


def test_a_commit_of_hudis_below_the_watermark_is_refused_by_name(table: mor.Table, fast_path: Path) -> None:
    first, data = first_and_archived(table, fast_path, "completed")
    requested, _, rest = first.name.partition("_")
    theirs = first.with_name(f"{int(requested) - 9}_{rest}")
    theirs.write_bytes(data.replace(b"crdt_mor", b"crdt_xxx"))
    with pytest.raises(mor.errors.UnsupportedFeatureError, match="lies below this table's archive"):
        mor.Table(str(fast_path)).scan().to_arrow()
    session, swept = session_of(table), InstantTime("19700101000000000")
    with pytest.raises(mor.errors.UnsupportedFeatureError, match="lies below this table's archive"):
        session.run(sweep.upkeep(session.publisher, replace(session.tail(), swept=swept), 60_000))
    assert theirs.exists()
