"""Iceberg mirrors read by pyiceberg, polars and DuckDB show the rows of a scan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.mirror.iceberg import Deletes
from crdt_mor.model.field_ids import ids_in_file
from tests.mirror.iceberg_reading import WAYS, by_duckdb, by_polars, by_pyiceberg, metadata_of, mirrored
from tests.mirror.shapes import RULES, SCHEMA, rows, scanned, written_over

FAST = [by_pyiceberg, by_polars]

Reader = Callable[[Table], list[str]]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("deletes", WAYS)
def test_mirror_of_unmerged_logs_equals_the_scan(tmp_path: Path, rule: str, deletes: Deletes) -> None:
    table = written_over(Table.create(str(tmp_path), SCHEMA, key="id", buckets=2, **RULES[rule]))

    mirrored(table, deletes)

    assert by_pyiceberg(table) == by_polars(table) == scanned(table)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("deletes", WAYS)
def test_mirror_of_unmerged_logs_in_duckdb_equals_the_scan(tmp_path: Path, rule: str, deletes: Deletes) -> None:
    table = written_over(Table.create(str(tmp_path), SCHEMA, key="id", buckets=2, **RULES[rule]))

    mirrored(table, deletes)

    assert by_duckdb(table) == scanned(table)


@pytest.mark.parametrize("read", FAST)
def test_mirror_of_an_empty_table_has_no_rows(tmp_path: Path, read: Reader) -> None:
    table = Table.create(str(tmp_path), SCHEMA, key="id")

    mirrored(table)

    assert read(table) == []


@pytest.mark.parametrize("deletes", WAYS)
def test_mirror_after_each_version_equals_the_scan(tmp_path: Path, deletes: Deletes) -> None:
    table = Table.create(str(tmp_path), SCHEMA, key="id", buckets=2)
    steps: list[Callable[[], Any]] = [
        lambda: table.upsert(rows(range(20), 1)),
        table.maintenance.compact,
        lambda: table.upsert(rows(range(3, 6), 2)),
        lambda: table.delete(keys=[4, 11]),
        lambda: table.upsert(rows([4], 3)),
        table.maintenance.compact,
        lambda: table.delete(keys=list(range(20))),
        table.maintenance.compact,
        lambda: table.upsert(rows([7, 8], 4)),
    ]

    for step in steps:
        step()
        mirrored(table, deletes)
        assert by_pyiceberg(table) == by_polars(table) == scanned(table)


def test_mirror_of_the_shown_version_again_puts_nothing(tmp_path: Path) -> None:
    table = written_over(Table.create(str(tmp_path), SCHEMA, key="id", buckets=2))
    first = mirrored(table)

    again = mirrored(table)

    assert (again.number, again.version, again.puts) == (first.number, first.version, ())


def test_mirror_states_the_table_and_protects_its_files(tmp_path: Path) -> None:
    table = written_over(Table.create(str(tmp_path), SCHEMA, key="id", buckets=2))
    done = mirrored(table)

    found = metadata_of(table)

    assert (
        found["properties"]
        | {
            "gc.enabled": "false",
            "write.metadata.delete-after-commit.enabled": "false",
            "crdt_mor.version": str(done.version),
            "crdt_mor.as_of": done.as_of,
        }
        == found["properties"]
    )
    summary = found["snapshots"][-1]["summary"]
    assert (summary["crdt_mor.version"], summary["crdt_mor.as_of"]) == (str(done.version), done.as_of)
    visible = int(summary["total-records"]) - int(summary["total-position-deletes"])
    assert visible == len(scanned(table))


def test_ids_in_base_files_are_those_of_the_mapping_and_below_the_last_column_id(tmp_path: Path) -> None:
    table = written_over(Table.create(str(tmp_path), SCHEMA, key="id", buckets=2))
    mirrored(table)

    found = metadata_of(table)

    mapping = json.loads(found["properties"]["schema.name-mapping.default"])
    named = {entry["names"][0]: entry["field-id"] for entry in mapping}
    for file in tmp_path.glob("*.parquet"):
        in_file = {path[0]: id_ for path, id_ in ids_in_file(pq.read_schema(file)).items() if len(path) == 1}
        assert in_file == {name: named[name] for name in in_file}
        assert max(in_file.values()) <= found["last-column-id"]  # else ClickHouse refuses the file
