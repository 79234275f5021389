"""Log compaction: the logs of a file group become one beside a copy of its base file, and no answer changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crdt_mor import InvalidInputError, Table
from crdt_mor.errors import FormatError
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.services import compaction
from tests.inside import frozen
from tests.table.compacting import close, every_answer, open_write, remove
from tests.table.helpers import Make, Place, Row, data_files, frame, rows
from tests.tiers import only

MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "counter": {"merge": {"n": Counter()}},
}


@pytest.fixture(params=MERGES)
def table(make: Make, request: pytest.FixtureRequest) -> Table:
    """A table of each merge, compacted once, so that there is a base file."""
    table = make(buckets=1, **MERGES[request.param])
    table.upsert(frame(*((f"k{i}", "first", i) for i in range(6))))
    table.maintenance.compact()
    return table


def layout(table: Table) -> list[tuple[str, int]]:
    """The kind and the rows of each file of the latest snapshot."""
    files = table.inspect.files()
    return list(zip(files["kind"].to_pylist(), files["rows"].to_pylist(), strict=True))


@pytest.mark.costly
def test_the_logs_become_one_and_the_base_stays_as_it_is(table: Table, place: Place) -> None:
    commits = [table.upsert(frame(("k0", "x", 10 + i), (f"own{i}", "x", i))) for i in range(3)]
    commits.append(remove(table, "k1"))
    before = every_answer(table, commits)
    (old,) = (path for path in data_files(place) if path.endswith(".parquet"))
    (done,) = table.maintenance.compact(logs_only=True)
    assert (done.file_groups, done.logs_only, done.rows, done.carried) == (1, 1, 0, 5)
    assert layout(table) == [("base", 6), ("carry", 4)]
    (base,) = (path for path in data_files(place) if done.barrier in path and path.endswith(".parquet"))
    assert place.store.read(base) == place.store.read(old)
    assert every_answer(table, commits) == before
    assert table.maintenance.compact(logs_only=True) == [], "one log is as few as there can be"
    assert table.maintenance.compact()[0].rows == 8
    assert layout(table) == [("base", 8)]
    assert every_answer(table, commits) == before


@pytest.mark.slow
@pytest.mark.parametrize("table", only(["partial"], MERGES), indirect=True)
def test_stragglers_take_their_place_before_and_after_it(table: Table) -> None:
    early, late, last = (open_write(table, ("k0", f"straggler {i}", 50 + i)) for i in range(3))
    commits = [table.upsert(frame(("k0", "newer", 90), ("k1", "newer", 90))), remove(table, "k2")]
    table.maintenance.compact()
    for straggler in (early, late, last):
        commits += [close(straggler), table.upsert(frame(("k3", "x", 10 + len(commits))))]
        before = every_answer(table, commits)
        assert table.maintenance.compact(logs_only=True)[0].logs_only == 1
        assert every_answer(table, commits) == before
    table.maintenance.compact()
    assert every_answer(table, commits) == before


def test_a_straggler_that_lost_to_the_base_does_not_win_in_a_carry(make: Make) -> None:
    """The newest row of the carry is newer than the base, and the straggler's is not."""
    table = make(buckets=1)
    table.upsert(frame(("a", "first", 1), ("b", "first", 1)))
    straggler = open_write(table, ("a", "straggler", 2))
    table.upsert(frame(("a", "newer", 3)))
    table.maintenance.compact()
    close(straggler)
    table.upsert(frame(("b", "newest", 4)))
    for logs_only in (True, False):
        table.maintenance.compact(logs_only=logs_only)
        assert rows(table, "id", "region") == [("a", "newer"), ("b", "newest")]
        assert rows(table, "id", filter="region = 'newer'") == [("a",)]
        assert table.count() == 2


def test_deletes_of_many_commits_keep_their_times(make: Make) -> None:
    table = make(buckets=1)
    table.upsert(frame(*((f"k{i}", "first", i) for i in range(4))))
    table.maintenance.compact()
    straggler = open_write(table, *((f"k{i}", "straggler", i) for i in range(4)))
    second = open_write(table, ("k0", "second", 0))
    removed = [remove(table, f"k{i}") for i in range(3)]
    late = open_write(table, ("k1", "late", 0))
    (done,) = table.maintenance.compact(logs_only=True)
    assert done.carried == 3
    before = every_answer(table, removed)
    assert rows(table, "id") == [("k3",)]
    for tx in (straggler, second, late):
        close(tx)
    assert rows(table, "id", "region") == [("k1", "late"), ("k3", "straggler")]
    assert every_answer(table, removed)[1:] == before[1:]


def test_a_carry_of_logs_does_not_grow_with_the_number_of_commits(table: Table) -> None:
    straggler = open_write(table, ("s", "x", 1))
    carried = []
    for i in range(4):
        for j in range(3):
            table.upsert(frame(("k0", "x", 10 * i + j), ("k1", "x", 10 * i + j)))
        remove(table, "k1")
        carried.append(table.maintenance.compact(logs_only=True)[0].carried)
    assert len(set(carried)) == 1
    close(straggler)


def test_a_file_group_without_a_base_file_is_compacted_fully(make: Make) -> None:
    table = make(buckets=2)
    table.upsert(frame(*((f"k{i}", "x", i) for i in range(8))))
    (done,) = table.maintenance.compact(logs_only=True)
    assert (done.file_groups, done.logs_only, done.rows) == (2, 0, 8)
    table.upsert(frame(("k0", "y", 1)))
    assert table.maintenance.compact(logs_only=True) == [], "one log of a commit is no work for it"
    table.upsert(frame(("k0", "y", 2)))
    assert table.maintenance.plans.schedule(logs_only=True, log_files_min=3) is None
    assert table.maintenance.compact(logs_only=True, log_files_min=2)[0].logs_only == 1


def test_any_number_of_executors_may_share_it(table: Table, place: Place) -> None:
    commits = [table.upsert(frame(("k0", "x", i))) for i in range(3)]
    before = every_answer(table, commits)
    plan = table.maintenance.plans.schedule(logs_only=True)
    assert plan is not None
    assert "of the logs alone in 1" in str(plan)
    workers = [place.open() for _ in range(3)]
    outputs = [worker.maintenance.plans.execute(plan) for worker in workers]
    assert outputs[0] == outputs[1] == outputs[2]
    assert every_answer(table, commits) == before, "outputs are invisible until the plan completes"
    done = [worker.maintenance.compact(plan) for worker in workers]
    assert done[0] == done[1] == done[2]
    assert every_answer(table, commits) == before


def test_who_dies_between_base_and_carry_leaves_work_that_anybody_finishes(
    table: Table, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = [table.upsert(frame(("k0", "x", i))) for i in range(3)]
    before = every_answer(table, commits)
    plan = table.maintenance.plans.schedule(logs_only=True)
    assert plan is not None

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_put_carry", die)
        with pytest.raises(KeyboardInterrupt):
            table.maintenance.plans.execute(plan)
    half = {path for path in data_files(place) if plan.barrier in path}
    assert len(half) == 1
    (done,) = place.open().maintenance.compact(plan)
    assert done.barrier == plan.barrier
    assert half < {path for path in data_files(place) if plan.barrier in path}
    assert every_answer(table, commits) == before


def test_a_cancelled_log_compaction_leaves_no_file(table: Table, place: Place) -> None:
    commits = [table.upsert(frame(("k0", "x", i))) for i in range(3)]
    before, files = every_answer(table, commits), data_files(place)
    plan = table.maintenance.plans.schedule(logs_only=True)
    assert plan is not None
    table.maintenance.plans.execute(plan)
    assert table.maintenance.plans.cancel(plan.barrier)
    assert table.maintenance.compact(plan) == []
    assert data_files(place) == files
    assert every_answer(table, commits) == before


def test_logs_that_cannot_be_folded_without_the_base_are_compacted_fully(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is where Hudi wrote partial updates: all executors of a plan come to the same answer."""
    commits = [table.upsert(frame(("k0", "x", i))) for i in range(3)]
    before = every_answer(table, commits)
    monkeypatch.setattr(compaction, "compact_logs", lambda *_: None)
    table.maintenance.compact(logs_only=True)
    assert layout(table) == [("base", 6)]
    assert every_answer(table, commits) == before


def test_changes_are_the_same_across_it(table: Table) -> None:
    start = table.changes().checkpoint
    writes: list[Row] = [("k0", "x", 10), ("own", "x", 11)]
    for write in writes:
        table.upsert(frame(write))
    remove(table, "k1")
    middle = table.changes(since=start).checkpoint

    def read() -> list[list[str]]:
        found = [table.changes(since=since).to_arrow().to_pylist() for since in (None, start, middle)]
        return [sorted(map(repr, rows)) for rows in found]

    table.upsert(frame(("k0", "y", 12)))
    before = read()
    table.maintenance.compact(logs_only=True)
    assert read() == before


def test_its_plan_is_refused_by_releases_that_would_compact_the_base(make: Make) -> None:
    table = make(buckets=1)
    for i in range(3):
        table.upsert(frame(("a", "x", i)))
        table.maintenance.compact() if not i else None
    full = table.maintenance.plans.schedule()
    assert full is not None
    assert json.loads(frozen(full).encode())["format"] == 1
    table.maintenance.plans.cancel(full.barrier)
    plan = table.maintenance.plans.schedule(logs_only=True)
    assert plan is not None
    stored = json.loads(frozen(plan).encode())
    assert stored["format"] == 2
    assert [len(group) for group in stored["groups"]] == [5]
    assert CompactionPlan.decode(frozen(plan).encode(), "p") == frozen(plan)
    for wrong in ([*stored["groups"][0][:4], 2], [*stored["groups"][0][:2], None, *stored["groups"][0][3:]]):
        with pytest.raises(FormatError, match="not a compaction plan"):
            CompactionPlan.decode(json.dumps({**stored, "groups": [wrong]}).encode(), "p")


def test_what_it_is_asked_must_be_yes_or_no(make: Make) -> None:
    with pytest.raises(InvalidInputError, match="logs_only"):
        make().maintenance.compact(logs_only="yes")  # type: ignore[arg-type]
