"""Overwrite, delete_partitions, truncate: rows are replaced beside running writers, and nobody waits or is aborted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Table
from crdt_mor.api.transaction import Transaction
from crdt_mor.errors import SchemaMismatchError, TokenOrderError
from crdt_mor.hudi.projection import Projector
from crdt_mor.log.paths import STAGED
from crdt_mor.log.steps import Steps
from crdt_mor.model.timeline import Timeline
from crdt_mor.payloads import Counter, ORSet, PartialUpdate
from tests.inside import tail_of
from tests.table.helpers import Make, Place, data_files, frame, rows

BY_REGION = {"partition_by": "region", "buckets": 2}


def ids(table: Table, **scan: Any) -> list[tuple[object, ...]]:
    return rows(table, "id", "region", "n", **scan)


@pytest.fixture
def table(make: Make) -> Table:
    """Two partitions, with two rows each."""
    table = make(**BY_REGION)
    table.upsert(frame(("a", "eu", 1), ("b", "eu", 1), ("a", "us", 1), ("c", "us", 1)))
    return table


def begun(table: Table, *statement: tuple[object, ...]) -> Transaction:
    """A write that has begun and said what it writes."""
    tx = table.transaction()
    tx.__enter__()
    tx.upsert(frame(*statement))
    return tx


def end(tx: Transaction) -> Any:
    tx.__exit__(None, None, None)
    return tx.commit


def test_all_rows_are_replaced(table: Table) -> None:
    before = table.version
    commit = table.overwrite(frame(("z", "eu", 2), ("y", "asia", 2)))
    assert ids(table) == [("y", "asia", 2), ("z", "eu", 2)]
    assert table.count() == 2
    assert (commit.rows, commit.deletes, commit.covered, commit.repeated) == (2, 0, ("*",), False)
    assert len(ids(table, as_of=before)) == 4
    assert ids(table, as_of=commit) == ids(table, as_of=commit.version) == ids(table)
    table.upsert(frame(("a", "eu", 3)))
    assert ids(table) == [("a", "eu", 3), ("y", "asia", 2), ("z", "eu", 2)]


def test_the_partitions_that_have_rows_are_replaced(table: Table) -> None:
    commit = table.overwrite(frame(("z", "eu", 2), ("y", "asia", 2)), partitions="dynamic")
    assert ids(table) == [("a", "us", 1), ("c", "us", 1), ("y", "asia", 2), ("z", "eu", 2)]
    assert commit.covered == ("region=asia", "region=eu")
    assert table.overwrite(frame(), partitions="dynamic").covered == ()
    assert len(ids(table)) == 4


@pytest.mark.parametrize("partition", ["eu", ("eu",), {"region": "eu"}, "region=eu"], ids=str)
def test_named_partitions_are_replaced(table: Table, partition: object) -> None:
    commit = table.overwrite(frame(("z", "eu", 2)), partitions=[partition])
    assert ids(table) == [("a", "us", 1), ("c", "us", 1), ("z", "eu", 2)]
    assert commit.covered == ("region=eu",)
    table.delete_partitions([partition])
    assert ids(table) == [("a", "us", 1), ("c", "us", 1)]


def test_partitions_of_several_columns_and_other_types_are_named_by_their_values(make: Make) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
    table = make(schema=schema, key="id", partition_by=["day", "n"], hive_style=False)
    data = pl.DataFrame({"id": ["a", "b"], "n": [1, 2]}).with_columns(pl.date(2026, 1, 31).alias("day"))
    table.append(data)
    table.delete_partitions([("2026-01-31", 1)])
    assert rows(table, "id") == [("b",)]
    table.overwrite(data.head(1), partitions=[{"day": data["day"][0], "n": "1"}])
    assert rows(table, "id") == [("a",), ("b",)]
    table.delete_partitions(["2026-01-31/1", {"n": 2, "day": data["day"][0]}])
    assert rows(table) == []
    for wrong in ([1], ["2026-01-31"], [("2026-01-31", 1, 2)], [{"day": "2026-01-31"}], [("no day", 1)]):
        with pytest.raises(InvalidInputError, match="name a partition by"):
            table.delete_partitions(wrong)


def test_a_text_that_is_the_path_of_one_partition_and_the_value_of_another_is_refused(make: Make) -> None:
    table = make(partition_by="region", hive_style=True)
    table.upsert(frame(("a", "1", 1), ("b", "region=1", 1), ("c", "region=2", 1)))
    schema = table.schema

    def deleted(name: object) -> list[tuple[object, ...]]:
        return ids(table, as_of=table.delete_partitions([name]))

    for refused in (
        lambda: table.delete_partitions(["region=1"]),
        lambda: table.overwrite(frame(("b", "region=1", 2)), partitions=["region=1"]),
        lambda: table.jobs.plan("overwrite", schema, partitions=["region=1"]),
        lambda: table.delete_partitions(["region=2"]),  # there is none of that path, so that it would delete nothing
    ):
        with pytest.raises(InvalidInputError, match=r"two partitions.*by_path='region=.' by_value='region=region=.'"):
            refused()
    assert len(ids(table)) == 3
    assert deleted({"region": "region=1"}) == [("a", "1", 1), ("c", "region=2", 1)]
    table.upsert(frame(("b", "region=1", 2)))
    assert deleted({"region": "1"}) == [("b", "region=1", 2), ("c", "region=2", 1)]
    assert deleted("region=region=2") == [("b", "region=1", 2)]


def test_a_value_names_its_partition_where_paths_do_not_name_their_columns(make: Make) -> None:
    table = make(partition_by="region", hive_style=False)
    table.upsert(frame(("a", "1", 1), ("b", "region=1", 1)))
    table.delete_partitions(["region=1"])
    assert ids(table) == [("a", "1", 1)]


def test_rows_of_other_partitions_than_those_that_are_named_are_refused(table: Table) -> None:
    before = table.version
    with pytest.raises(InvalidInputError, match=r"not_named=\['region=us'\] named=\['region=eu'\]"):
        table.overwrite(frame(("z", "eu", 2), ("z", "us", 2)), partitions=["eu"])
    assert len(ids(table)) == 4
    assert table.inspect.pending().num_rows == 0
    assert table.version == before


@pytest.mark.parametrize("partitions", ["eu", {"region": "eu"}, 5], ids=str)
def test_partitions_are_a_list(table: Table, partitions: Any) -> None:
    with pytest.raises(InvalidInputError, match="partitions="):
        table.overwrite(frame(("z", "eu", 2)), partitions=partitions)
    with pytest.raises(InvalidInputError, match="as a list"):
        table.delete_partitions(partitions)


def test_a_table_without_partitions_has_none_to_name(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "eu", 1)))
    calls: list[Callable[[], object]] = [
        lambda: table.delete_partitions(["eu"]),
        lambda: table.overwrite(frame(), partitions=["eu"]),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="has no partitions"):
            call()
    assert table.overwrite(frame(("b", "eu", 2)), partitions="dynamic").covered == ("*",)
    assert ids(table) == [("b", "eu", 2)]


def test_truncate_and_delete_partitions(table: Table) -> None:
    commit = table.delete_partitions(["eu", "nowhere"])
    assert commit.covered == ("region=eu", "region=nowhere")
    assert ids(table) == [("a", "us", 1), ("c", "us", 1)]
    assert table.truncate().covered == ("*",)
    assert (ids(table), table.count()) == ([], 0)
    assert table.truncate().rows == 0
    table.append(frame(("a", "us", 5)))
    assert ids(table) == [("a", "us", 5)]


# --- beside others ----------------------------------------------------------------------------------------------------


def test_a_write_that_was_pending_completes_with_the_rest(table: Table, place: Place) -> None:
    straggler = begun(table, ("b", "eu", 9), ("d", "eu", 9), ("c", "us", 9))
    stayed = data_files(place)
    table.overwrite(frame(("z", "eu", 2)), partitions=["eu"])
    named = data_files(place)
    commit = end(straggler)
    assert commit.rows == 1
    assert ids(table) == [("a", "us", 1), ("c", "us", 9), ("z", "eu", 2)]
    assert {path for path in data_files(place) - named if path.startswith("region=eu")} == set()
    assert stayed < named
    assert ids(table, consistency="stable") == ids(table)


def test_a_write_of_which_nothing_is_left_is_an_empty_commit(table: Table, place: Place) -> None:
    straggler = begun(table, ("b", "eu", 9))
    table.truncate()
    assert end(straggler).rows == 0
    assert ids(place.open()) == []
    assert tail_of(table).overwrites == ()


def test_tasks_of_a_distributed_write_are_pending_writes_like_others(table: Table) -> None:
    job = table.jobs.plan("upsert", frame().schema)
    receipts = [job.stage(frame(("b", "eu", 9), ("c", "us", 9)), task=0), job.stage(frame(("e", "eu", 9)), task=1)]
    table.overwrite(frame(("z", "eu", 2)), partitions="dynamic")
    assert table.jobs.complete(job, receipts).rows == 1
    assert ids(table) == [("a", "us", 1), ("c", "us", 9), ("z", "eu", 2)]


def test_the_later_of_two_overwrites_at_once_counts(table: Table) -> None:
    first, second = table.transaction(), table.transaction()
    with second as tx:
        tx.overwrite(frame(("s", "eu", 2)))
        with first as other:
            other.overwrite(frame(("f", "eu", 3)))
    assert ids(table) == [("s", "eu", 2)]
    assert first.commit is not None
    assert ids(table, as_of=first.commit) == [("f", "eu", 3)]


def test_open_plans_of_what_is_replaced_are_cancelled_and_others_stay(table: Table) -> None:
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.overwrite(frame(("z", "asia", 2)), partitions=["asia"])
    assert len(table.maintenance.plans.open()) == 1
    table.overwrite(frame(("z", "eu", 2)), partitions=["eu"])
    assert table.maintenance.plans.open() == []
    assert table.maintenance.compact(plan) == []
    table.maintenance.compact()
    assert ids(table) == [("a", "us", 1), ("c", "us", 1), ("z", "asia", 2), ("z", "eu", 2)]


def test_a_compaction_beside_an_older_write_carries_nothing_of_what_came_after_the_overwrite(make: Make) -> None:
    table = make(merge={"n": Counter()}, **BY_REGION)
    straggler = begun(table, ("a", "eu", 100))
    table.upsert(frame(("a", "eu", 1), ("a", "us", 1)))
    table.overwrite(frame(("a", "eu", 10)), partitions=["eu"])
    table.upsert(frame(("a", "eu", 1), ("a", "us", 1)))
    table.maintenance.compact()
    kinds = {(row["partition"], row["kind"]) for row in table.inspect.files().to_pylist()}
    assert kinds == {("region=eu", "base"), ("region=us", "base"), ("region=us", "carry")}
    end(straggler)
    assert ids(table) == [("a", "eu", 11), ("a", "us", 2)]


# --- what readers are told --------------------------------------------------------------------------------------------


def test_increments_and_images_show_what_was_replaced(table: Table) -> None:
    since = table.changes().checkpoint
    table.upsert(frame(("b", "eu", 5)))
    commit = table.overwrite(frame(("a", "eu", 1, 2.0), ("z", "eu", 2)), partitions="dynamic")
    merged = table.changes(since=since).to_polars().select("id", "region", "_change_type").sort("id").rows()
    assert merged == [("a", "eu", "upsert"), ("b", "eu", "delete"), ("z", "eu", "upsert")]
    images = table.changes(since=since, images=True).to_polars()
    last = images.filter(pl.col("_commit_version") == commit.version).select("id", "n", "price", "_change_type")
    assert sorted(last.rows(), key=repr) == [
        ("a", 1, 2.0, "update_postimage"), ("a", 1, None, "update_preimage"),
        ("b", 5, None, "delete"), ("z", 2, None, "insert"),
    ]  # fmt: skip
    raw = table.changes(since=since, raw=True).to_polars().select("id", "n", "_change_type", "_commit_version")
    assert sorted(raw.filter(pl.col("_commit_version") == commit.version).drop("_commit_version").rows(), key=repr) == [
        ("a", 1, "upsert"), ("b", None, "delete"), ("z", 2, "upsert"),
    ]  # fmt: skip
    assert table.changes(since=since, images=True).commits == 2
    difference = table.diff(commit.version - 1, commit).to_polars()
    assert sorted(difference["_change_type"].to_list()) == ["delete", "insert", "update_postimage", "update_preimage"]


def test_stable_views_show_it_once_no_older_write_is_pending(table: Table) -> None:
    before = ids(table)
    straggler = begun(table, ("c", "us", 9))
    stable = table.changes(consistency="stable").checkpoint
    table.overwrite(frame(("z", "eu", 2)))
    assert ids(table, consistency="stable") == before
    end(straggler)
    assert ids(table, consistency="stable") == [("z", "eu", 2)]
    changed = table.changes(since=stable, consistency="stable").to_polars()
    assert sorted(changed["_change_type"].to_list()) == ["delete"] * 4 + ["upsert"]


def test_history_shows_one_commit(table: Table) -> None:
    straggler = begun(table, ("c", "us", 9))
    commit = table.overwrite(frame(("z", "eu", 2)), partitions=["eu"], commit_info={"message": "again"})
    end(straggler)
    last, done, *others = table.history().to_pylist()
    assert len(others) == 1
    assert (done["kind"], done["operation"], done["rows"]) == ("write", "INSERT_OVERWRITE", 1)
    assert done["covered"] == ["region=eu"]
    assert (done["version"], done["completed_at"], done["message"]) == (commit.version, commit.completed_at, "again")
    assert (done["overlaps"], last["overlaps"]) == ([last["ordinal"]], [done["ordinal"]])
    assert last["covered"] is None
    assert table.history(limit=2).num_rows == 2


# --- once, alone, or not at all ---------------------------------------------------------------------------------------


def test_a_token_makes_it_once(table: Table) -> None:
    first = table.overwrite(frame(("z", "eu", 2)), token=("app", 2))
    table.upsert(frame(("y", "eu", 3)))
    again = table.overwrite(frame(("z", "eu", 2)), token=("app", 2))
    assert again.repeated
    assert (again.version, again.requested_at, again.rows, again.covered) == (
        first.version, first.requested_at, 1, ("*",),
    )  # fmt: skip
    assert len(ids(table)) == 2
    with pytest.raises(TokenOrderError):
        table.truncate(token=("app", 1))


Statement = Callable[[Transaction], None]
ALONE: list[Statement] = [
    lambda tx: tx.overwrite(frame(("z", "eu", 2))),
    lambda tx: tx.delete_partitions(["eu"]),
    lambda tx: tx.truncate(),
]
OTHERS: list[Statement] = [
    lambda tx: tx.upsert(frame(("y", "eu", 2))),
    lambda tx: tx.append(frame(("y", "eu", 2))),
    lambda tx: tx.delete(frame(("a", "eu", 2))),
]


@pytest.mark.parametrize("one", range(3))
@pytest.mark.parametrize("other", range(3))
def test_it_stands_alone_in_its_transaction(table: Table, one: int, other: int) -> None:
    for first, second in ((ALONE[one], OTHERS[other]), (OTHERS[other], ALONE[one]), (ALONE[one], ALONE[other])):
        tx = table.transaction()
        tx.__enter__()
        first(tx)
        with pytest.raises(InvalidInputError, match=r"must be the only statement .* statement=\w+ beside="):
            second(tx)
        tx.__exit__(ValueError, ValueError(), None)
    assert len(ids(table)) == 4


def test_a_transaction_that_fails_leaves_nothing(table: Table, place: Place) -> None:
    tx = table.transaction()
    tx.__enter__()
    tx.overwrite(frame(("z", "eu", 2)))
    tx.__exit__(ValueError, ValueError(), None)
    assert len(ids(table)) == 4
    assert place.store.list(STAGED) == []


def test_what_was_staged_goes_once_the_files_have_their_names(table: Table, place: Place) -> None:
    before = data_files(place)
    table.overwrite(frame(("z", "eu", 2)), partitions=["eu"])
    assert place.store.list(STAGED) == []
    assert len(data_files(place) - before) == 2


def test_it_may_bring_columns(table: Table) -> None:
    wider = frame(("z", "eu", 2)).append_column("new", pa.array([1]))
    with pytest.raises(SchemaMismatchError):
        table.overwrite(wider)
    table.overwrite(wider, schema_mode="merge")
    assert rows(table, "id", "new") == [("z", 1)]


def _is_overwrite(value: Timeline) -> bool:
    return bool(value.completions) and value.completions[-1].overwriting is not None


def _dies(self: Projector, value: Timeline) -> Steps[None]:
    if _is_overwrite(value):
        raise KeyboardInterrupt
    return
    yield


def test_a_process_that_dies_right_after_the_event_has_overwritten(
    table: Table, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers find the base files where they were staged; the next publisher gives them their names."""
    with monkeypatch.context() as patch:
        patch.setattr(Projector, "place", _dies)
        with pytest.raises(KeyboardInterrupt):
            table.overwrite(frame(("z", "eu", 2), ("y", "us", 2)))
    other = place.open()
    before = data_files(place)
    assert ids(other) == [("y", "us", 2), ("z", "eu", 2)]
    assert other.count() == 2
    assert ids(other, filter=pl.col("n") == 2) == ids(other)
    assert other.history().to_pylist()[0]["rows"] == 2
    assert data_files(place) == before
    other.upsert(frame(("x", "us", 3)))
    assert sum(path.endswith(".parquet") for path in data_files(place) - before) == 3
    assert ids(other) == [("x", "us", 3), ("y", "us", 2), ("z", "eu", 2)]


# --- merges -----------------------------------------------------------------------------------------------------------


def test_payloads_start_afresh(make: Make) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = make(schema=schema, merge={"n": Counter(), "tags": ORSet()})
    data = pl.DataFrame({"id": ["a", "a", "b"], "n": [1, 2, 5], "tags": [["x"], ["y"], ["z"]]})
    table.upsert(data)
    table.overwrite(data)
    assert rows(table) == [("a", 3, ["x", "y"]), ("b", 5, ["z"])]
    table.upsert(pl.DataFrame({"id": ["a"], "n": [4], "tags": [["w"]]}))
    table.maintenance.compact()
    assert rows(table) == [("a", 7, ["w", "x", "y"]), ("b", 5, ["z"])]


def test_partial_updates_go_on_from_what_was_given(make: Make) -> None:
    table = make(merge=PartialUpdate())
    table.upsert(frame(("a", "eu", 1, 1.0)))
    table.overwrite(pl.DataFrame({"id": ["a", "b"], "n": [2, 2]}))
    table.upsert(pl.DataFrame({"id": ["a"], "price": [3.0]}))
    assert rows(table) == [("a", None, 2, 3.0), ("b", None, 2, None)]


def test_lower_ordering_values_win_after_an_overwrite(make: Make) -> None:
    table = make(ordering="n")
    table.upsert(frame(("a", "eu", 100), ("b", "eu", 100)))
    table.delete(frame(("b", "eu", 100)))
    table.overwrite(frame(("a", "eu", 1), ("b", "eu", 1), ("b", "eu", 2)))
    assert ids(table) == [("a", "eu", 1), ("b", "eu", 2)]


def test_services_go_on_after_it(table: Table, place: Place) -> None:
    for n in range(3):
        table.overwrite(frame(("z", "eu", n)))
        table.upsert(frame(("y", "us", n)))
        table.maintenance.compact()
    table.maintenance.clean(commits=1, readers=timedelta(0))
    table.maintenance.archive(keep_commits=1)
    assert ids(place.open()) == [("y", "us", 2), ("z", "eu", 2)]
    table.truncate()
    table.maintenance.clean(commits=1, readers=timedelta(0))
    assert ids(place.open()) == []


def test_null_and_the_empty_text_are_one_partition_as_in_hudi(fast_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string())])
    table = Table.create(fast_path / "days", schema, key=["id", "day"], partition_by="day", buckets=1)
    data = pa.table({"id": ["a", "a", "b"], "day": [None, "", "mon"]}, schema)
    table.upsert(data)
    assert table.scan(filter="day = ''").count() == table.scan(filter="day IS NULL").count() == 1
    for named in (None, ""):
        assert table.delete_partitions([named]).covered == ("day=__HIVE_DEFAULT_PARTITION__",)
        assert table.to_arrow()["id"].to_pylist() == ["b"]
        table.upsert(data)
