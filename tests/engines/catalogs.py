"""Catalogs that the servers of `servers.py` keep, and engines that read tables by name in them.

python -m tests.engines.catalogs CATALOG FOLDER     # registers the mirrors of every shape as `<set>.<shape>`
"""

from __future__ import annotations

import json
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

    kind = "hive" if server == "hive" else "rest"
    return load_catalog(server, type=kind, uri=address(server), **(of_bucket() if server == "nessie" else {}))


def options(server: str) -> dict[str, str]:
    """The `storage_options` of tables in a catalog: Nessie takes only tables in buckets."""
    given: dict[str, str] = json.loads(os.environ["ENGINES_S3"]) if server == "nessie" else {}
    return given


def of_bucket() -> dict[str, str]:
    """The same options under pyiceberg's names."""
    given = options("nessie")
    return {
        "s3.endpoint": given["aws_endpoint_url"],
        "s3.region": given["aws_region"],
        "s3.access-key-id": given["aws_access_key_id"],
        "s3.secret-access-key": given["aws_secret_access_key"],
    }


def place(server: str, folder: Path, name: str) -> str:
    """An address for a table of a check."""
    return f"s3://lake/{name}/table" if server == "nessie" else str(folder / name / "table")


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
    Engine("pyiceberg-rest", ICEBERG, "pyiceberg", by_pyiceberg("rest")),
    Engine("pyiceberg-hive", ICEBERG, "pyiceberg", by_pyiceberg("hive")),
    Engine("duckdb-rest", ICEBERG, "duckdb", duckdb_rest),
)


def main(server: str, folder: str) -> None:
    from crdt_mor import Table

    for mirror in ICEBERG:
        for mirrored in built(Path(folder).absolute(), mirror):
            Table(str(mirrored.root)).maintenance.register(catalog(server), mirrored.entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
