"""A clean keeps the files that kept snapshots of mirrors need."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from crdt_mor import Table
from crdt_mor.model.instant import EPOCH
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.services.clean import Cleaner
from tests.mirror.shapes import SCHEMA, rows


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_clean_of_a_mirrored_table_keeps_the_base_files_of_the_mirror(
    tmp_path: Path, format: Literal["delta", "iceberg"]
) -> None:
    table = Table.create(str(tmp_path), SCHEMA, key="id", buckets=1)
    table.upsert(rows(range(6), 1))
    table.maintenance.compact()
    mirrored = {path.name for path in tmp_path.glob("*.parquet")}
    table.mirror(format)
    table.upsert(rows([1], 2))
    table.maintenance.compact()

    table.maintenance.clean(keep=timedelta(0), readers=timedelta(0))

    assert mirrored
    assert mirrored <= {path.name for path in tmp_path.glob("*.parquet")}


def test_clean_of_a_mirrored_table_whose_old_files_are_not_shown_drops_commits(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, key="id", buckets=1)
    for n in range(3):
        table.upsert(rows(range(6), n))
        table.maintenance.compact()
    table.mirror("delta")
    table.upsert(rows([1], 9))
    table.maintenance.compact()

    plan = Cleaner(table._session, RetentionPolicy(0)).due()

    assert plan is not None
    assert plan.deletion > EPOCH
