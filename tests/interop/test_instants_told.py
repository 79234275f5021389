"""Hudi's own procedures show the cleans and rollbacks of ours as they were, and Hudi goes on from them."""

from __future__ import annotations

import io
from pathlib import Path
from unittest.mock import Mock

import fastavro
import pytest

from crdt_mor import Commit, SnapshotExpiredError, Table
from crdt_mor.format.clean import decode_clean, decode_clean_plan, decode_savepoint, encode_clean, encode_clean_plan
from tests.inside import tail_of
from tests.interop.readers import HudiSpark, Refused, hudi_rs, ours
from tests.interop.shapes import NO_TIME, Maker, rows, swept

pytestmark = pytest.mark.spark


@pytest.fixture
def commits(make: Maker) -> list[Commit]:
    """Six commits of a table, with a compaction after every second one."""
    table = make.create()
    found = []
    for n in range(6):
        found.append(table.upsert(rows(range(8), n)))
        if n % 2:
            table.maintenance.compact()
    return found


@pytest.fixture
def table(make: Maker, commits: list[Commit]) -> Table:
    assert commits
    return Table(make.root)


@pytest.fixture
def name(make: Maker, spark: HudiSpark, commits: list[Commit], request: pytest.FixtureRequest) -> str:
    """The name under which Hudi's SQL knows the table."""
    assert commits
    name = str(request.node.name)
    spark.sql(f"create table {name} using hudi location '{make.root}'")
    return name


def files(table: Table, ending: str) -> list[Path]:
    return sorted(Path(table.uri, ".hoodie", "timeline").glob(f"*.{ending}"))


def called(spark: HudiSpark, call: str) -> list[dict[str, object]]:
    found = spark.sql(f"call {call}")
    assert all(isinstance(row, dict) for row in found)
    return found  # type: ignore[return-value]


def test_a_clean_is_shown_as_it_was(table: Table, commits: list[Commit], spark: HudiSpark, name: str) -> None:
    done = table.maintenance.clean(commits=2, readers=NO_TIME)
    assert done.since == commits[4].completed_at
    assert done.files
    (shown,) = called(spark, f"show_cleans(table => '{name}')")
    assert (shown["total_files_deleted"], shown["earliest_commit_to_retain"]) == (done.files, done.since)
    assert shown["last_completed_commit_timestamp"] == commits[5].requested_at
    (partition,) = called(spark, f"show_cleans_metadata(table => '{name}')")
    assert (partition["success_delete_files"], partition["failed_delete_files"]) == (done.files, 0)
    assert partition["policy"] == "KEEP_LATEST_COMMITS"
    (plan,) = called(spark, f"show_clean_plans(table => '{name}')")
    assert (plan["state"], plan["earliest_instant_to_retain"]) == ("COMPLETED", done.since)


def test_time_travel_of_hudis_is_exact_or_refused_where_ours_is(
    table: Table, commits: list[Commit], spark: HudiSpark
) -> None:
    table.maintenance.clean(commits=2, readers=NO_TIME)
    for commit in commits[:4]:
        with pytest.raises(Refused, match="Cleaner cleaned up the timestamp of interest"):
            spark.read(table.uri, {"as.of.instant": commit.completed_at})
        with pytest.raises(SnapshotExpiredError):
            ours(table, as_of=commit)
    for commit in commits[4:]:
        assert spark.read(table.uri, {"as.of.instant": commit.completed_at}) == ours(table, as_of=commit)
        assert hudi_rs(table.uri, commit.completed_at) == ours(table, as_of=commit)


def test_a_rollback_names_the_write_that_was_given_up(make: Maker, table: Table, spark: HudiSpark, name: str) -> None:
    make.begin(table).upsert(rows([0], 99))
    (undone,) = table.inspect.pending()["requested_at"].to_pylist()
    assert {row["state"] for row in called(spark, f"show_timeline(table => '{name}')")} > {"INFLIGHT"}
    table.maintenance.roll_back(undone)
    swept(table)
    (shown,) = called(spark, f"show_rollbacks(table => '{name}')")
    assert (shown["rollback_instant"], shown["total_files_deleted"]) == (undone, 0)
    (row,) = [row for row in called(spark, f"show_timeline(table => '{name}')") if row["action"] == "rollback"]
    assert (row["state"], row["rollback_info"]) == ("COMPLETED", f"Rolled back: {undone}")
    detail = f"show_rollback_detail(table => '{name}', instant_time => '{shown['instant']}')"
    assert called(spark, detail) == [], "it removed no file itself"
    assert {row["commit_time"] for row in called(spark, f"show_commits(table => '{name}')")}.isdisjoint(
        {undone, shown["instant"]}
    )
    assert spark.read(table.uri) == ours(table) == hudi_rs(table.uri)


def test_hudi_cleans_and_writes_after_a_clean_and_a_rollback_of_ours(
    make: Maker, table: Table, spark: HudiSpark, name: str
) -> None:
    make.begin(table).upsert(rows([0], 99))
    table.maintenance.roll_back(table.inspect.pending()["requested_at"][0].as_py())
    swept(table)
    table.maintenance.clean(commits=2, readers=NO_TIME)
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"update {name} set n = 100 where id = 'k1'")
    spark.sql(f"call run_clean(table => '{name}', clean_policy => 'KEEP_LATEST_COMMITS', retain_commits => 1)")
    assert len(files(table, "clean")) == 2
    again = Table(make.root)
    assert spark.read(make.root) == ours(again) == hudi_rs(make.root)
    again.upsert(rows([2], 101))
    again.maintenance.compact()
    again.maintenance.clean(commits=1, readers=NO_TIME)
    assert spark.read(make.root) == ours(again) == hudi_rs(make.root)
    assert ours(again)[("", "k1")]["n"] == 100


def test_hudi_writes_while_a_clean_of_ours_is_open_and_nobody_finishes_it(
    make: Maker, table: Table, spark: HudiSpark, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("crdt_mor.services.clean.finish", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            table.maintenance.clean(commits=2, readers=NO_TIME)
    assert [plan.action for plan in tail_of(table).plans] == ["clean"]
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"update {name} set n = 100 where id = 'k1'")
    again = Table(make.root)
    assert spark.read(make.root) == ours(again) == hudi_rs(make.root)
    assert again.maintenance.clean(commits=2, readers=NO_TIME).files
    assert tail_of(again).plans == ()
    assert called(spark, f"show_cleans(table => '{name}')")
    assert spark.read(make.root) == ours(again) == hudi_rs(make.root)


def test_the_files_of_a_clean_of_hudis_come_back_as_hudi_wrote_them(table: Table, spark: HudiSpark, name: str) -> None:
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"call run_clean(table => '{name}', clean_policy => 'KEEP_LATEST_COMMITS', retain_commits => 1)")
    (path,) = files(table, "clean")
    data = path.read_bytes()
    assert _datum(encode_clean(decode_clean(data, path.name))) == _datum(data)
    (path,) = files(table, "clean.requested")
    theirs, again = (
        _datum(path.read_bytes()),
        _datum(encode_clean_plan(decode_clean_plan(path.read_bytes(), path.name))),
    )
    for plan in (theirs, again):  # Hudi names whole paths, which begin with the table's
        for listed in plan["filePathsToBeDeletedPerPartition"].values():  # type: ignore[attr-defined]
            for file in listed:
                file["filePath"] = file["filePath"].rpartition("/")[2]
    assert again == theirs


def test_a_clean_spares_what_a_savepoint_of_hudis_names(
    table: Table, commits: list[Commit], spark: HudiSpark, name: str
) -> None:
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"call create_savepoint(table => '{name}', commit_time => '{commits[1].requested_at}')")
    (path,) = files(table, "savepoint")
    kept = decode_savepoint(path.read_bytes(), path.name)
    assert kept
    done = table.maintenance.clean(commits=1, readers=NO_TIME)
    assert (bool(done.files), done.spared) == (True, len(kept))
    assert all(Path(table.uri, file).exists() for file in kept)
    assert spark.read(table.uri) == ours(table) == hudi_rs(table.uri)


def _datum(data: bytes) -> dict[str, object]:
    [found] = fastavro.reader(io.BytesIO(data))
    assert isinstance(found, dict)
    return found
