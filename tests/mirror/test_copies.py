"""A copy of a mirrored table has mirrors at its own address."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from crdt_mor import Table
from tests.mirror.delta_reading import by_delta_rs
from tests.mirror.iceberg_reading import by_pyiceberg, metadata_of
from tests.mirror.shapes import SCHEMA, rows, scanned, written_over

READERS: dict[str, Callable[[Table], list[str]]] = {"delta": by_delta_rs, "iceberg": by_pyiceberg}
NOW = timedelta(0)


@pytest.mark.parametrize(
    ("format", "deletes"),
    [("delta", "rewrite"), ("delta", "vectors"), ("iceberg", "positions"), ("iceberg", "vectors")],
)
def test_copy_of_a_mirrored_table_has_a_mirror_of_its_moment(tmp_path: Path, format: Any, deletes: Any) -> None:
    """The mirror's head names a base file that a clean spared, and that the copy therefore lacks."""
    table = written_over(Table.create(str(tmp_path / "t"), SCHEMA, key="id", buckets=1))
    table.mirror(format, deletes=deletes)
    table.maintenance.compact()
    table.maintenance.clean(keep=NOW, readers=NOW)
    read = READERS[format]

    table.copy(tmp_path / "copy")

    copied = Table(str(tmp_path / "copy"))
    assert copied.mirror(format, deletes=deletes).objects == 0
    assert read(copied) == read(table) == scanned(copied)
    table.upsert(rows([5], 50))
    table.mirror(format)
    table.maintenance.erase(keys=[7])
    table.copy(tmp_path / "copy", update=True)
    assert copied.mirror(format).objects == 0
    assert read(copied) == read(table) == scanned(copied)
    assert Table(str(tmp_path / "copy")).verify(deep=True).findings == ()
    if format == "iceberg":
        ours, theirs = metadata_of(table), metadata_of(copied)
        assert (ours["table-uuid"], len(theirs["snapshots"])) == (theirs["table-uuid"], 1)


def test_copy_of_a_table_without_mirrors_has_none(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, key="id", buckets=1)
    table.upsert(rows([1], 1))
    table.copy(tmp_path / "copy")
    assert not {"_delta_log", "metadata", ".mirror"} & {path.name for path in (tmp_path / "copy").iterdir()}
