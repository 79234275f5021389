"""Engines that pip installs: a function of a mirrored shape and a condition returns the engine's rows."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.engines.engine import DELTA, ICEBERG, Engine, Mirrored, Read, query
from tests.engines.judging import bare


def table(rows: Any) -> pa.Table:
    """An engine's rows as a table of pyarrow's."""
    return rows if isinstance(rows, pa.Table) else pa.table(rows)


def pyiceberg(mirrored: Mirrored, where: str | None) -> pa.Table:
    from pyiceberg.table import StaticTable

    opened = StaticTable.from_metadata(str(mirrored.metadata))
    return (opened.scan(row_filter=where) if where else opened.scan()).to_arrow()


@cache
def duckdb_connection() -> Any:
    import duckdb

    connection = duckdb.connect()
    for name in ("httpfs", "avro", "iceberg", "delta"):
        spec = find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        (file,) = Path(spec.origin).parent.rglob(f"v{version('duckdb')}/*.duckdb_extension")
        connection.sql(f"load '{file}'")
    return connection


def duckdb_iceberg(mirrored: Mirrored, where: str | None) -> pa.Table:
    return table(duckdb_connection().sql(query(f"iceberg_scan('{mirrored.root}')", where)).arrow())


def duckdb_delta(mirrored: Mirrored, where: str | None) -> pa.Table:
    return table(duckdb_connection().sql(query(f"delta_scan('{mirrored.root}')", where)).arrow())


def polars_iceberg(mirrored: Mirrored, where: str | None) -> pa.Table:
    import polars as pl

    frame = pl.scan_iceberg(str(mirrored.metadata))
    return (frame.filter(pl.sql_expr(where)) if where else frame).collect().to_arrow()


def polars_delta(mirrored: Mirrored, where: str | None) -> pa.Table:
    import polars as pl

    frame = pl.scan_delta(str(mirrored.root))
    return (frame.filter(pl.sql_expr(where)) if where else frame).collect().to_arrow()


def delta_rs(mirrored: Mirrored, where: str | None) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    rows = QueryBuilder().register("t", DeltaTable(str(mirrored.root))).execute(query("t", where))
    return table(rows.read_all())


def delta_rs_pyarrow(mirrored: Mirrored, where: str | None) -> pa.Table:
    from deltalake import DeltaTable

    rows = DeltaTable(str(mirrored.root)).to_pyarrow_table()
    return filtered(rows, where) if where else rows


def filtered(rows: pa.Table, where: str) -> pa.Table:
    """Rows that DuckDB filters, for an engine whose filters are no SQL."""
    return table(duckdb_connection().sql(query("rows", where)).arrow())


def datafusion_delta(mirrored: Mirrored, where: str | None) -> pa.Table:
    from datafusion import SessionContext
    from deltalake import DeltaTable

    context = SessionContext()
    context.register_table("t", DeltaTable(str(mirrored.root)))
    return table(context.sql(query("t", where)).to_arrow_table())


def clickhouse(function: str) -> Read:
    def read(mirrored: Mirrored, where: str | None) -> pa.Table:
        import chdb

        settings = "settings session_timezone='UTC', output_format_arrow_string_as_string=0"
        answer = chdb.query(f"{query(f'{function}({str(mirrored.root)!r})', where)} {settings}", "Arrow")
        return pa.ipc.open_file(pa.BufferReader(answer.bytes())).read_all()

    return read


def daft_iceberg(mirrored: Mirrored, where: str | None) -> pa.Table:
    import daft
    from pyiceberg.table import StaticTable

    frame = daft.read_iceberg(StaticTable.from_metadata(str(mirrored.metadata)))
    return (frame.where(where) if where else frame).to_arrow()


def daft_delta(mirrored: Mirrored, where: str | None) -> pa.Table:
    import daft

    frame = daft.read_deltalake(str(mirrored.root))
    return (frame.where(where) if where else frame).to_arrow()


LIGHT = (
    Engine("pyiceberg", ICEBERG, "pyiceberg", pyiceberg),
    Engine("duckdb-iceberg", ICEBERG, "duckdb", duckdb_iceberg),
    Engine("duckdb-delta", DELTA, "duckdb", duckdb_delta),
    Engine("polars-iceberg", ICEBERG, "polars", polars_iceberg),
    Engine("polars-delta", DELTA, "polars", polars_delta),
    Engine("delta-rs", DELTA, "deltalake", delta_rs),
    Engine("delta-rs-pyarrow", DELTA, "deltalake", delta_rs_pyarrow),
    Engine("datafusion-delta", DELTA, "datafusion", datafusion_delta),
    Engine("clickhouse-iceberg", ICEBERG, "chdb-core", clickhouse("icebergLocal"), change=bare),
    Engine("clickhouse-delta", DELTA, "chdb-core", clickhouse("deltaLakeLocal"), change=bare),
    Engine("daft-iceberg", ICEBERG, "daft", daft_iceberg),
    Engine("daft-delta", DELTA, "daft", daft_delta),
)
