"""A savepoint keeps what the table showed, and a restore goes back to it, or to any moment that is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, InvalidInputError, Opening, SnapshotExpiredError, Table
from crdt_mor.errors import CheckpointExpiredError, RestoreUnfinishedError, UnsupportedFeatureError, WriterExpiredError
from crdt_mor.format.clean import decode_savepoint
from crdt_mor.hudi import restore
from crdt_mor.log.paths import VERSIONS
from crdt_mor.payloads import Counter
from tests.inside import hudi_folder_of, run_sweep, store_of, tail_of
from tests.simulated import Simulated
from tests.stores import ScriptedStore, refusing

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
NONE = timedelta(0)


@pytest.fixture
def table(simulated: Simulated) -> Table:
    return simulated.create(SCHEMA, key="id", buckets=2)


def write(table: Table, n: int, **options: object) -> Commit:
    """Every row of the table becomes `n`, and an hour goes by."""
    commit = table.upsert(pl.DataFrame({"id": range(6), "n": [n] * 6}), **options)  # type: ignore[arg-type]
    table.environment.sleep(3600)
    return commit


def shown(table: Table, **options: object) -> set[int]:
    return set(table.scan(**options).to_polars()["n"])  # type: ignore[arg-type]


def files(table: Table) -> set[str]:
    return {stat.path for stat in store_of(table).walk("") if not stat.path.endswith("metadata")}


def told(table: Table) -> list[str]:
    """The names in Hudi's timeline directory."""
    folder = hudi_folder_of(table)
    return [stat.path.rpartition("/")[2] for stat in store_of(table).list(folder)]


def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions go as soon as there are newer ones, and completions are moved to segments by twos."""
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    monkeypatch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 2)
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 2)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 1)


def again(table: Table) -> Table:
    """The table once more, as another process would open it."""
    return Table(table.uri, opening=Opening(store=store_of(table), environment=table.environment))


# --- savepoints -------------------------------------------------------------------------------------------------------


def test_a_savepoint_names_what_the_table_shows_wherever_a_moment_is_taken(table: Table) -> None:
    write(table, 1)
    made = table.maintenance.savepoint("before-backfill", comment="of May")
    write(table, 2)
    assert [(s.name, s.comment) for s in again(table).maintenance.savepoints()] == [("before-backfill", "of May")]
    assert table.maintenance.savepoints() == [made]
    for reader in (table, again(table)):
        assert shown(reader, as_of="before-backfill") == {1}
        assert reader.scan(as_of="before-backfill").count() == 6
        assert set(reader.scan(as_of="before-backfill").to_polars()["n"]) == {1}
        assert reader.changes(since="before-backfill").commits == 1
        assert reader.diff("before-backfill", "now").to_polars().height == 12
        assert reader.inspect.files("before-backfill").num_rows
    with pytest.raises(InvalidInputError, match=r"no savepoint of this name.*savepoints=\['before-backfill'\]"):
        table.scan(as_of="before-bakcfill")


@pytest.mark.parametrize("name", ["", "now", "3", "2026-01-31", "a b", "a:b", "ä", "a" * 129, None, 3])
def test_a_name_is_one_that_names_nothing_else(table: Table, name: object) -> None:
    with pytest.raises(InvalidInputError, match="a savepoint name begins with a letter"):
        table.maintenance.savepoint(name)  # type: ignore[arg-type]


def test_a_name_is_taken_once_until_it_is_dropped(table: Table) -> None:
    table.maintenance.savepoint("a")  # of an empty table
    write(table, 1)
    with pytest.raises(InvalidInputError, match="a savepoint of this name exists already"):
        table.maintenance.savepoint("a")
    assert shown(table, as_of="a") == set()
    table.maintenance.drop_savepoint("a")
    with pytest.raises(InvalidInputError, match="no savepoint of this name"):
        table.maintenance.drop_savepoint("a")
    table.maintenance.savepoint("a")
    assert shown(table, as_of="a") == {1}
    with pytest.raises(InvalidInputError, match="at most 1024 bytes"):
        table.maintenance.savepoint("b", comment="x" * 1025)


@pytest.mark.slow
def test_what_a_savepoint_shows_stays_exact_however_far_history_has_moved_on(table: Table) -> None:
    write(table, 0)
    write(table, 1)
    table.maintenance.savepoint("one")
    at = table.maintenance.savepoints()[0].at
    for n in range(2, 12):
        write(table, n)
        table.maintenance.compact()
        table.maintenance.clean(commits=1, readers=NONE)
        table.maintenance.archive(keep_commits=1)
        assert shown(again(table), as_of="one") == shown(again(table), as_of=at) == {1}
    assert tail_of(table).archive.count == 0
    with pytest.raises(SnapshotExpiredError):
        table.changes(since="one")
    with pytest.raises(SnapshotExpiredError):
        table.diff("one", "now")
    before = len(files(table))
    table.maintenance.drop_savepoint("one")
    table.maintenance.clean(commits=1, readers=NONE)
    assert len(files(table)) < before
    with pytest.raises(SnapshotExpiredError):
        table.scan(as_of=at)


def test_an_erasure_names_the_savepoint_that_holds_the_rows(table: Table) -> None:
    write(table, 1)
    table.maintenance.savepoint("one")
    with pytest.raises(InvalidInputError, match=r"drop_savepoint\('one'\), then erase again.*savepoint=one"):
        table.maintenance.erase(keys=[3])
    table.maintenance.drop_savepoint("one")
    table.maintenance.erase(keys=[3])
    assert table.count() == 5
    table.maintenance.savepoint("after")
    table.maintenance.erase(keys=[99])  # whose file group is not known to hold nothing
    assert table.count() == 5


def test_hudi_is_told_of_a_savepoint_as_long_as_it_is_there(table: Table) -> None:
    commit = write(table, 1)
    table.maintenance.savepoint("one", comment="of May")
    saved = tail_of(table).savepoints[0].saved
    names = [name for name in told(table) if "savepoint" in name]
    assert names == [f"{commit.requested_at}.savepoint.inflight", f"{commit.requested_at}_{saved}.savepoint"]
    folder = hudi_folder_of(table)
    data = store_of(table).read(f"{folder}/{names[1]}")
    assert data is not None
    assert set(decode_savepoint(data, names[1])) == files(table)
    table.maintenance.savepoint("the-same")
    assert [name for name in told(table) if "savepoint" in name] == names
    table.maintenance.drop_savepoint("one")
    assert not [name for name in told(table) if "savepoint" in name]


def test_files_of_a_savepoint_that_a_crash_left_are_swept(table: Table) -> None:
    write(table, 1)
    table.maintenance.savepoint("one")
    store, folder = store_of(table), hudi_folder_of(table)
    left = {path: store.read(path) for path in [f"{folder}/{n}" for n in told(table) if "savepoint" in n]}
    table.maintenance.drop_savepoint("one")
    for path, data in left.items():
        assert data
        store.put(path, data)
    run_sweep(table)
    assert not [name for name in told(table) if "savepoint" in name]
    table.maintenance.savepoint("two")
    run_sweep(table)
    assert len([name for name in told(table) if "savepoint" in name]) == 2


# --- restores ---------------------------------------------------------------------------------------------------------


def test_a_restore_goes_back_to_a_savepoint_and_what_came_after_it_is_gone(table: Table) -> None:
    write(table, 1)
    table.maintenance.compact()
    table.maintenance.savepoint("one")
    before = files(table)
    later = write(table, 2)
    table.maintenance.compact()
    write(table, 3)
    assert files(table) > before
    would = table.maintenance.restore("one", dry_run=True)
    assert (would.commits, len(would.instants), would.dry_run) == (2, 3, True)
    assert shown(table) == {3}
    done = table.maintenance.restore(to="one")
    assert (done.commits, done.files, done.to) == (2, would.files, table.maintenance.savepoints()[0].at)
    assert "2 commits dropped" in str(done)
    for reader in (table, again(table)):
        assert shown(reader) == shown(reader, as_of="one") == {1}
        with pytest.raises(SnapshotExpiredError, match=r"the table was restored to an earlier moment.*restored_to="):
            reader.scan(as_of=later)
        with pytest.raises(SnapshotExpiredError, match="the table was restored to an earlier moment"):
            reader.scan(as_of=later.version)
    assert files(table) == before
    names = told(table)
    assert not [name for name in names if name.startswith(later.requested_at)]
    assert [name.rpartition(".")[2] for name in names if "restore" in name].count("restore") == 1
    assert len(store_of(table).list(VERSIONS)) == 1
    write(table, 4)
    table.maintenance.compact()
    assert shown(table) == shown(again(table)) == {4}
    assert table.history()["kind"].to_pylist() == ["compaction", "write", "restore", "compaction", "write"]
    assert table.history()["ordinal"].to_pylist() == [8, 7, 6, 2, 1]


def test_a_restore_takes_whatever_as_of_takes(table: Table) -> None:
    commits = [write(table, n) for n in range(5)]
    for n, to in ((3, commits[3]), (2, commits[2].version), (1, commits[1].completed_at)):
        table.maintenance.restore(to)
        assert shown(table) == {n}
    nothing = table.maintenance.restore("now")
    assert (nothing.commits, nothing.instants, "nothing to drop" in str(nothing)) == (0, (), True)
    with pytest.raises(SnapshotExpiredError, match="the table was restored to an earlier moment"):
        table.maintenance.restore(commits[4])
    with pytest.raises(InvalidInputError):
        table.maintenance.restore("nobody-made-it")


def test_moments_on_both_sides_of_the_cut_are_answered(table: Table) -> None:
    first = write(table, 1)
    kept = tail_of(table).clock
    gone = write(table, 2)
    table.maintenance.restore(first)
    after = write(table, 3)
    assert shown(table, as_of=first) == shown(table, as_of=kept) == {1}
    with pytest.raises(SnapshotExpiredError):
        table.scan(as_of=gone.completed_at)
    assert shown(table, as_of=after) == {3}
    assert shown(table, as_of=after.version - 1) == {1}


def test_followers_are_told_that_history_was_cut_or_miss_nothing(table: Table) -> None:
    first = write(table, 1)
    behind, stable = table.scan().checkpoint, table.scan(consistency="stable").checkpoint
    write(table, 2)
    ahead, stable_ahead = table.scan().checkpoint, table.scan(consistency="stable").checkpoint
    table.maintenance.restore(first)
    now, stable_now = table.scan().checkpoint, table.scan(consistency="stable").checkpoint
    write(table, 3)
    for since, consistency in ((ahead, "latest"), (stable_ahead, "stable")):
        with pytest.raises(CheckpointExpiredError, match=r"was restored to an earlier moment.*scan the table"):
            table.changes(since=since, consistency=consistency)  # type: ignore[arg-type]
    for since, consistency in ((behind, "latest"), (stable, "stable"), (now, "latest"), (stable_now, "stable")):
        changes = table.changes(since=since, consistency=consistency)  # type: ignore[arg-type]
        assert set(changes.to_polars()["n"]) == {3}
    images = table.changes(since=behind, images=True).to_polars()
    assert set(images.filter(pl.col("_change_type") == "update_preimage")["n"]) == {1}


def test_pending_writes_and_open_plans_are_given_up(table: Table) -> None:
    first = write(table, 1)
    write(table, 2)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    tx = table.transaction()
    tx.__enter__()
    tx.upsert(pl.DataFrame({"id": [0], "n": [9]}))
    done = table.maintenance.restore(first)
    assert (done.commits, len(done.pending), done.plans) == (1, 1, 1)
    with pytest.raises(WriterExpiredError, match="a restore rolled the write back"):
        tx.__exit__(None, None, None)
    assert table.maintenance.compact(plan) == []
    assert shown(table) == {1}
    run_sweep(table)
    assert not [name for name in told(table) if name.startswith((done.pending[0], plan.barrier))]


def test_a_snapshot_that_was_held_is_refused_rather_than_cut(table: Table) -> None:
    first = write(table, 1)
    write(table, 2)
    held = table.scan()
    changes = table.changes(since=first)
    table.maintenance.restore(first)
    with pytest.raises(SnapshotExpiredError):
        held.to_arrow()
    with pytest.raises(CheckpointExpiredError):
        changes.to_arrow()
    with pytest.raises(CheckpointExpiredError):
        table.changes(since=held.checkpoint)


def test_columns_that_were_added_stay_and_hudi_finds_them(table: Table) -> None:
    first = write(table, 1)
    table.upsert(pl.DataFrame({"id": [1], "n": [2], "text": ["x"]}), schema_mode="merge")
    table.maintenance.restore(first)
    assert table.schema.names == again(table).schema.names == ["id", "n", "text"]
    assert shown(table) == {1}
    last = max(name for name in told(table) if name.endswith(".deltacommit"))
    data = store_of(table).read(f"{hudi_folder_of(table)}/{last}")
    assert data is not None
    assert b"text" in data


def test_a_table_goes_back_to_before_its_first_commit(table: Table) -> None:
    table.maintenance.savepoint("empty")
    write(table, 1)
    table.maintenance.compact()
    table.maintenance.restore("empty")
    assert table.count() == again(table).count() == 0
    assert files(table) == set()
    write(table, 2)
    assert shown(table) == {2}


def test_tokens_go_back_with_the_commits_that_carried_them(table: Table) -> None:
    write(table, 1, token=("a", 1))
    table.maintenance.savepoint("one")
    write(table, 2, token=("a", 2))
    write(table, 3, token=("b", 7))
    table.maintenance.restore("one")
    assert table.upsert(pl.DataFrame({"id": [0], "n": [5]}), token=("a", 1)).repeated
    assert shown(table) == {1}
    assert not table.upsert(pl.DataFrame({"id": [0], "n": [5]}), token=("a", 2)).repeated
    assert not table.upsert(pl.DataFrame({"id": [0], "n": [6]}), token=("b", 1)).repeated


def test_a_token_that_the_table_may_have_forgotten_is_refused_rather_than_guessed(table: Table) -> None:
    for n in range(1, 9):
        write(table, n, token=("a", n))
        table.maintenance.compact()
    table.maintenance.clean(commits=1, readers=NONE)
    run_sweep(table)
    table.maintenance.savepoint("eight")
    write(table, 9, token=("a", 9))
    table.maintenance.restore("eight")
    assert table.upsert(pl.DataFrame({"id": [0], "n": [5]}), token=("a", 8)).repeated
    assert not table.upsert(pl.DataFrame({"id": [0], "n": [5]}), token=("a", 9)).repeated


def test_a_restore_beside_the_moments_that_it_cannot_reach(table: Table) -> None:
    commits = [write(table, n) for n in range(4)]
    table.maintenance.savepoint("three")
    write(table, 4)
    with pytest.raises(InvalidInputError, match=r"drop_savepoint them first.*savepoints=\['three'\]"):
        table.maintenance.restore(commits[1])
    table.maintenance.drop_savepoint("three")
    table.maintenance.clean(commits=2, readers=NONE)
    with pytest.raises(SnapshotExpiredError, match="a clean dropped the history"):
        table.maintenance.restore(commits[1])
    table.maintenance.restore(commits[3])
    assert shown(table) == {3}


def test_a_restore_to_a_moment_whose_files_hudi_has_cleaned_names_the_way_out(table: Table) -> None:
    """It said to read the latest snapshot, which is no way back."""
    first = write(table, 1)
    second = write(table, 2)
    table.maintenance.compact()
    write(table, 3)
    gone = [path for path in table.inspect.files(first)["path"].to_pylist() if f"_{first.requested_at}" in path]
    for path in gone:
        store_of(table).delete(path)
    with pytest.raises(SnapshotExpiredError, match=r"Restore to a later moment.*to=\d{17} file="):
        table.maintenance.restore(first)
    assert shown(table) == {3}
    with pytest.raises(SnapshotExpiredError, match=r"Restore to a later moment"):
        table.maintenance.restore(second)  # whose logs it needs as well
    assert gone


def test_rows_that_were_erased_do_not_come_back(table: Table) -> None:
    first = write(table, 1)
    table.maintenance.erase(keys=[3])
    with pytest.raises(SnapshotExpiredError, match="rows were erased since that moment"):
        table.maintenance.restore(first)
    assert table.count() == 5


def test_erased_rows_that_no_savepoint_shows_do_not_hold_up_a_restore_to_one(table: Table) -> None:
    table.maintenance.savepoint("empty")
    write(table, 1)
    table.maintenance.erase(keys=[3])
    table.maintenance.restore("empty")
    assert table.count() == 0
    write(table, 2)
    assert shown(table) == {2}


def test_an_erasure_that_is_under_way_is_not_undone(table: Table) -> None:
    first = write(table, 1)
    tx = table.transaction()
    tx.__enter__()
    tx.upsert(pl.DataFrame({"id": [0], "n": [9]}))
    with pytest.raises(Exception, match="not finished"):
        table.maintenance.erase(keys=[3])
    with pytest.raises(InvalidInputError, match="an erasure is unfinished"):
        table.maintenance.restore(first)
    tx.__exit__(ValueError, ValueError("over"), None)


def test_what_is_archived_is_not_dropped_and_a_savepoint_keeps_the_table_restorable(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_over(monkeypatch)
    commits = []
    for n in range(6):
        commits.append(write(table, n))
        table.maintenance.compact()
        if n == 4:
            table.maintenance.savepoint("four")
    assert table.maintenance.archive(keep_commits=1).instants > 4
    with pytest.raises(UnsupportedFeatureError, match="are archived, and Hudi's readers"):
        table.maintenance.restore(commits[1])
    table.maintenance.restore("four")
    assert shown(table) == {4}


def test_counters_count_again_what_was_dropped(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", merge={"n": Counter()})
    table.upsert(pl.DataFrame({"id": [0], "n": [1]}))
    table.maintenance.savepoint("one")
    table.upsert(pl.DataFrame({"id": [0], "n": [10]}))
    table.maintenance.compact()
    table.upsert(pl.DataFrame({"id": [0], "n": [100]}))
    table.maintenance.restore("one")
    assert shown(table) == {1}
    table.upsert(pl.DataFrame({"id": [0], "n": [1000]}))
    table.maintenance.compact()
    assert shown(table) == {1001}


def test_whoever_dies_in_a_restore_leaves_it_to_the_next_one(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(table, 1)
    before = files(table)
    write(table, 2)
    table.maintenance.compact()
    with monkeypatch.context() as patch:
        patch.setattr(restore, "drop", _fails)
        with pytest.raises(KeyboardInterrupt):
            table.maintenance.restore(first)
    other = again(table)
    assert shown(other) == {1}
    assert files(table) > before
    with pytest.raises(SnapshotExpiredError):
        other.scan(as_of=other.version - 1)
    other.set_properties({"x": "y"})
    assert files(table) == before
    assert shown(other) == {1}


def _fails(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_many_commits_in_segments_are_cut_and_those_left_are_found(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_over(monkeypatch)
    table = simulated.create(SCHEMA, key="id", buckets=2)
    commits = []
    for n in range(9):
        commits.append(write(table, n))
        if n % 3 == 2:
            table.maintenance.compact()
    for n in (7, 6, 4, 1):
        table.maintenance.restore(commits[n])
        for m in range(n + 1):
            assert shown(again(table), as_of=commits[m]) == {m}
        run_sweep(table)
        assert shown(again(table)) == {n}


def by_another(table: Table, kept: Callable[[str], bool] = lambda path: True) -> Table:
    """The table as another user opens it, who may delete nothing, or not what is kept."""
    return Table(
        table.uri,
        opening=Opening(
            store=ScriptedStore(store_of(table), refusing("delete", of=kept)), environment=table.environment
        ),
    )


def test_a_restore_says_what_its_user_may_not_remove_and_who_may_goes_on(table: Table) -> None:
    first = write(table, 1)
    dropped = [write(table, 2).requested_at, write(table, 3).requested_at]
    other = by_another(table)
    with pytest.raises(RestoreUnfinishedError, match=r"restore to the same point again.*instants=2") as error:
        other.maintenance.restore(first)
    assert list(error.value.instants) == dropped
    assert shown(other) == shown(table) == {1}
    with pytest.raises(RestoreUnfinishedError):
        other.maintenance.restore(first)
    write(other, 4)
    assert {name[:17] for name in told(table)} >= {*dropped}
    assert not table.maintenance.restore(table.version).instants
    assert {name[:17] for name in told(table)}.isdisjoint(dropped)
    assert not any(instant in path for path in files(table) for instant in dropped)
    assert shown(other) == shown(table) == {4}


def test_the_next_sweep_goes_on_with_a_restore(simulated: Simulated) -> None:
    table = simulated.create(SCHEMA, key="id", buckets=1)
    first = write(table, 1)
    before = {*files(table)}
    write(table, 2)
    with pytest.raises(RestoreUnfinishedError):
        by_another(table).maintenance.restore(first)
    assert files(table) > before
    simulated.environment.sleep(61)
    table.maintenance.maintain()
    assert files(table) == before
    assert not table.maintenance.restore(first).instants


@pytest.mark.parametrize("kept", [".deltacommit", ".log", ".requested"])
def test_hudi_sees_of_a_restore_that_is_unfinished_one_moment_of_before(table: Table, kept: str) -> None:
    """Nothing of an instant is touched whose completed file stays, nor of one before an instant of which any stays."""
    first = write(table, 1)
    seconds = [write(table, 2), write(table, 3), write(table, 4)]
    paths = [f.path for c in tail_of(table).completions for f in c.files]
    middle = seconds[1].requested_at
    with pytest.raises(RestoreUnfinishedError):
        by_another(table, lambda path: middle in path and kept in path).maintenance.restore(first)
    left = {name[:17] for name in told(table)}
    assert {first.requested_at, seconds[0].requested_at, middle} <= left
    assert seconds[2].requested_at not in left
    stood = [path for path in paths if path in files(table)]
    assert [any(c.requested_at in path for path in stood) for c in [first, *seconds]] == [
        True, True, kept != ".requested", False
    ]  # fmt: skip
    completed = [name for name in told(table) if name.endswith(".deltacommit") and middle in name]
    assert bool(completed) == (kept == ".deltacommit")
