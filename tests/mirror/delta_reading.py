"""Delta mirrors made without the public doors, and their rows as other engines read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.log.steps import Steps, run
from crdt_mor.mirror.delta import Delta
from crdt_mor.mirror.delta_log import LogState, read_state
from crdt_mor.mirror.refresh import Refreshed
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.mirror import refreshing
from tests.mirror.shapes import in_order, snapshot_of

VECTORS, REWRITE = Delta("vectors"), Delta("rewrite")

Reader = Callable[[Table], list[str]]


def steps_of(table: Table, kind: Delta = VECTORS, snapshot: Snapshot | None = None) -> Steps[Refreshed]:
    return refreshing(snapshot_of(table) if snapshot is None else snapshot, kind)


def mirrored(table: Table, kind: Delta = VECTORS) -> Refreshed:
    return run(steps_of(table, kind), table._session.store, table._session.environment)


def state_of(table: Table) -> LogState:
    found = run(read_state(), table._session.store, table._session.environment)
    assert found is not None
    return found


def by_delta_rs(table: Table, version: int | None = None) -> list[str]:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    opened = deltalake.DeltaTable(table.uri, version=version)
    found = deltalake.QueryBuilder().register("t", opened).execute("select * from t").read_all()
    return in_order(pa.table(found).to_pylist())


def by_polars(table: Table) -> list[str]:
    pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    return in_order(pl.scan_delta(table.uri).collect().to_arrow().to_pylist())


def by_pyarrow(table: Table) -> list[str]:
    """The reader of delta-rs that knows neither deletion vectors nor column mapping."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    return in_order(deltalake.DeltaTable(table.uri).to_pyarrow_table().to_pylist())


def by_duckdb(table: Table) -> list[str]:
    extensions = pytest.importorskip("duckdb_extensions", reason="DuckDB's extension delta is not in this environment")
    import duckdb

    connection: Any = duckdb.connect()
    extensions.import_extension("delta")
    connection.load_extension("delta")
    connection.sql("set timezone = 'UTC'")
    return in_order(connection.sql(f"from delta_scan('{table.uri}')").to_arrow_table().to_pylist())


def log_files(table: Table) -> list[str]:
    return sorted(path.name for path in Path(table.uri, "_delta_log").iterdir())


def foreign_commit(table: Table, *actions: Mapping[str, Any]) -> None:
    """A version by an engine that ignores the writer feature."""
    number = state_of(table).number + 1
    lines = [{"commitInfo": {"timestamp": 0, "operation": "DELETE"}}, *actions]
    path = Path(table.uri, "_delta_log", f"{number:020d}.json")
    path.write_text("\n".join(map(json.dumps, lines)))
