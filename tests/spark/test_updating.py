"""What Spark updates is what one process would have updated, in one commit, or nothing at all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, InvalidInputError, Rules, Table
from crdt_mor.api.scan import Scan
from crdt_mor.errors import ConstraintViolationError, EarlierWritePendingError, SchemaMismatchError
from crdt_mor.parts import PartDone
from crdt_mor.parts import UpdatePart as Part
from tests.spark.sessions import fixture
from tests.spark.tables import leftovers, pending, same_rows
from tests.spark.written import TABLES, batch, make

pytestmark = pytest.mark.spark
spark = fixture()

UPDATED = ("partitioned", "partial", "counter")


@pytest.fixture(autouse=True)
def some_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three file groups a task, where such small tables would be one task as a whole."""
    whole = Scan.parts
    monkeypatch.setattr(Scan, "parts", lambda scan: whole(scan, 4 << 20))


def filled(path: Path, kind: str = "latest") -> Table:
    table = make(path, TABLES[kind])
    table.upsert(batch(table.schema, 5))
    table.maintenance.compact()
    table.upsert(batch(table.schema, 5, rows=20))
    return table


def beside(monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """`happens` is called once the write has begun and waited, just before its tasks run."""
    from crdt_mor.readers.spark import updating

    whole = updating._execute

    def execute(spark: Any, parts: Sequence[Part]) -> list[PartDone | CrdtMorError]:
        happens()
        return whole(spark, parts)

    monkeypatch.setattr(updating, "_execute", execute)


@pytest.mark.parametrize("kind", UPDATED)
def test_it_is_what_one_process_makes(spark: Any, tmp_path: Path, kind: str) -> None:
    from crdt_mor.readers.spark import delete_where, update

    table, expected = (filled(tmp_path / name, kind) for name in ("table", "expected"))
    assigned, where = {"n": "n + 3", "s": pl.col("s") + "!"}, "id % 3 = 1"
    done = expected.update(assigned, where)
    commit = update(spark, table.uri, assigned, where)
    assert (commit.rows, commit.deletes) == (done.rows, 0)
    same_rows(table, expected)

    with expected.transaction(isolation="serializable") as tx:
        tx.delete(where=pl.col("id") > 20)
    assert tx.commit is not None
    assert delete_where(spark, table.uri, pl.col("id") > 20).deletes == tx.commit.deletes > 0
    same_rows(table, expected)
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def test_where_nothing_matches_there_is_a_commit_without_rows(spark: Any, tmp_path: Path) -> None:
    from crdt_mor.readers.spark import delete_where, update

    table = filled(tmp_path / "t")
    assert update(spark, table.uri, {"n": 0}, "s = 'none'").rows == 0
    assert delete_where(spark, table.uri, "s = 'none'").deletes == 0
    empty = make(tmp_path / "empty", {})
    assert update(spark, empty.uri, {"n": 0}).rows == 0
    assert empty.scan().count() == 0


def test_what_ends_while_tasks_run_comes_after_it(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crdt_mor.readers.spark import update

    table, other = filled(tmp_path / "t"), Table(tmp_path / "t")
    before = dict(table.scan(columns=["id", "n"]).to_polars().rows())

    def later() -> None:
        other.upsert(pa.table({"id": [1], "day": ["d1"], "n": [500], "s": [""]}, table.schema))
        other.maintenance.compact()
        with pytest.raises(EarlierWritePendingError):
            other.update({"n": 0}, wait=timedelta(0))

    beside(monkeypatch, later)
    update(spark, table.uri, {"n": "n + 1"}, token=("job", 1))
    expected = {key: n + 1 for key, n in before.items()} | {1: 500}
    assert dict(table.scan(columns=["id", "n"]).to_polars().rows()) == expected
    assert update(spark, table.uri, {"n": "n + 1"}, token=("job", 1)).repeated
    assert dict(table.scan(columns=["id", "n"]).to_polars().rows()) == expected


def test_what_is_refused_is_refused_as_in_one_process_and_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.functions import col

    from crdt_mor.readers.spark import delete_where, update

    table = filled(tmp_path / "t", "ordering")
    version, set_to = table.version, partial(update, spark, table.uri)
    with pytest.raises(InvalidInputError, match="no such columns"):
        set_to({"m": 1})
    with pytest.raises(InvalidInputError, match="and no Column"):
        set_to({"s": col("s")})
    with pytest.raises(InvalidInputError, match="filter"):
        delete_where(spark, table.uri, "id + 1")
    with pytest.raises(SchemaMismatchError, match="column=n"):
        set_to({"n": "s"}, "id = 1")
    assert table.version == version, "they are refused before the write begins"
    with pytest.raises(InvalidInputError, match="lower ordering value"):
        set_to({"n": "n - 1"}, "id = 1")
    assert (leftovers(table.uri), pending(table.uri)) == ([], [])


def commits(table: Table) -> list[int]:
    """The versions of the table's writes. On a slow machine a sweep adds roll-backs to the history."""
    return [row["version"] for row in table.history().to_pylist() if row["kind"] == "write"]


def test_what_spark_writes_is_held_to_the_rules(spark: Any, tmp_path: Path) -> None:
    """Tasks ask, of rows that they write and of those that they update; a column that is not given has its default."""
    from crdt_mor.readers.spark import overwrite, update, upsert

    schema = {"id": pl.Int64, "price": pl.Float64, "country": pl.String}
    table = Table.create(
        str(tmp_path / "t"),
        schema,
        key="id",
        rules=Rules(not_null="price", check={"positive": "price > 0"}, default={"country": "DE"}),
    )
    upsert(spark.createDataFrame([(1, 1.0), (2, 2.0)], "id long, price double"), table.uri)
    assert sorted(table.scan().to_polars().rows()) == [(1, 1.0, "DE"), (2, 2.0, "DE")]
    before = commits(table)
    for price in (-1.0, None):
        bad = spark.createDataFrame([(3, price, "FR")], "id long, price double, country string")
        for write in (upsert, overwrite):
            with pytest.raises(Exception, match="rows break a rule of the table"):
                write(bad, table.uri)
        with pytest.raises(Exception, match="rows break a rule of the table"):
            bad.write.format("crdt_mor").mode("append").save(table.uri)
    with pytest.raises(ConstraintViolationError) as raised:
        update(spark, table.uri, {"price": "-price"}, "id = 2")
    assert (raised.value.constraint, raised.value.key) == ("check positive", {"id": 2})
    assert commits(table) == before
    assert not pending(table.uri)
