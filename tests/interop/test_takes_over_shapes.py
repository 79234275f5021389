"""Shapes of tables that Hudi made and that we go on with, as `docs/design/engines.md` lists them.

Of each Hudi's writer makes a table. What is refused is refused by name, and its way out works; then we write each row
again, compact, and Hudi writes some of them again: all readers show each row once, with the last value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from tests.inside import look_for_hudi
from tests.interop.made_by_hudi import COUNT, hudi_makes, said
from tests.interop.readers import HudiSpark, hudi_rs, ours
from tests.tiers import long

PAGE = (Path(__file__).parents[2] / "docs" / "design" / "engines.md").read_text()
HASHED = "hoodie.bucket.index.hash.field"
ZONE = "hoodie.table.timeline.timezone"
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
VERSION_8 = {"hoodie.write.table.version": "8", "hoodie.write.auto.upgrade": "false"}
PARTED = {"hoodie.datasource.write.partitionpath.field": "p"}

ROWS = pa.table({
    "id": [f"k{i}" for i in range(12)],
    "short": pa.array(range(-6, 6), pa.int32()),
    "long": pa.array([i * 10**12 for i in range(12)], pa.int64()),
    "day": [dt.date(1999, 12, 1) + dt.timedelta(40 * i) for i in range(12)],
    "price": pa.array([Decimal(i) / 4 for i in range(12)], pa.decimal128(10, 2)),
    "flag": [i % 2 == 0 for i in range(12)],
    "p": ["x", "y"] * 6,
    "n": [1] * 12,
})  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """A table of Hudi's, and what becomes of it.

    refused: what the error says, before the way out. archived: Hudi archives some of its instants.
    """

    title: str
    key: str = "id"
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    way_out: Callable[[Path], object] | None = None
    archived: bool = False

    @property
    def verdict(self) -> str:
        """The words of the page."""
        if not self.refused:
            return "written"
        return "refused, then written" if self.way_out else "refused, read"


def drop_metadata_table(root: Path) -> None:
    Table(root).maintenance.drop_metadata_table()


COMPOSITE = Taken(
    "keys of a string, an int, a long, a date, a decimal and a bool together", "id,short,long,day,price,flag"
)
ARCHIVED = Taken("an archived timeline", archived=True)
SHAPES = [
    COMPOSITE,
    *(Taken(f"a key of the type {kind}", name) for kind, name in (
        ("int", "short"), ("long", "long"), ("date", "day"), ("decimal", "price"), ("string", "id"),
    )),
    Taken("partitions by a string", options=PARTED),
    Taken("partitions by a string, hive style", options={**PARTED, HIVE_STYLE: "true"}),
    Taken("partitions by a date", options={"hoodie.datasource.write.partitionpath.field": "day"}),
    Taken("partitions by an int", options={"hoodie.datasource.write.partitionpath.field": "short"}),
    Taken("one bucket", options={COUNT: "1"}),
    Taken("seven buckets", options={COUNT: "7"}),
    Taken(
        "another number of buckets than the properties say", properties={COUNT: "3"},
        refused=f"{COUNT}=4", way_out=lambda root: said(root, {COUNT: "4"}),
    ),
    Taken(
        "a hash field that is a part of the key, named by nobody", "id,short", {HASHED: "short"},
        refused=f"{COUNT}=4 {HASHED}=short", way_out=lambda root: said(root, {HASHED: "short"}),
    ),
    Taken(
        "numbers of buckets of single partitions",
        options={**PARTED, "hoodie.bucket.index.partition.expressions": "x,7"}, refused="no single number of buckets",
    ),
    Taken(
        "a timeline in the zone of Hudi's Java", properties={ZONE: "LOCAL"},
        refused=f"set {ZONE}=UTC", way_out=lambda root: said(root, {ZONE: "UTC"}),
    ),
    Taken(
        "a metadata table", options={"hoodie.metadata.enable": "true"},
        refused="drop_metadata_table", way_out=drop_metadata_table,
    ),
    ARCHIVED,
    Taken("version 8", options=VERSION_8, refused="upgrade"),
    Taken(
        "copy on write",
        options={"hoodie.datasource.write.table.type": "COPY_ON_WRITE", "hoodie.table.type": "COPY_ON_WRITE",
                 "hoodie.write.concurrency.mode": "SINGLE_WRITER"},
        refused="only merge-on-read tables",
    ),
]  # fmt: skip
IN_CI = (COMPOSITE, ARCHIVED)


def test_the_page_lists_these_shapes() -> None:
    lines = PAGE.split("<!-- taken over -->")[1].strip().splitlines()[2:]
    assert lines == [f"| {shape.title} | {shape.verdict} |" for shape in SHAPES]


@pytest.mark.spark
@pytest.mark.parametrize(
    "shape", [shape if shape in IN_CI else long(shape) for shape in SHAPES], ids=lambda shape: shape.title
)
def test_a_table_of_hudis_is_gone_on_with(spark: HudiSpark, tmp_path: Path, shape: Taken) -> None:
    root = tmp_path / "taken"
    hudi_makes(spark, root, ROWS, shape.key, **shape.options)
    if shape.archived:
        for _ in range(4):
            hudi_makes(spark, root, ROWS, shape.key, **shape.options)
        counts = "min_commits => 2, max_commits => 3, retain_commits => 1"
        spark.sql(f"call archive_commits(path => '{root}', {counts}, enable_metadata => false)")
        assert list((root / ".hoodie/timeline/history").glob("*.parquet"))
    said(root, shape.properties)
    assert ours(Table(root)) == spark.read(root)
    if shape.refused:
        with pytest.raises((InvalidInputError, UnsupportedFeatureError), match=shape.refused):
            Table(root).upsert(ROWS)
        assert ours(Table(root)) == spark.read(root)
        if shape.way_out is None:
            return
        shape.way_out(root)
    _goes_on(root, shape, spark)


def _goes_on(root: Path, shape: Taken, spark: HudiSpark) -> None:
    def shown() -> list[int]:
        found = ours(Table(root))
        assert found == spark.read(root) == hudi_rs(root)
        return sorted(int(str(row["n"])) for row in found.values())

    table = Table(root)
    table.upsert(_of(ROWS, 2))
    assert shown() == [2] * 12
    table.maintenance.compact()
    hudi_makes(spark, root, _of(ROWS.slice(0, 5), 3), shape.key, **{**shape.options, "hoodie.metadata.enable": "false"})
    said(root, {ZONE: "UTC", **({HASHED: shape.options[HASHED]} if HASHED in shape.options else {})})
    look_for_hudi(table)
    assert shown() == [2] * 7 + [3] * 5
    table.upsert(_of(ROWS.slice(4, 2), 4))
    assert shown() == [2] * 6 + [3] * 4 + [4] * 2


def _of(rows: pa.Table, n: int) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("n"), "n", pa.array([n] * rows.num_rows))
