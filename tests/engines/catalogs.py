"""Catalogs that the servers of `servers.py` keep, and engines that read tables by name in them.

python -m tests.engines.catalogs CATALOG FOLDER     # registers the mirrors of every shape as `<set>.<shape>`
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.engines.engine import ICEBERG, Engine, Mirrored, Read, built, query
from tests.engines.light import duckdb_connection, table


def address(server: str) -> str:
    """Where a server listens: `__main__` starts it and says so."""
    return os.environ[f"ENGINES_{server.upper()}"]


@cache
def catalog(server: str) -> Any:
    """The catalog as pyiceberg opens it."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(server, type=server, uri=address(server))


def by_pyiceberg(server: str) -> Read:
    def read(mirrored: Mirrored, where: str | None) -> pa.Table:
        entry = catalog(server).load_table(mirrored.entry)
        return (entry.scan(row_filter=where) if where else entry.scan()).to_arrow()

    return read


@cache
def attached() -> Any:
    """DuckDB with the REST catalog attached as `rest`."""
    connection = duckdb_connection()
    connection.sql(f"attach '' as rest (type iceberg, endpoint '{address('rest')}', authorization_type 'none')")
    return connection


def duckdb_rest(mirrored: Mirrored, where: str | None) -> pa.Table:
    return table(attached().sql(query(f"rest.{mirrored.entry}", where)).arrow())


CATALOGS = (
    Engine("pyiceberg-rest", ICEBERG, "pyiceberg", by_pyiceberg("rest"), server="rest"),
    Engine("duckdb-rest", ICEBERG, "duckdb", duckdb_rest, server="rest"),
)


def main(server: str, folder: str) -> None:
    from crdt_mor import Table

    for mirror in ICEBERG:
        for mirrored in built(Path(folder).absolute(), mirror):
            Table(str(mirrored.root)).maintenance.register(catalog(server), mirrored.entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
