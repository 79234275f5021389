"""Tables of ours that Hudi itself then wrote to: met in memory, adopted by the next write, nothing lost.

What Hudi's writers do is forged here from our own bytes, so that it needs no Java; below, Hudi does it itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.errors import InvalidInputError
from crdt_mor.format.commit import CommitMetadata, WriteStat, decode_commit, encode_commit
from crdt_mor.model.names import OWN_KEY
from tests.inside import look_for_hudi
from tests.interop.made_by_hudi import data_source, said
from tests.interop.readers import HudiSpark, hudi_rs, ours
from tests.interop.shapes import (
    SCHEMA,
    Maker,
    digits_over_a_base,
    integers_over_a_base,
    keys,
    rows,
    scales_over_a_base,
)


def numbers(table: Table) -> dict[str, object]:
    return {str(row["id"]): row["n"] for row in table.scan().to_arrow().to_pylist()}


def hudi_upserts(root: Path, data: pa.Table, file_id: str | None = None) -> None:
    """What is left in the folder when Hudi has upserted `data`: files and a commit without a trace of us."""
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    before = {path.relative_to(copy) for path in copy.rglob("*")}
    Table(copy).upsert(data)
    for path in sorted(copy.rglob("*")):
        name = path.relative_to(copy)
        if name in before or not path.is_file() or ".crdt_mor" in name.parts:
            continue
        content, target = path.read_bytes(), str(name)
        if name.suffix == ".deltacommit":
            content = encode_commit(_as_hudis(decode_commit(content, target), file_id))
        elif ".log." in name.name and file_id:
            target = str(name).replace(name.name[1:37] + "-0", file_id)
        elif name.suffix == ".inflight":
            content = b""
        (root / target).write_bytes(content)
    shutil.rmtree(copy)


def _as_hudis(commit: CommitMetadata, file_id: str | None) -> CommitMetadata:
    def moved(stat: WriteStat) -> WriteStat:
        old, new = str(stat.file_id), file_id or str(stat.file_id)
        logs = tuple(log.replace(old, new) for log in stat.log_files or ())
        return replace(stat, file_id=new, path=str(stat.path).replace(old, new), log_files=logs)

    stats = {partition: [moved(stat) for stat in found] for partition, found in commit.stats.items()}
    extra = {name: text for name, text in commit.extra.items() if name != OWN_KEY}
    return replace(commit, stats=stats, extra=extra)


def test_a_commit_of_hudis_is_met_in_memory_and_adopted_by_the_next_write(make: Maker) -> None:
    table = make.create()
    table.append(rows(range(3), 1))
    hudi_upserts(make.root, rows([1, 50], 2))
    met = Table(make.root)
    assert numbers(met) == {"k0": 1, "k1": 2, "k2": 1, "k50": 2}
    assert met.version == table.version
    met.upsert(rows([0], 3))
    for reader in (met, table, Table(make.root)):
        assert numbers(reader) == {"k0": 3, "k1": 2, "k2": 1, "k50": 2}
    assert ours(table) == hudi_rs(make.root)


def test_a_compaction_right_after_a_commit_of_hudis_does_not_leave_it_behind(make: Maker) -> None:
    """The commit completed before the barrier: a plan that had not seen it would put it into the old slice."""
    table = make.create()
    table.append(rows(range(3), 1))
    hudi_upserts(make.root, rows([1, 50], 2))
    table.maintenance.compact()
    assert numbers(table) == numbers(Table(make.root)) == {"k0": 1, "k1": 2, "k2": 1, "k50": 2}
    assert ours(table) == hudi_rs(make.root)


def test_a_file_group_outside_the_bucket_index_is_read_but_the_table_not_written(make: Maker) -> None:
    table = make.create()
    table.append(rows(range(3), 1))
    hudi_upserts(make.root, rows([50], 2), file_id="9f1c2d3e-aaaa-4bbb-8ccc-1234567890ab-0")
    table = Table(make.root)
    assert numbers(table) == {"k0": 1, "k1": 1, "k2": 1, "k50": 2}
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"hoodie\.index\.type=BUCKET"):
            table.upsert(rows([50], 3))
    assert numbers(Table(make.root)) == {"k0": 1, "k1": 1, "k2": 1, "k50": 2}
    copy = Table.create(make.root.with_name("copied"), SCHEMA, key="id")
    copy.append(table.scan())
    copy.upsert(rows([50], 3))
    assert numbers(copy)["k50"] == 3


def test_a_metadata_table_stops_writers_also_those_that_had_the_table_open(make: Maker) -> None:
    table = make.create()
    table.append(rows(range(3), 1))
    said(make.root, {"hoodie.table.metadata.partitions": "files"})
    for opened in (table, Table(make.root)):
        assert numbers(opened) == {"k0": 1, "k1": 1, "k2": 1}
        with pytest.raises(InvalidInputError, match="delete_metadata_table"):
            opened.upsert(rows([0], 2))
        with pytest.raises(InvalidInputError, match="delete_metadata_table"):
            opened.maintenance.compact()
    files = make.root / ".hoodie/metadata/files"
    files.mkdir(parents=True)
    (files / ".files-0000-0_20260101000000000.log.1_0-0-0").write_bytes(b"#HUDI#")
    assert table.maintenance.drop_metadata_table() == 1
    assert not [path for path in files.parent.rglob("*") if path.is_file()]
    table.upsert(rows([0], 2))
    assert numbers(table) == numbers(Table(make.root)) == {"k0": 2, "k1": 1, "k2": 1}
    assert table.maintenance.drop_metadata_table() == 0


@pytest.mark.parametrize("there", [("",), (".backup",), ("", ".backup"), ("old", ".backup")], ids=".".join)
def test_a_change_of_the_properties_that_died_is_ended_by_the_next_one(make: Maker, there: tuple[str, ...]) -> None:
    """Hudi changes the properties so as well: a table whose properties are in the backup alone is open to all."""
    table = make.create()
    table.append(rows(range(3), 1))
    folder = make.root / ".hoodie"
    before = (folder / "hoodie.properties").read_bytes()
    said(make.root, {"hoodie.table.metadata.partitions": "files"})
    changed = (folder / "hoodie.properties").read_bytes()
    (folder / "hoodie.properties").unlink()
    for name in there:
        (folder / f"hoodie.properties{name.removeprefix('old')}").write_bytes(before if name == "old" else changed)
    opened = Table(make.root)
    assert numbers(opened) == {"k0": 1, "k1": 1, "k2": 1}
    Table(make.root).maintenance.drop_metadata_table()
    assert (folder / "hoodie.properties").exists()
    opened.upsert(rows([0], 2))
    assert numbers(Table(make.root)) == {"k0": 2, "k1": 1, "k2": 1}


# --- Hudi itself ------------------------------------------------------------------------------------------------------


def _all_agree(table: Table, root: Path, spark: HudiSpark) -> None:
    assert ours(table) == ours(Table(root)) == spark.read(root) == hudi_rs(root)


@pytest.mark.spark
def test_sql_and_our_writes_and_compactions_in_turn(make: Maker, spark: HudiSpark) -> None:
    table = make.create()
    table.append(rows(range(6), 1))
    table.maintenance.compact()
    table.upsert(rows([0], 2))
    spark.sql("set hoodie.metadata.enable=false")
    spark.sql(f"create table in_turn using hudi location '{make.root}'")
    spark.sql("update in_turn set n = 100 where id = 'k1'")
    spark.sql("insert into in_turn select 'k50' as id, 7L as n, 'x' as v")
    spark.sql("delete from in_turn where id = 'k2'")
    look_for_hudi(table)
    assert numbers(table) == {"k0": 2, "k1": 100, "k3": 1, "k4": 1, "k5": 1, "k50": 7}
    _all_agree(table, make.root, spark)
    table.upsert(rows([1, 7], 200))
    table.delete(keys=keys(50))
    _all_agree(table, make.root, spark)
    spark.sql("update in_turn set n = 101 where id = 'k7'")
    table.maintenance.compact()
    _all_agree(table, make.root, spark)
    table.upsert(rows([2], 300))
    assert numbers(table) == {"k0": 2, "k1": 200, "k2": 300, "k3": 1, "k4": 1, "k5": 1, "k7": 101}
    _all_agree(table, make.root, spark)


@pytest.mark.spark
def test_hudis_own_compaction_of_our_table(make: Maker, spark: HudiSpark) -> None:
    table = make.create()
    table.append(rows(range(6), 1))
    table.maintenance.compact()
    table.upsert(rows([0, 1], 2))
    table.delete(keys=keys(2))
    expected = numbers(table)
    settings = ["datasource.write.recordkey.field=id", "metadata.enable=false", "compact.inline.max.delta.commits=1"]
    options = ",".join(f"hoodie.{setting}" for setting in settings)
    done = spark.sql(f"call run_compaction(op => 'scheduleAndExecute', path => '{make.root}', options => '{options}')")
    assert done
    look_for_hudi(table)
    assert numbers(table) == expected
    assert set(table.inspect.files()["kind"].to_pylist()) == {"base"}
    _all_agree(table, make.root, spark)
    table.upsert(rows([3], 3))
    table.delete(keys=keys(4))
    table.maintenance.compact()
    assert numbers(table) == {"k0": 2, "k1": 2, "k3": 3, "k5": 1}
    _all_agree(table, make.root, spark)


@pytest.mark.spark
@pytest.mark.parametrize("shape", [digits_over_a_base, scales_over_a_base, integers_over_a_base])
def test_hudis_own_compaction_of_a_widened_table(
    make: Maker, spark: HudiSpark, shape: Callable[[Maker], Table]
) -> None:
    table = shape(make)
    before = table.to_arrow().sort_by("id")
    settings = ["datasource.write.recordkey.field=id", "metadata.enable=false", "compact.inline.max.delta.commits=1"]
    options = ",".join(f"hoodie.{setting}" for setting in settings)
    assert spark.sql(f"call run_compaction(op => 'scheduleAndExecute', path => '{make.root}', options => '{options}')")
    look_for_hudi(table)
    assert set(table.inspect.files()["kind"].to_pylist()) == {"base"}
    assert table.to_arrow().sort_by("id") == before
    _all_agree(table, make.root, spark)


@pytest.mark.spark
def test_a_metadata_table_of_hudis_and_the_way_out(make: Maker, spark: HudiSpark) -> None:
    table = make.create()
    table.append(rows(range(3), 1))
    spark.sql("set hoodie.metadata.enable=true")
    spark.sql(f"create table with_metadata using hudi location '{make.root}'")
    spark.sql("update with_metadata set n = 100 where id = 'k1'")
    spark.sql("set hoodie.metadata.enable=false")
    look_for_hudi(table)
    assert numbers(table) == {"k0": 1, "k1": 100, "k2": 1}
    with pytest.raises(InvalidInputError, match="delete_metadata_table"):
        table.upsert(rows([1], 2))
    spark.sql("call delete_metadata_table(table => 'with_metadata')")
    table.upsert(rows([1], 2))
    assert numbers(table) == {"k0": 1, "k1": 2, "k2": 1}
    _all_agree(table, make.root, spark)


@pytest.mark.spark
def test_the_data_source_writes_while_the_table_declares_commit_time_ordering(
    make: Maker, spark: HudiSpark, tmp_path: Path
) -> None:
    table = make.create()
    table.append(rows(range(6), 1))
    table.maintenance.compact()
    said(make.root, {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.table.ordering.fields": None})
    pq.write_table(rows([1, 60], 77), tmp_path / "batch.parquet")
    spark.ask(upsert=str(make.root), rows=str(tmp_path / "batch.parquet"), options=data_source("t"))
    _all_agree(Table(make.root), make.root, spark)
    own = {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.table.ordering.fields": "_hoodie_commit_time"}
    said(make.root, own)
    table = Table(make.root)
    table.upsert(rows([2], 9))
    table.delete(keys=keys(60))
    assert numbers(table) == {"k0": 1, "k1": 77, "k2": 9, "k3": 1, "k4": 1, "k5": 1}
    _all_agree(table, make.root, spark)
