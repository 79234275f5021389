"""Tables that Hudi's Spark writes here and now: our rows are those of Hudi's own reader, now and as of every moment."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.interop.readers import HudiSpark, ours
from tests.interop.written_by_hudi import ARCHIVING, Written, rows

pytestmark = pytest.mark.spark


def test_a_merge_on_read_table_with_compactions_cleans_and_an_archive(spark: HudiSpark, tmp_path: Path) -> None:
    table = Written(
        spark, tmp_path / "archived_mor", datasource__write__table__type="MERGE_ON_READ", compact__inline="true",
        compact__inline__max__delta__commits="2", datasource__write__precombine__field="ts", index__type="BUCKET",
        bucket__index__num__buckets="2", **ARCHIVING,
    )  # fmt: skip
    table.write(rows(list(range(6)), 5, "a"), "insert")
    for n in range(6, 13):
        table.write(rows([n % 4, n], 3 if n % 3 == 0 else n, "b"), "delete" if n % 5 == 4 else "upsert")
    read, expired = table.check()
    assert read >= 2
    assert expired >= 2
    history = [path.name for path in (table.root / ".hoodie/timeline/history").iterdir()]
    assert any(name.endswith("_1.parquet") for name in history), "no data file of a higher level"
    assert ours(Table(table.root)) == spark.read(table.root)


def test_a_copy_on_write_table_with_replaced_partitions_and_an_archive(spark: HudiSpark, tmp_path: Path) -> None:
    table = Written(
        spark, tmp_path / "archived_cow", datasource__write__table__type="COPY_ON_WRITE",
        datasource__write__partitionpath__field="p", datasource__write__precombine__field="ts",
        **ARCHIVING,
    )  # fmt: skip
    table.write(rows(list(range(6)), 1, "a"), "insert")
    table.write(rows([0, 10], 2, "b"))
    table.write(rows([2, 4], 3, "ow"), "insert_overwrite")
    table.write(rows([1], 3, "x"), "delete")
    table.write(rows([1], 4, "x"), "delete_partition", datasource__write__partitions__to__delete="p=p1")
    for n in range(5, 8):
        table.write(rows([n % 3, n], n, "c"))
    read, expired = table.check()
    assert read >= 2
    assert expired >= 2


@pytest.mark.parametrize("ordered", [False, True])
def test_partial_updates_of_merge_into(spark: HudiSpark, tmp_path: Path, ordered: bool) -> None:
    name = f"merge_into_{'ordered' if ordered else 'latest'}"
    table = Written(
        spark, tmp_path / name, datasource__write__table__type="MERGE_ON_READ", compact__inline="false",
        **({"datasource__write__precombine__field": "ts"} if ordered else {}),
    )  # fmt: skip
    rule = ", orderingFields='ts'" if ordered else ", hoodie.record.merge.mode='COMMIT_TIME_ORDERING'"
    never = "hoodie.compact.inline='false', hoodie.metadata.enable='false'"
    spark.sql(
        f"create table {name} (id string, v string, w string, ts long) using hudi "
        f"tblproperties (type='mor', primaryKey='id', {never}{rule}) location '{table.root}'"
    )
    table.sql("insert into {table} values ('k1','a','x',10),('k2','b','y',10),('k3','c','z',10),('k4','d','q',10)")

    def merge(key: str, column: str, ts: int) -> None:
        also = ", t.ts = s.ts" if ordered else ""
        source = f"select '{key}' as id, '{column}{ts}' as c, {ts}L as ts"
        then = f"when matched then update set t.{column} = s.c{also}"
        table.sql(f"merge into {{table}} t using ({source}) s on t.id = s.id {then}")

    merge("k1", "v", 20)
    merge("k1", "w", 15)
    if ordered:
        merge("k2", "v", 5)
        merge("k4", "v", 20)
    table.sql("update {table} set w = 'all' where id = 'k3'")
    merge("k3", "v", 30)
    lower = pa.table({"id": ["k1", "k9"], "v": ["low", "new"], "w": ["low", "new"], "ts": [12, 12]})
    table.write(lower)
    table.sql("delete from {table} where id = 'k4'")
    read, expired = table.check()
    assert read == len(table.seen)
    assert not expired


def test_nested_types_and_columns_that_grew_beside_a_metadata_table(spark: HudiSpark, tmp_path: Path) -> None:
    table = Written(
        spark, tmp_path / "grown", datasource__write__table__type="MERGE_ON_READ",
        datasource__write__precombine__field="ts", compact__inline="false", metadata__enable="true",
    )  # fmt: skip
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    first = pa.schema(
        [("id", pa.string()), ("ts", pa.int64()), ("a", pa.int32()), ("dec", pa.decimal128(12, 3)),
         ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("s", inner), ("m", pa.map_(pa.string(), inner)),
         ("l", pa.list_(inner)), ("b", pa.binary())]
    )  # fmt: skip
    value = {"x": 1, "y": ["a", "é"]}
    row = {
        "ts": 1,
        "a": 7,
        "dec": Decimal("-1.500"),
        "day": dt.date(1960, 2, 29),
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        "s": value,
        "m": {"k": value, "n": None},
        "l": [value, {"x": None, "y": []}],
        "b": b"\0",
    }
    loaded = [*({"id": f"k{i}", **row} for i in range(3)), {"id": "k3", "ts": 1}]
    table.write(pa.Table.from_pylist(loaded, first), "insert")
    table.write(pa.Table.from_pylist([{"id": "k1", **row, "ts": 2, "a": None}], first))
    second = first.set(2, pa.field("a", pa.int64())).append(pa.field("new", pa.string()))
    table.write(pa.Table.from_pylist([{"id": "k2", **row, "ts": 3, "a": 2**40, "new": "n"}], second))
    table.check(as_of=False)


def test_rows_marked_as_deleted_and_a_table_without_a_key(spark: HudiSpark, tmp_path: Path) -> None:
    marked = Written(spark, tmp_path / "marked", datasource__write__table__type="MERGE_ON_READ",
                     datasource__write__precombine__field="ts", compact__inline="false")  # fmt: skip

    def marks(ids: list[int], ts: int, gone: list[bool]) -> pa.Table:
        return rows(ids, ts, "v").append_column("_hoodie_is_deleted", pa.array(gone))

    marked.write(marks([0, 1, 2], 5, [False, False, True]), "bulk_insert")
    marked.write(marks([0, 1], 6, [True, False]))
    marked.write(marks([1], 3, [True]))
    read, _ = marked.check()
    assert read == 3
    keyless = Written(spark, tmp_path / "keyless")
    spark.sql(
        "create table keyless (id string, v string) using hudi "
        f"tblproperties (type='mor', hoodie.metadata.enable='false') location '{keyless.root}'"
    )
    keyless.sql("insert into {table} values ('a', '1'), ('a', '1'), ('b', '2')")
    keyless.sql("update {table} set v = '3' where id = 'a'")
    keyless.sql("delete from {table} where id = 'b'")
    read, _ = keyless.check()
    assert read == 3
