"""Tables of version 6 that Hudi's Spark writes here and now: our rows are those of both of Hudi's own readers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.format.log import BlockKind, read_blocks
from crdt_mor.model.config_properties import checksum
from crdt_mor.store import LocalStore
from tests.interop.readers import HudiSpark, hudi_rs
from tests.interop.written_by_hudi import ARCHIVING, Written, exactly, rows
from tests.table.version_six import VersionSix
from tests.table.version_six_histories import History
from tests.tiers import slow

pytestmark = pytest.mark.spark


class WrittenAsSix(Written):
    """A table of version 6, which is compared after each write."""

    def __init__(self, spark: HudiSpark, root: Path, **options: str) -> None:
        super().__init__(spark, root, write__table__version="6", write__auto__upgrade="false", **options)
        self.rust_sees_all = True

    def look(self) -> None:
        """Compare what all readers see now."""
        table = Table(self.root)
        seen = self.spark.read(self.root)
        assert exactly(table) == seen
        assert table.scan().count() == len(seen)
        if self.rust_sees_all:
            assert hudi_rs(self.root) == seen
        commits = [path.name.partition(".")[0] for path in (self.root / ".hoodie").glob("*commit")]
        self.seen |= {max(commits): seen} if commits else {}

    def upgrade(self, data: pa.Table) -> None:
        """Hudi upgrades the table before it writes; all readers still see each moment before that, if it was kept."""
        del self.options["hoodie.write.table.version"]
        self.write(data, write__auto__upgrade="true")
        table = Table(self.root)
        completed = {row["requested_at"]: row["completed_at"] for row in table.history().to_pylist()}
        for instant, seen in self.seen.items():
            assert exactly(table, completed[instant]) == seen
            assert self.spark.read(self.root, {"as.of.instant": instant}) == seen

    def crash(self, data: pa.Table, **options: str) -> None:
        """A write that dies before it is completed. The next one rolls it back, by a list of its files."""
        self.write(data, **options)
        completed = max((self.root / ".hoodie").glob("*commit"))
        completed.unlink()
        completed.with_name(f".{completed.name}.crc").unlink()
        del self.seen[completed.name.partition(".")[0]]
        self.look()

    def commands(self) -> int:
        """How many commands are in logs."""
        logs = [path for path in self.root.rglob(".*.log.*") if path.suffix != ".crc"]
        blocks = [block for log in logs for block in read_blocks(log.read_bytes(), str(log))]
        return sum(block.kind is BlockKind.COMMAND for block in blocks)


def test_a_merge_on_read_table_with_a_rollback_and_a_pending_compaction(spark: HudiSpark, tmp_path: Path) -> None:
    table = WrittenAsSix(
        spark, tmp_path / "six_mor", datasource__write__table__type="MERGE_ON_READ", compact__inline="false",
        datasource__write__precombine__field="ts", index__type="BUCKET", bucket__index__num__buckets="2",
        compact__inline__max__delta__commits="1", rollback__using__markers="false",
    )  # fmt: skip
    table.write(rows(list(range(6)), 5, "a"), "insert")
    table.write(rows([2, 6], 3, "late"))
    table.crash(rows([0, 1, 2, 3], 20, "gone"))
    table.write(rows([4], 6, "x"), "delete", compact__schedule__inline="true")
    assert table.commands()
    table.rust_sees_all = False  # hudi-rs leaves out what was logged since a compaction was scheduled
    table.write(rows([2, 3, 9], 10, "behind"))
    table.rust_sees_all = True
    table.write(rows([5], 11, "c"), compact__inline="true")
    table.upgrade(rows([2], 12, "up"))


def test_a_copy_on_write_table_with_replaced_partitions_and_an_archive(spark: HudiSpark, tmp_path: Path) -> None:
    table = WrittenAsSix(
        spark, tmp_path / "six_cow", datasource__write__table__type="COPY_ON_WRITE", rollback__using__markers="false",
        datasource__write__partitionpath__field="p", datasource__write__precombine__field="ts", **ARCHIVING,
    )  # fmt: skip
    table.write(rows(list(range(6)), 1, "a"), "insert")
    table.crash(rows([0, 10], 2, "gone"))
    table.write(rows([2, 4], 3, "ow"), "insert_overwrite")
    table.write(rows([1], 4, "x"), "delete_partition", datasource__write__partitions__to__delete="p=p1")
    for n in range(5, 8):
        table.write(rows([n % 3, n], n, "c"))
    assert "ARCHIVED" in Table(table.root).history()["operation"].to_pylist()


@pytest.mark.parametrize("seed", [0, 3, 10, slow(19), slow(22), slow(23)])
def test_logs_that_commits_share_and_rollbacks_in_other_logs(spark: HudiSpark, tmp_path: Path, seed: int) -> None:
    """Hudi before release 1.0 wrote so, on file systems that can append."""
    history = History(Random(seed), VersionSix(LocalStore(tmp_path), hoodie__table__checksum=checksum(None, "six")))
    (tmp_path / ".hoodie_partition_metadata").write_text("commitTime=20240101000000010\npartitionDepth=0\n")
    for _ in range(12):
        history.step()
    assert history.table.rows() == history.expected
    assert {key: row["v"] for (_, key), row in spark.read(tmp_path).items()} == history.expected
    if not history.plans:
        assert {key: row["v"] for (_, key), row in hudi_rs(tmp_path).items()} == history.expected
