"""Hudi's readers, `verify` and copies do not mind the files of mirrors."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from tests.mirror.delta_reading import by_delta_rs
from tests.mirror.shapes import rows, scanned

HUDI_TABLES = Path(__file__).parent / "hudi_tables"

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string()), ("region", pa.string())])


def placed(ids: list[int], n: int) -> pa.Table:
    regions = pa.array(["eu" if key % 2 else "ü p+1" for key in ids])
    return rows(ids, n).append_column("region", regions)


@pytest.mark.parametrize("partition_by", ["region", ()])
def test_hudi_rs_reads_a_table_with_mirrors(tmp_path: Path, partition_by: str | tuple[str, ...]) -> None:
    """hudi-rs lists hidden folders, too, and fails on names of another form than its own."""
    hudi = pytest.importorskip("hudi")
    table = Table.create(str(tmp_path / "table"), SCHEMA, key=["id", "region"], partition_by=partition_by, buckets=2)
    table.upsert(placed(list(range(20)), 1))
    table.maintenance.compact()
    for n in range(2, 5):
        table.upsert(placed([1, 2, 30], n))
        table.delete(placed([n], 1).select(["id", "region"]))
        table.mirror("delta", deletes="rewrite" if n == 3 else "vectors")
        table.mirror("iceberg", deletes="positions" if n == 2 else "vectors")
        batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(hudi.HudiReadOptions())
        assert sorted(pa.Table.from_batches(batches)["id"].to_pylist()) == sorted(table.to_arrow()["id"].to_pylist())
    assert table.verify(deep=True).is_sound


@pytest.mark.parametrize("name", ["v8_trips", "v9_complex", "v9_nonpart", "v9_simple"])
def test_mirror_of_a_table_made_by_hudi_equals_the_scan(tmp_path: Path, name: str) -> None:
    with tarfile.open(HUDI_TABLES / f"{name}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    table = Table(str(tmp_path / name))
    assert table.mirror("delta").version == 0
    assert by_delta_rs(table) == scanned(table) != []
    assert table.mirror("delta").objects == 0


def test_table_that_hudi_owns_is_mirrored(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, key="id", buckets=1)
    table.upsert(placed([1, 2], 1))
    table.maintenance.handover()
    table.mirror("delta")
    assert by_delta_rs(table) == scanned(table)
