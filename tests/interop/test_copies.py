"""A copy that has moved on with its table is read by hudi-rs and by Hudi's own Spark reader as the table is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from crdt_mor import Table
from tests.interop.readers import HudiSpark, hudi_rs, ours
from tests.interop.shapes import Maker, rows


def moved_copy(make: Maker) -> tuple[Table, Path]:
    """A table that was compacted, cleaned and written beside a pending write, and its copy, made and moved on twice."""
    copy = make.root.parent / "copy"
    table = make.create()
    for n in range(3):
        table.upsert(rows(range(5), n))
    table.copy(copy)
    table.maintenance.compact()
    table.upsert(rows([7], 1))
    pending = make.begin(table)
    pending.upsert(rows([8], 1))
    table.copy(copy, update=True)
    make.end(pending)
    table.delete(rows([0], 0).select(["id"]))
    table.maintenance.compact()
    table.maintenance.clean(keep=timedelta(0))
    table.upsert(rows([1], 9))
    table.copy(copy, update=True)
    return table, copy


def test_a_copy_in_hudi_rs(make: Maker) -> None:
    table, copy = moved_copy(make)
    assert hudi_rs(copy) == ours(table) == ours(Table(copy))


@pytest.mark.spark
def test_a_copy_in_hudis_spark_reader(make: Maker, spark: HudiSpark) -> None:
    table, copy = moved_copy(make)
    assert spark.read(copy) == ours(table) == ours(Table(copy))
