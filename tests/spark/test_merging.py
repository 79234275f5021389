"""What Spark merges is what one process would have merged, in one commit, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, MergeInto, Table
from crdt_mor.errors import EarlierWritePendingError, InvalidUseError
from tests.spark.sessions import fixture
from tests.spark.tables import leftovers, pending, same_rows
from tests.spark.written import SCHEMA, TABLES, batch, make

pytestmark = pytest.mark.spark
spark = fixture()

SOURCE = pa.table(
    {
        "id": [*range(20, 50)],
        "day": [f"d{i % 3}" for i in range(20, 50)],
        "n": [i + 20 for i in range(20, 50)],
        "s": [f"new {i}" for i in range(20, 50)],
    },
    SCHEMA,
)


def clauses(merge: MergeInto) -> MergeInto:
    merge = merge.when_matched_delete("source.n % 7 = 0").when_matched_update(
        {"n": "target.n + source.n", "s": "source.s"}
    )
    merge = merge.when_not_matched_insert_all("source.id < 45").when_not_matched_by_source_delete("target.n > 8")
    return merge.when_not_matched_by_source_update({"s": "target.s || '?'"})


def upserting(merge: MergeInto) -> MergeInto:
    return merge.when_matched_update_all().when_not_matched_insert_all()


def filled(path: Path, kind: str = "latest", **settings: Any) -> Table:
    table = make(path, {**TABLES[kind], **settings})
    table.upsert(batch(table.schema, 5))
    table.maintenance.compact()
    table.upsert(batch(table.schema, 5, rows=20))
    return table


def frame(spark: Any, source: pa.Table) -> Any:
    kinds = {pa.int64(): "long", pa.string(): "string"}
    columns = ", ".join(f"{column.name} {kinds[column.type]}" for column in source.schema)
    return spark.createDataFrame(source.to_pylist(), columns).repartition(2)


@pytest.mark.parametrize("kind", ["partitioned", "composite key", "counter"])
def test_it_is_what_one_process_makes(spark: Any, tmp_path: Path, kind: str) -> None:
    from crdt_mor.readers.spark import merge

    table, expected = (filled(tmp_path / name, kind) for name in ("table", "expected"))
    done = clauses(expected.merge(SOURCE)).execute()
    found = clauses(merge(spark, table.uri, frame(spark, SOURCE))).execute()
    assert min(found.clauses) > 0
    assert found == replace(
        done, version=table.version, requested_at=found.requested_at, completed_at=found.completed_at
    )
    same_rows(table, expected)
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def deleting(merge: MergeInto) -> MergeInto:
    return merge.when_matched_delete(condition="source.n > target.n").when_matched_delete("source.id % 2 = 0")


def by_expressions(merge: MergeInto) -> MergeInto:
    s, t = pl.col("s").struct, pl.col("t").struct
    merge = merge.when_matched_update(set={"n": s.field("n") + t.field("n")}, condition=t.field("n") > 3)
    return merge.when_not_matched_insert(values={"id": "s.id", "day": "s.day", "n": 1}, condition="s.id % 3 = 0")


def of_later(merge: MergeInto) -> MergeInto:
    return merge.when_matched_update_all("source.n > target.n").when_not_matched_insert_all()


def under_other_keys(merge: MergeInto) -> MergeInto:
    return merge.when_matched_delete().when_not_matched_insert({"id": "source.id + 100", "n": "source.n"})


def of_numbers(merge: MergeInto) -> MergeInto:
    return merge.when_matched_update({"n": "source.n"})


TWICE = pa.concat_tables([SOURCE, SOURCE.slice(0, 10)])
NULLS = pa.table({"id": [None, 1], "n": [1, 2]}, pa.schema([SCHEMA.field("id"), SCHEMA.field("n")]))
DOORS: dict[str, tuple[str, pa.Table, dict[str, Any], Callable[[MergeInto], MergeInto]]] = {
    "several source rows delete a row": ("latest", TWICE, {}, deleting),
    "expressions of polars": ("partial", SOURCE, {"source_alias": "s", "target_alias": "t"}, by_expressions),
    "an ordering column": ("ordering", SOURCE, {"on": "id"}, of_later),
    "nulls": ("latest", NULLS, {"on": "source.id = target.id"}, of_numbers),
    "a part of the key": ("composite key", SOURCE, {"on": "id"}, of_numbers),
    "inserts under other keys": ("latest", SOURCE, {}, under_other_keys),
}


@pytest.mark.parametrize("case", DOORS)
def test_each_merge_does_the_same_through_both_doors(spark: Any, tmp_path: Path, case: str) -> None:
    from crdt_mor.readers.spark import merge

    kind, source, arguments, add = DOORS[case]
    table, expected = (filled(tmp_path / name, kind) for name in ("table", "expected"))
    done = add(expected.merge(source, **arguments)).execute()
    found = add(merge(spark, table.uri, frame(spark, source), **arguments)).execute()
    assert (found.clauses, found.repeated) == (done.clauses, False)
    assert sum(found.clauses) > 0
    same_rows(table, expected)


def test_the_arguments_of_delta_are_those_of_a_merge(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import merge

    table, expected = (filled(tmp_path / name) for name in ("table", "expected"))
    upserting(expected.merge(SOURCE)).execute()
    rows, equal = frame(spark, SOURCE), "t.id = s.id"
    merging = merge(spark, table.uri, source=rows, condition=equal, source_alias="s", target_alias="t")
    values = {name: f"s.{name}" for name in SCHEMA.names}
    merging = merging.when_matched_update(condition="true", set={n: v for n, v in values.items() if n != "id"})
    assert merging.when_not_matched_insert(condition="s.id > 0", values=values).execute().inserted == 13
    same_rows(table, expected)
    with pytest.raises(InvalidInputError, match="as on= or as condition=, not as both"):
        merge(spark, table.uri, rows, "id", condition=equal)
    with pytest.raises(InvalidInputError, match="pass source_alias= and target_alias="):
        merge(spark, table.uri, rows, condition=equal)


def beside(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """`happens` is called once a merge has begun and waited, just before its tasks run."""
    from crdt_mor.readers.spark import merging

    whole = merging._execute

    def execute(*arguments: Any) -> Any:
        happens()
        return whole(*arguments)

    monkeypatch.setattr(merging, "_execute", execute)


def test_what_others_commit_while_tasks_run_comes_after_the_merge(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crdt_mor.readers.spark import merge

    table, expected = (filled(tmp_path / name, "partitioned") for name in ("table", "expected"))
    other = Table(table.uri)
    later = pa.table({"id": [20, 45, 100], "day": ["d2", "d0", "d1"], "n": [500] * 3, "s": ["later"] * 3}, SCHEMA)

    def happens() -> None:
        other.upsert(later)
        other.maintenance.compact()
        with pytest.raises(EarlierWritePendingError):
            other.merge(SOURCE, wait=timedelta(0)).when_matched_delete().execute()

    beside(monkeypatch, happens)
    merging = merge(spark, table.uri, frame(spark, SOURCE)).when_matched_update({"n": "target.n + source.n"})
    merging.when_not_matched_insert_all().execute()
    merging = expected.merge(SOURCE).when_matched_update({"n": "target.n + source.n"})
    merging.when_not_matched_insert_all().execute()
    expected.upsert(later)
    same_rows(table, expected)
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_a_row_that_moves_to_another_partition_is_in_one_of_them(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import merge

    table = filled(tmp_path / "t", "partitioned")
    moved = SOURCE.set_column(1, "day", pa.array(["elsewhere"] * 30))
    done = upserting(merge(spark, table.uri, frame(spark, moved), on="id", token=("feed", 1))).execute()
    assert (done.updated, done.inserted) == (17, 13)
    found = table.scan().to_polars()
    assert found["id"].is_unique().all()
    assert found.filter(found["day"] == "elsewhere").sort("id").rows() == [
        tuple(row.values()) for row in moved.to_pylist()
    ]
    assert upserting(merge(spark, table.uri, frame(spark, moved), on="id", token=("feed", 1))).execute().repeated


def test_rows_whose_keys_a_frame_has_move_as_in_one_process(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import move

    table, expected = (filled(tmp_path / name, "partitioned") for name in ("table", "expected"))
    done = expected.move([*range(20, 50)], partition={"day": "elsewhere"})
    keys = frame(spark, SOURCE)
    moved = move(keys.union(keys), table.uri, partition={"day": "elsewhere"}, token=("move", 1))
    assert (moved.updated, moved.repeated) == (done.updated, False) == (17, False)
    same_rows(table, expected)
    assert move(keys, table.uri, partition={"day": "d1"}, token=("move", 1)).repeated
    table.upsert(SOURCE.slice(0, 1))
    with pytest.raises(InvalidInputError, match="another row has the same key"):
        move(keys, table.uri, partition={"day": "elsewhere"})
    with pytest.raises(InvalidInputError, match="pass the new partition"):
        move(keys, table.uri, partition={"n": 1})
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_a_join_on_other_columns_and_a_frame_and_a_table_without_rows(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import merge

    table, expected = (filled(tmp_path / name) for name in ("table", "expected"))
    days = pa.table({"id": [0], "day": ["d1"], "n": [1], "s": ["one"]}, SCHEMA)
    for one, source in ((expected, days), (table, None)):
        by_day = one.merge(source, on="day") if source else merge(spark, one.uri, frame(spark, days), on="day")
        assert by_day.when_matched_update({"s": "source.s"}).execute().updated == 12
    same_rows(table, expected)
    nothing = frame(spark, SOURCE).where("id < 0")
    done = (
        merge(spark, table.uri, nothing).when_matched_delete().when_not_matched_by_source_update({"n": "7"}).execute()
    )
    assert done.clauses == (0, 37)
    empty = make(tmp_path / "empty", {})
    assert upserting(merge(spark, empty.uri, frame(spark, SOURCE))).execute().inserted == 30


REFUSED: dict[str, tuple[str, Callable[[Any, str, Any], MergeInto]]] = {
    "a column": ("no such columns", lambda merge, uri, rows: merge(uri, rows).when_matched_update({"m": "1"})),
    "duplicates": (
        "several rows of the source match",
        lambda merge, uri, rows: upserting(merge(uri, rows.union(rows))),
    ),
    "no key": (
        "means a missing value",
        lambda merge, uri, rows: upserting(merge(uri, rows.selectExpr("id", "'__null__' AS day", "n", "s"))),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_as_in_one_process_and_leaves_nothing(spark: Any, tmp_path: Path, case: str) -> None:
    from crdt_mor.readers.spark import merge

    table = filled(tmp_path / "t", "composite key" if case == "no key" else "latest")
    said, refused = REFUSED[case]
    with pytest.raises(InvalidInputError, match=said):
        refused(partial(merge, spark), table.uri, frame(spark, SOURCE)).execute()
    assert table.scan().count() == 37
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_a_column_of_spark_and_other_sources_than_frames_are_refused(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.functions import col

    from crdt_mor.readers.spark import merge, move

    table = filled(tmp_path / "t", "partitioned")
    merging = merge(spark, table.uri, frame(spark, SOURCE))
    with pytest.raises(InvalidInputError, match=r"pass SQL text, a polars expression or a value, and no Column"):
        merging.when_matched_update(set={"n": col("source.n")}).execute()
    with pytest.raises(InvalidInputError, match=r"pass SQL text or a polars expression, and no Column.*condition="):
        merging.when_matched_delete(condition=col("source.n") > 1).execute()  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"or on='target\.id = source\.id'.*on=Column"):
        merge(spark, table.uri, frame(spark, SOURCE), col("target.id") == col("source.id"))  # type: ignore[arg-type]
    for given in (SOURCE, "/lake/feed"):
        with pytest.raises(InvalidUseError, match="source must be a Spark frame"):
            merge(spark, table.uri, given)  # type: ignore[arg-type]
    with pytest.raises(InvalidUseError, match=r"df must be a Spark frame.*df=builtins\.list"):
        move([1, 2], table.uri, partition={"day": "d1"})  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="keys to move lack key columns"):
        move(frame(spark, SOURCE).select("n"), table.uri, partition={"day": "d1"})
    assert (table.scan().count(), pending(table.uri)) == (37, [])
