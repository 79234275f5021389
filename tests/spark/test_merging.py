"""What Spark merges is what one process would have merged, in one commit, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, MergeInto, Table
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
    return spark.createDataFrame(source.to_pylist(), "id long, day string, n long, s string").repartition(2)


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
