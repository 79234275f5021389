"""Tables of ours that are handed over to Hudi's writers, and taken back: all readers show the same rows throughout."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from tests.inside import look_for_hudi
from tests.interop.made_by_hudi import data_source
from tests.interop.readers import HudiSpark, hudi_rs, ours
from tests.interop.shapes import Maker, every_type, keys, rows

pytestmark = pytest.mark.spark

MERGE = """
merge into {name} t using (select 'k3' id, 33L n, 'm' v union all select 'k60', 60L, 'm') s on t.id = s.id
when matched then update set * when not matched then insert *
"""
STATEMENTS = (
    "insert into {name} select 'k50', 7L, 'x'",
    "update {name} set n = 100 where id = 'k1'",
    "delete from {name} where id in ('k2', 'k50')",
    MERGE,
    "merge into {name} t using (select 'k4' id, 44L m) s on t.id = s.id when matched then update set n = s.m",
    "merge into {name} t using (select 'k5' id) s on t.id = s.id when matched then delete",
    "insert into {name} select 'k2', 8L, 'again'",
)
QUICK = (
    "metadata.enable=false",
    "embed.timeline.server=false",
    "write.markers.type=DIRECT",
    *(f"{step}.shuffle.parallelism=1" for step in ("insert", "upsert", "delete")),
)
"""Nothing that changes what is written, but for the first."""


def numbers(table: Table) -> dict[str, int]:
    return {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}


def test_each_of_hudis_writers_while_a_table_is_handed_over(make: Maker, spark: HudiSpark, tmp_path: Path) -> None:
    table = make.create()
    table.append(rows(range(8), 1))
    table.delete(keys=keys(7))
    table.upsert(rows([6], 2))
    table.maintenance.handover()

    def agree() -> None:
        look_for_hudi(table)
        assert ours(table) == ours(Table(make.root)) == spark.read(make.root) == hudi_rs(make.root)

    agree()
    for setting in QUICK:
        spark.sql(f"set hoodie.{setting}")
    spark.sql(f"create table handed_over using hudi location '{make.root}'")
    for statement in STATEMENTS:
        spark.sql(statement.format(name="handed_over"))
    agree()
    pq.write_table(rows([6, 7], 70), tmp_path / "batch.parquet")
    spark.ask(upsert=str(make.root), rows=str(tmp_path / "batch.parquet"), options=data_source("t"))
    agree()
    expected = {"k0": 1, "k1": 100, "k2": 8, "k3": 33, "k4": 44, "k6": 70, "k7": 70, "k60": 60}
    assert numbers(table) == expected
    assert table.maintenance.takeback() == len(STATEMENTS) + 1
    agree()
    table.upsert(rows([1, 4], 9))
    table.delete(keys=keys(3, 60))
    agree()
    table.upsert(rows([3], 10))
    agree()
    table.maintenance.handover()
    spark.sql("update handed_over set n = n + 1 where id = 'k3'")
    table.maintenance.takeback()
    agree()
    table.maintenance.compact()
    agree()
    assert numbers(table) == {"k0": 1, "k1": 9, "k2": 8, "k3": 11, "k4": 9, "k6": 70, "k7": 70}


MERGE_INTO_A_PARTITION = """
merge into {name} t using (select 'k2' id, 9L n, 'v1' v union all select 'y9', 9L, 'newer') s
on t.id = s.id and t.v = s.v when matched then update set * when not matched then insert *
"""
PARTITIONS = (
    "insert into {name} select 'z1', 1L, 'new'",
    "insert overwrite {name} partition (v='w') select 'q1', 5L",
    MERGE_INTO_A_PARTITION,
    "insert overwrite {name} partition (v='new') select 'z2', 6L",
    "alter table {name} drop partition (v='w')",
)


@pytest.mark.long
def test_partitions_that_hudi_makes_replaces_and_drops_meanwhile(make: Maker, spark: HudiSpark) -> None:
    table = make.create(partition_by="v", buckets=4, hive_style=True)
    table.append(rows(range(4), 1))
    table.maintenance.handover()
    for setting in QUICK:
        spark.sql(f"set hoodie.{setting}")
    spark.sql(f"create table handed_in_parts using hudi location '{make.root}'")
    for statement in PARTITIONS:
        spark.sql(statement.format(name="handed_in_parts"))
    assert table.maintenance.takeback() == len(PARTITIONS)
    expected = {"k0": 1, "k1": 1, "k2": 9, "k3": 1, "y9": 9, "z2": 6}
    for step in (lambda: None, lambda: table.upsert(rows([5], 3, "w")), table.maintenance.compact):
        step()
        assert ours(table) == ours(Table(make.root)) == spark.read(make.root) == hudi_rs(make.root)
        assert numbers(table).items() >= expected.items()


def test_hudis_writers_write_columns_of_each_type(make: Maker, spark: HudiSpark, tmp_path: Path) -> None:
    data = every_type()
    table = make.create(data.schema, buckets=1)
    table.append(data)
    table.maintenance.handover()
    for setting in QUICK:
        spark.sql(f"set hoodie.{setting}")
    spark.sql(f"create table handed_types using hudi location '{make.root}'")
    (base,) = make.root.glob("*.parquet")
    pq.write_table(pq.read_table(base, columns=data.schema.names).slice(0, 2), tmp_path / "batch.parquet")
    spark.ask(upsert=str(make.root), rows=str(tmp_path / "batch.parquet"), options=data_source("t", buckets=1))
    spark.sql("update handed_types set c0 = not c0 where id = 'k2'")
    columns = ", ".join(data.schema.names[1:])
    spark.sql(f"insert into handed_types select 'k3', {columns} from handed_types where id = 'k1'")
    look_for_hudi(table)
    shown = table.to_arrow().sort_by("id")
    given = {**data.to_pydict(), "c0": [None, False, not data["c0"][2].as_py()]}
    expected = {name: [*values, values[1]] for name, values in given.items()}
    assert shown.to_pydict() == {**expected, "id": keys(0, 1, 2, 3)}
    assert table.maintenance.takeback() == 3
    table.upsert(data)
    table.maintenance.compact()
    assert table.to_arrow().sort_by("id").slice(0, 3).to_pydict() == data.to_pydict()
    assert ours(table) == ours(Table(make.root)) == spark.read(make.root) == hudi_rs(make.root)
