"""Each statement of Hudi's Spark writer between ours: all readers show the same, as `docs/interop.md` says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from crdt_mor import Table
from tests.interop.dying_turns import DyingTurns
from tests.interop.made_by_hudi import run_compaction
from tests.interop.readers import HudiSpark, Refused, Rows, hudi_rs
from tests.interop.turn_tables import KINDS, SESSION
from tests.interop.turns import HUDIS, Turns
from tests.tiers import long

PAGE = (Path(__file__).parents[2] / "docs" / "interop.md").read_text()
COLUMNS = ("ours, partitions", "ours, ordering", "hudis, partitions")
"""The kinds of tables that the page has as columns."""


def said() -> dict[str, dict[str, str]]:
    """What the page says of each statement, by the kind of the table."""
    lines = PAGE.split("<!-- turns -->")[1].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name.strip("`"): dict(zip(COLUMNS, verdicts, strict=True)) for name, _, *verdicts in cells}


def test_the_page_lists_each_statement_of_hudis() -> None:
    assert [*said()] == [*HUDIS]


@pytest.mark.spark
@pytest.mark.parametrize("kind", [*map(long, COLUMNS[:2]), COLUMNS[2]])
def test_each_statement_of_hudis_between_ours(spark: HudiSpark, tmp_path: Path, kind: str) -> None:
    shown = Turns(spark, tmp_path / f"each_{[*KINDS].index(kind)}", 1, kind).run_each()
    assert shown == {name: verdicts[kind] for name, verdicts in said().items()}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_death_of_ours_before_each_turn_of_hudis(spark: HudiSpark, tmp_path: Path, kind: str) -> None:
    DyingTurns(spark, tmp_path / f"dying_{[*KINDS].index(kind)}", 1, kind).run(3)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("cleaned", [False, True], ids=["archived", "cleaned-before"])
def test_hudis_archiver_brings_deleted_rows_back_in_a_restored_table_of_its_own(
    spark: HudiSpark, tmp_path: Path, cleaned: bool
) -> None:
    """Why histories clean before: it says when Hudi has mended it."""
    name = f"own_{cleaned}".lower()
    root = tmp_path / name
    by_hudi(spark, root, "id string, n bigint", {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})
    spark.sql(f"insert into {name} select 'k1' as id, 2L as n union all select 'k5' as id, 2L as n")
    to = next((root / ".hoodie/timeline").glob("2*_*.deltacommit")).name[:17]
    spark.sql(f"call create_savepoint(table => '{name}', commit_time => '{to}')")
    spark.sql(f"insert into {name} select 'k7' as id, 3L as n")
    spark.sql(f"call rollback_to_savepoint(table => '{name}', instant_time => '{to}')")
    spark.sql(f"call delete_savepoint(table => '{name}', instant_time => '{to}')")
    spark.sql(f"update {name} set n = 9L where id = 'k1'")
    spark.sql(f"insert into {name} select 'k3' as id, 3L as n")
    spark.sql(f"delete from {name} where id = 'k1'")
    spark.sql(run_compaction(name))
    assert ids(spark.read(root)) == ids(hudi_rs(root)) == {"k3", "k5"}
    if cleaned:
        policy = "clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1"
        spark.sql(f"call run_clean(table => '{name}', {policy})")
    counts = "min_commits => 2, max_commits => 3, retain_commits => 1, enable_metadata => false"
    spark.sql(f"call archive_commits(table => '{name}', {counts})")
    assert ids(hudi_rs(root)) == {"k3", "k5"}
    assert ids(spark.read(root)) == {"k3", "k5"} | (set() if cleaned else {"k1"})


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("compacted", [False, True], ids=["parts", "compacted"])
def test_hudis_reader_fails_where_a_row_comes_back_above_parts_of_rows_in_a_table_of_its_own(
    spark: HudiSpark, tmp_path: Path, compacted: bool
) -> None:
    """Why histories compact after a `MERGE INTO` that updates some columns: it says when Hudi has mended it."""
    name = f"parts_{compacted}".lower()
    by_hudi(spark, tmp_path / name, "id string, n bigint, v string", {})
    spark.sql(f"insert into {name} select 'k0' as id, 1L as n, 'a' as v union all select 'k4' as id, 1L as n, 'a' as v")
    source = "(select 'k4' as id, 7L as n)"
    spark.sql(f"merge into {name} t using {source} s on t.id = s.id when matched then update set n = s.n")
    if compacted:
        spark.sql(run_compaction(name))
    spark.sql(f"delete from {name} where id = 'k0'")
    spark.sql(f"insert into {name} select 'k0' as id, 2L as n, 'b' as v")
    assert set(Table(tmp_path / name).scan().to_arrow()["id"].to_pylist()) == {"k0", "k4"}
    if compacted:
        assert ids(spark.read(tmp_path / name)) == {"k0", "k4"}
        return
    with pytest.raises(Refused, match="NullPointerException"):
        spark.read(tmp_path / name)
    Table(tmp_path / name).maintenance.compact()
    assert ids(spark.read(tmp_path / name)) == {"k0", "k4"}


def by_hudi(spark: HudiSpark, root: Path, columns: str, more: Mapping[str, str]) -> None:
    """Let Hudi create a table of its own, named as its folder, of one bucket. more: further properties."""
    properties = {
        "type": "mor", "primaryKey": "id", "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "1",
        "hoodie.metadata.enable": "false", "hoodie.table.timeline.timezone": "UTC", **more,
    }  # fmt: skip
    told = ", ".join(f"'{key}'='{text}'" for key, text in properties.items())
    for setting in SESSION:
        spark.sql(f"set {setting}")
    spark.sql(f"create table {root.name} ({columns}) using hudi tblproperties ({told}) location '{root}'")


def ids(rows: Rows) -> set[object]:
    return {row["id"] for row in rows.values()}
