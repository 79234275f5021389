"""Hudi's readers show a restored table as we do, at each step on the way there, and know of savepoints and restores."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pytest

from crdt_mor import Commit, InvalidInputError, Table
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.hudi import restore
from crdt_mor.log.steps import Delete, Steps
from tests.interop.hudi_archive import archive, completed
from tests.interop.readers import HudiSpark, Rows, hudi_rs, ours
from tests.interop.shapes import NO_TIME, Maker, rows
from tests.interop.upkeep_histories import soon_over


def history(make: Maker, **settings: object) -> tuple[Table, list[Commit]]:
    """A table with six commits, a straggler among them, and a compaction after every second one; and a savepoint."""
    table = make.create(**settings)
    commits = []
    straggler = make.begin(table)
    straggler.upsert(rows([7, 8], 70))
    for n in range(6):
        commits.append(table.upsert(rows(range(n, n + 4), n)))
        if n % 2:
            table.maintenance.compact()
        if n == 2:
            table.maintenance.savepoint("two", comment="of May")
        if n == 3:
            make.end(straggler)
    return table, commits


def overwritten(make: Maker) -> tuple[Table, list[Commit]]:
    """A table with overwrites between its commits, one of them beside a straggler, and compactions."""
    table = make.create(buckets=1)
    commits = [table.upsert(rows(range(4), 1))]
    straggler = make.begin(table)
    straggler.upsert(rows([7, 8], 70))
    commits.append(table.overwrite(rows(range(2, 6), 2)))
    commits.append(table.upsert(rows([2, 9], 3)))
    make.end(straggler)
    table.maintenance.compact()
    commits.append(table.truncate())
    commits.append(table.upsert(rows([1], 4)))
    return table, commits


def in_hudi_rs(table: Table) -> None:
    assert hudi_rs(table.uri) == ours(table)


@pytest.mark.parametrize("to", [0, 1, 3, 4])
def test_hudi_rs_shows_a_restored_table(make: Maker, to: int) -> None:
    table, commits = history(make)
    table.maintenance.drop_savepoint("two")
    expected = ours(table, as_of=commits[to])
    table.maintenance.restore(commits[to])
    assert hudi_rs(table.uri) == ours(table) == expected
    table.upsert(rows([1, 9], 90))
    in_hudi_rs(table)
    table.maintenance.compact()
    in_hudi_rs(table)


@pytest.mark.parametrize("to", [0, 1, 2, 3])
def test_hudi_rs_shows_a_table_that_was_restored_to_before_overwrites(make: Maker, to: int) -> None:
    table, commits = overwritten(make)
    expected = ours(table, as_of=commits[to])
    table.maintenance.restore(commits[to])
    assert hudi_rs(table.uri) == ours(table) == ours(Table(make.root)) == expected
    table.upsert(rows([1, 9], 90))
    table.maintenance.compact()
    in_hudi_rs(table)


def test_hudi_rs_shows_an_empty_table_that_was_restored_to_before_its_first_commit(make: Maker) -> None:
    table = make.create()
    table.maintenance.savepoint("empty")
    table.upsert(rows(range(4), 1))
    table.maintenance.compact()
    table.maintenance.restore("empty")
    assert hudi_rs(table.uri) == ours(table) == {}


def on_the_way(monkeypatch: pytest.MonkeyPatch, look: Callable[[], None]) -> None:
    """Have `look` called before each file is deleted that a restore drops."""
    drop = restore.drop

    def looked(*args: object) -> Steps[bool]:
        steps = drop(*args)  # type: ignore[arg-type]
        reply: object = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return bool(end.value)
            if isinstance(step, Delete):
                look()
            reply = yield step

    monkeypatch.setattr(restore, "drop", looked)


@pytest.mark.costly
@pytest.mark.parametrize("made", [partial(history, buckets=1), overwritten], ids=["plain", "overwrites"])
def test_hudi_rs_sees_earlier_moments_on_the_way(
    make: Maker, made: Callable[[Maker], tuple[Table, list[Commit]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sees is a moment of the table's history."""
    table, commits = made(make)
    to = commits[2 if len(commits) > 5 else 0]
    moments = sorted({at for at in table.inspect.timeline()["completed_at"].to_pylist() if at})
    shown = [ours(table, as_of=at) for at in moments]
    seen: list[Rows] = []
    on_the_way(monkeypatch, lambda: seen.append(hudi_rs(table.uri)))
    table.maintenance.restore(to)
    assert len(seen) > 10
    places = []
    for found in seen:
        assert found in shown
        places.append(max(place for place, one in enumerate(shown) if one == found))
    assert places == sorted(places, reverse=True)
    assert hudi_rs(table.uri) == ours(table) == ours(table, as_of=to)


@pytest.mark.slow
def test_hudi_rs_after_archiving_up_to_a_savepoint_and_a_restore_to_it(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, commits = archived(make, monkeypatch)
    in_hudi_rs(table)
    with pytest.raises(UnsupportedFeatureError, match="are archived, and Hudi's readers"):
        table.maintenance.restore(commits[1])
    table.maintenance.restore("four")
    assert hudi_rs(table.uri) == ours(table) == ours(table, as_of=commits[4])
    for n in range(20, 26):
        table.upsert(rows([n % 5, 9], n))
        table.maintenance.compact()
        in_hudi_rs(table)
    table.maintenance.drop_savepoint("four")
    assert table.maintenance.archive(keep_commits=1).instants
    in_hudi_rs(table)
    table.maintenance.clean(commits=1, readers=NO_TIME)
    in_hudi_rs(table)


def archived(make: Maker, monkeypatch: pytest.MonkeyPatch) -> tuple[Table, list[Commit]]:
    """A table of which all is archived that a savepoint lets go."""
    soon_over(monkeypatch, 0)
    table = make.create()
    commits = []
    for n in range(9):
        commits.append(table.upsert(rows(range(n, n + 3), n)))
        if n % 2:
            table.maintenance.compact()
        if n == 4:
            table.maintenance.compact()
            table.maintenance.savepoint("four")
    assert table.maintenance.archive(keep_commits=1).instants > 4
    return table, commits


def called(spark: HudiSpark, call: str) -> list[dict[str, object]]:
    """The rows that a procedure of Hudi's returns."""
    found = spark.sql(f"call {call}")
    assert all(isinstance(row, dict) for row in found)
    return found  # type: ignore[return-value]


def restored_to_what_hudi_archived(make: Maker) -> tuple[Table, Rows]:
    """A table whose restore keeps no commit that stands in Hudi's active timeline; and what it has to show."""
    table = make.create(buckets=1)
    table.upsert(rows(range(4), 1))
    table.maintenance.compact()
    kept = table.upsert(rows([3, 5], 2))
    expected = ours(table)
    archive(make.root, len(completed(make.root)))
    table.upsert(rows([0, 9], 3))
    table.maintenance.restore(kept)
    return table, expected


def test_a_restore_leaves_a_commit_in_hudis_active_timeline(make: Maker) -> None:
    table, expected = restored_to_what_hudi_archived(make)
    assert [name.action for name, _ in completed(make.root)] == ["restore", "deltacommit"]
    assert hudi_rs(table.uri) == ours(table) == ours(Table(make.root)) == expected


# --- Spark ------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("made", [partial(history, buckets=1), overwritten], ids=["plain", "overwrites"])
def test_spark_shows_a_restored_table_and_each_step_on_the_way(
    make: Maker,
    spark: HudiSpark,
    made: Callable[[Maker], tuple[Table, list[Commit]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, commits = made(make)
    to = commits[2 if len(commits) > 5 else 0]
    moments = sorted({at for at in table.inspect.timeline()["completed_at"].to_pylist() if at})
    shown = [ours(table, as_of=at) for at in moments]
    copies: list[Path] = []

    def copied() -> None:
        copies.append(tmp_path / f"step{len(copies)}")
        shutil.copytree(table.uri, copies[-1], ignore=shutil.ignore_patterns(".crdt_mor", ".heartbeat"))

    on_the_way(monkeypatch, copied)
    table.maintenance.restore(to)
    expected = ours(table, as_of=to)
    assert spark.read(table.uri) == ours(table) == expected
    for copy in copies:
        assert spark.read(copy) in shown, copy
    table.upsert(rows([1, 9], 90))
    assert spark.read(table.uri) == ours(table) == hudi_rs(table.uri)
    table.maintenance.compact()
    assert spark.read(table.uri) == ours(table) == hudi_rs(table.uri)


@pytest.mark.spark
def test_spark_after_archiving_up_to_a_savepoint_and_a_restore_to_it(
    make: Maker, spark: HudiSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = archived(make, monkeypatch)
    assert spark.read(table.uri) == ours(table)
    table.maintenance.restore("four")
    assert spark.read(table.uri) == ours(table)
    table.upsert(rows([1, 9], 90))
    table.maintenance.compact()
    table.maintenance.drop_savepoint("four")
    table.maintenance.archive(keep_commits=1)
    assert spark.read(table.uri) == ours(table)


@pytest.mark.spark
def test_spark_shows_a_table_that_was_restored_to_what_hudi_has_archived(make: Maker, spark: HudiSpark) -> None:
    table, expected = restored_to_what_hudi_archived(make)
    assert spark.read(table.uri) == expected
    table.upsert(rows([1, 9], 90))
    assert spark.read(table.uri) == ours(table) == hudi_rs(table.uri)
    table.maintenance.compact()
    assert spark.read(table.uri) == ours(table) == hudi_rs(table.uri)


@pytest.mark.spark
def test_hudis_procedures_show_savepoints_and_restores(make: Maker, spark: HudiSpark) -> None:
    table, commits = history(make)
    name = "savepoints_and_restores"
    spark.sql(f"create table {name} using hudi location '{make.root}'")
    assert spark.sql(f"call show_savepoints(table => '{name}')") == [{"savepoint_time": commits[2].requested_at}]
    table.maintenance.restore("two")
    found = {str(row["action"]): row for row in called(spark, f"show_timeline(table => '{name}')")}
    assert found["restore"]["state"] == found["savepoint"]["state"] == "COMPLETED"
    times = {row["commit_time"] for row in called(spark, f"show_commits(table => '{name}')")}
    assert times.isdisjoint({commit.requested_at for commit in commits[3:]})
    assert commits[2].requested_at in times
    table.maintenance.drop_savepoint("two")
    assert spark.sql(f"call show_savepoints(table => '{name}')") == []
    assert spark.read(table.uri) == ours(table)


@pytest.mark.spark
def test_hudis_own_clean_spares_what_a_savepoint_of_ours_shows_and_its_savepoints_hold_our_restores(
    make: Maker, spark: HudiSpark
) -> None:
    table, _ = history(make)
    saved = ours(table, as_of="two")
    name = "savepoints_of_both"
    spark.sql(f"create table {name} using hudi location '{make.root}'")
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"call run_clean(table => '{name}', clean_policy => 'KEEP_LATEST_COMMITS', retain_commits => 1)")
    again = Table(make.root)
    assert ours(again, as_of="two") == saved
    newest = max(again.inspect.timeline().filter(pc.field("action") == "commit")["requested_at"].to_pylist())
    spark.sql(f"call create_savepoint(table => '{name}', commit_time => '{newest}')")
    with pytest.raises(InvalidInputError, match="delete the savepoint with Hudi first"):
        again.maintenance.restore("two")
    spark.sql(f"call delete_savepoint(table => '{name}', instant_time => '{newest}')")
    again.maintenance.restore("two")
    assert spark.read(make.root) == ours(again) == saved
