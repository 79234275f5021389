"""Hudi's own Spark opens and replaces file groups of our tables; and we write to tables that it has made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.inside import look_for_hudi
from tests.interop.readers import HudiSpark, hudi_rs, ours
from tests.interop.shapes import Maker, rows

pytestmark = pytest.mark.spark

IN_DAYS = pa.schema([pa.field("id", pa.string(), False), pa.field("p", pa.string(), False), ("n", pa.int64())])

Found = dict[tuple[str, str], int]


def of_day(*said: tuple[str, str, int]) -> pa.Table:
    return pa.table([pa.array(column) for column in zip(*said, strict=True)], schema=IN_DAYS)


def by_all(root: Path, spark: HudiSpark) -> Found:
    """The numbers of a table by partition and key, once all readers have shown the same."""
    table = Table(root)
    assert ours(table) == spark.read(root) == hudi_rs(root)
    return {(str(row.get("p")), str(row["id"])): row["n"] for row in table.scan().to_arrow().to_pylist()}


def test_hudi_drops_and_overwrites_partitions_of_ours(make: Maker, spark: HudiSpark) -> None:
    table = make.create(IN_DAYS, key=["id", "p"], partition_by="p", name="dropped")
    table.upsert(of_day(("a", "mon", 1), ("b", "tue", 1)))
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"create table dropped using hudi location '{make.root}'")
    spark.sql("alter table dropped drop partition (p = 'mon')")
    look_for_hudi(table)
    assert by_all(make.root, spark) == {("tue", "b"): 1}
    table.upsert(of_day(("a", "mon", 2)))
    assert by_all(make.root, spark) == {("mon", "a"): 2, ("tue", "b"): 1}
    table.maintenance.compact()
    table.upsert(of_day(("c", "mon", 2)))
    assert by_all(make.root, spark) == {("mon", "a"): 2, ("mon", "c"): 2, ("tue", "b"): 1}
    spark.sql("insert into dropped (id, n, p) select 'h', 3L, 'mon'")
    spark.sql("update dropped set n = 4 where id = 'a' and p = 'mon'")
    look_for_hudi(table)
    table.upsert(of_day(("h", "mon", 5)))
    expected = {("mon", "a"): 4, ("mon", "c"): 2, ("mon", "h"): 5, ("tue", "b"): 1}
    assert by_all(make.root, spark) == expected
    spark.sql("insert overwrite table dropped partition (p = 'mon') select 'o' as id, 6L as n")
    look_for_hudi(table)
    table.upsert(of_day(("a", "mon", 7), ("o", "mon", 7)))
    assert by_all(make.root, spark) == {("mon", "a"): 7, ("mon", "o"): 7, ("tue", "b"): 1}
    spark.sql("alter table dropped drop partition (p = 'mon')")
    look_for_hudi(table)
    table.overwrite(of_day(("a", "mon", 8)), partitions="dynamic")
    assert by_all(make.root, spark) == {("mon", "a"): 8, ("tue", "b"): 1}
    table.maintenance.migrate(str(make.root.with_name("moved")), buckets=3)
    moved = Table(make.root.with_name("moved"))
    moved.upsert(of_day(("a", "mon", 9)))
    assert by_all(make.root.with_name("moved"), spark) == {("mon", "a"): 9, ("tue", "b"): 1}


def test_hudi_opens_file_groups_of_buckets_that_nobody_has_used(make: Maker, spark: HudiSpark) -> None:
    table = make.create(buckets=4, name="opened")
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"create table opened using hudi location '{make.root}'")
    spark.sql("insert into opened select 'k7' as id, 9L as n, 'x' as v union all select 'k8', 9L, 'x'")
    look_for_hudi(table)
    table.upsert(rows([0, 7], 1))
    table.maintenance.compact()
    expected = {("None", "k0"): 1, ("None", "k7"): 1, ("None", "k8"): 9}
    assert by_all(make.root, spark) == expected
    spark.sql("insert into opened select 'k9' as id, 10L as n, 'y' as v")
    spark.sql("delete from opened where id = 'k8'")
    look_for_hudi(table)
    table.upsert(rows([9], 11))
    assert by_all(make.root, spark) == {("None", "k0"): 1, ("None", "k7"): 1, ("None", "k9"): 11}
    table.overwrite(rows([1, 2, 3, 4, 5], 12))
    assert set(by_all(make.root, spark).values()) == {12}


@pytest.mark.parametrize("partitioned", [False, True])
def test_an_ordinary_bucket_table_of_hudis_is_written_in_turns(
    spark: HudiSpark, tmp_path: Path, partitioned: bool
) -> None:
    """Its file groups have ids that Hudi made up: no writer of it uses non-blocking concurrency control."""
    name = f"ordinary_{'parts' if partitioned else 'flat'}"
    root = tmp_path / name
    by = "partitioned by (p)" if partitioned else ""
    bucket = "hoodie.index.type='BUCKET', hoodie.bucket.index.num.buckets='3', hoodie.metadata.enable='false'"
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(
        f"create table {name} (id string, n bigint, p string) using hudi {by} tblproperties (type='mor', "
        f"primaryKey='id', {bucket}, hoodie.compact.inline='false', hoodie.table.timeline.timezone='UTC') "
        f"location '{root}'"
    )
    said = ", ".join(f"('k{i}', {i}L, 'p{i % 2}')" for i in range(6))
    spark.sql(f"insert into {name} values {said}")
    spark.sql(f"update {name} set n = 100 where id = 'k1'")
    with (root / ".hoodie/hoodie.properties").open("a") as settings:
        settings.write("hoodie.bucket.index.num.buckets=3\n")  # which Hudi does not store
    (root / ".hoodie/.hoodie.properties.crc").unlink()  # Hadoop's, of the file before
    table = Table(root)
    table.upsert(pa.table({"id": ["k0", "k9"], "n": [7, 9], "p": ["p0", "p1"]}))
    now = by_all(root, spark)
    assert [now[place] for place in sorted(now)] == [7, 2, 4, 100, 3, 5, 9]
    spark.sql(f"update {name} set n = 8 where id = 'k9'")
    spark.sql(f"delete from {name} where id = 'k0'")
    look_for_hudi(table)
    table.maintenance.compact()
    table.upsert(pa.table({"id": ["k2"], "n": [22], "p": ["p0"]}))
    now = by_all(root, spark)
    assert [now[place] for place in sorted(now)] == [22, 4, 100, 3, 5, 8]
