"""Iceberg catalogs show a table's rows by name, and neither they nor their users lose them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crdt_mor import Table
from crdt_mor.errors import InvalidInputError
from crdt_mor.readers.catalogs import open_table, register
from tests.mirror.shapes import SCHEMA, in_order, rows, scanned, written_over

pytestmark = pytest.mark.slow
NAME = "lake.events"


def sql(folder: Path) -> Any:
    pytest.importorskip("sqlalchemy", reason="pip install 'pyiceberg[sql-sqlite]'")
    from pyiceberg.catalog import load_catalog

    return load_catalog("tests", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def glue(folder: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    keys = {"glue.access-key-id": "x", "glue.secret-access-key": "x", "glue.region": "us-east-1"}
    return load_catalog("tests", type="glue", warehouse=f"file://{folder}", **keys)


@pytest.fixture(params=[sql, glue])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    moto = pytest.importorskip("moto")
    with moto.mock_aws():
        made = request.param(tmp_path)
        made.create_namespace("lake", {})
        yield made


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return written_over(Table.create(str(tmp_path / "table"), SCHEMA, key="id", buckets=2))


def shown(catalog: Any) -> list[str]:
    return in_order(catalog.load_table(NAME).scan().to_arrow().to_pylist())


def test_register_again_after_commits_shows_the_rows_of_the_scan(catalog: Any, table: Table) -> None:
    assert register(table, catalog, NAME).action == "registered"
    assert register(table, catalog, NAME).action == "unchanged"
    for turn in range(3):
        table.upsert(rows([turn], 7 + turn))
        table.mirror("iceberg")  # the entry lags by more than one snapshot
        table.delete(keys=[turn + 10])
        done = register(table, catalog, NAME)
        assert (done.action, done.version) == ("moved", table.version)
        assert shown(catalog) == scanned(table)
    assert catalog.load_table(NAME).properties["gc.enabled"] == "false"
    assert scanned(open_table(catalog, NAME)) == scanned(table)


def test_register_after_a_write_and_a_property_of_another_engine_restores_both(catalog: Any, table: Table) -> None:
    register(table, catalog, NAME)
    entry = catalog.load_table(NAME)
    with entry.transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    with pytest.warns(UserWarning, match="copy-on-write"):
        entry.delete("id < 100000")
    assert shown(catalog) != scanned(table)
    table.upsert(rows([5], 9))

    assert register(table, catalog, NAME).action == "moved"

    assert shown(catalog) == scanned(table)
    assert catalog.load_table(NAME).properties["gc.enabled"] == "false"


def test_register_under_the_name_of_another_table_is_refused(catalog: Any, table: Table, tmp_path: Path) -> None:
    other = written_over(Table.create(str(tmp_path / "other"), SCHEMA, key="id", buckets=2))
    register(other, catalog, NAME)
    with pytest.raises(InvalidInputError, match=r"another table.*lake\.events"):
        register(table, catalog, NAME)
    assert open_table(catalog, NAME).uri.endswith("/other")


def test_drop_through_a_catalog_keeps_all_rows(catalog: Any, table: Table) -> None:
    before = scanned(table)
    register(table, catalog, NAME)
    catalog.drop_table(NAME)
    assert scanned(Table(table.uri)) == before
    assert register(table, catalog, NAME).action == "registered"
    assert shown(catalog) == before


def test_three_registrations_at_once_leave_one_line_of_snapshots(table: Table, tmp_path: Path) -> None:
    sql(tmp_path).create_namespace("lake", {})
    with ThreadPoolExecutor(3) as pool:
        for turn in range(3):
            table.upsert(rows([turn], 7 + turn))
            list(pool.map(lambda _: register(Table(table.uri), sql(tmp_path), NAME), range(3)))
            assert shown(sql(tmp_path)) == scanned(table)
    snapshots = sql(tmp_path).load_table(NAME).metadata.snapshots
    parents = [one.parent_snapshot_id for one in snapshots[1:]]
    assert parents == [one.snapshot_id for one in snapshots[:-1]]
