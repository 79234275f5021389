"""Iceberg mirrors made without the public doors, and their rows as other engines read them."""

from __future__ import annotations

import warnings
from typing import Any

import polars as pl
import pytest

from crdt_mor import Table
from crdt_mor.log.steps import Steps, run
from crdt_mor.mirror.iceberg import Deletes, Iceberg
from crdt_mor.mirror.iceberg_read import read_head
from crdt_mor.mirror.iceberg_types import Json
from crdt_mor.mirror.refresh import Refreshed
from crdt_mor.services.mirror import refreshing
from crdt_mor.store.open import address_of
from tests.mirror.shapes import in_order, snapshot_of

WAYS: tuple[Deletes, ...] = ("positions", "vectors")


def root_of(table: Table) -> str:
    return address_of(table._session.store, table.uri)


def steps_of(table: Table, deletes: Deletes | None = None) -> Steps[Refreshed]:
    seen = snapshot_of(table)
    return refreshing(seen, Iceberg.of(seen.session, seen.value, deletes))


def mirrored(table: Table, deletes: Deletes | None = None) -> Refreshed:
    return run(steps_of(table, deletes), table._session.store, table._session.environment)


def metadata_of(table: Table) -> Json:
    """The newest metadata."""
    found = run(read_head(root_of(table)), table._session.store, table._session.environment)
    assert found is not None
    state, _ = found
    assert state.metadata is not None
    return state.metadata


def metadata_uri(table: Table, number: int | None = None) -> str:
    own = metadata_of(table)["properties"]["crdt_mor.number"] if number is None else number
    return f"{root_of(table)}/metadata/v{own}.metadata.json"


def require_pyiceberg() -> None:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not in this environment")


def by_pyiceberg(table: Table, snapshot_id: int | None = None, row_filter: str | None = None) -> list[str]:
    require_pyiceberg()
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table import StaticTable

    opened = StaticTable.from_metadata(metadata_uri(table))
    return in_order(opened.scan(row_filter or AlwaysTrue(), snapshot_id=snapshot_id).to_arrow().to_pylist())


def by_polars(table: Table) -> list[str]:
    require_pyiceberg()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an optional planner is missing
        return in_order(pl.scan_iceberg(metadata_uri(table)).collect().to_arrow().to_pylist())


def by_duckdb(table: Table) -> list[str]:
    """Read by the table's address alone, with the hint. Skips without DuckDB's extension."""
    extensions = pytest.importorskip(
        "duckdb_extensions", reason="DuckDB's extension iceberg is not in this environment"
    )
    import duckdb

    connection: Any = duckdb.connect()
    for name in ("avro", "iceberg"):
        extensions.import_extension(name, con=connection)
        connection.load_extension(name)
    connection.sql("set timezone = 'UTC'")
    return in_order(connection.sql(f"from iceberg_scan('{table.uri}')").to_arrow_table().to_pylist())
