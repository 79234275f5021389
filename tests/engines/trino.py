"""Trino reads mirrors: Iceberg by name in the REST and the Hive catalog, Delta by the address of its folder."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from tests.engines.catalogs import address
from tests.engines.engine import DELTA, ICEBERG, Engine, Mirrored, Read, query
from tests.engines.judging import milliseconds


@cache
def connection() -> Any:
    from trino.dbapi import connect

    at = urlsplit(address("trino"))
    return connect(host=at.hostname, port=at.port, user="tests", timezone="UTC")


def run(statement: str) -> tuple[list[str], list[Any]]:
    """The names of the columns, and the rows."""
    cursor = connection().cursor()
    cursor.execute(statement)
    found = cursor.fetchall()
    return [column[0] for column in cursor.description or ()], found


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Trino's client as pyarrow takes it: its rows are tuples, its maps dictionaries."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {part.name: plain(item, part.type) for part, item in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [(plain(key, kind.key_type), plain(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    return value


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column; only nested ones need the type of the scan, since Trino's client gives Python objects."""
    return pa.array([plain(value, kind) for value in values], kind if pa.types.is_nested(kind) else None)


def read(source: str, mirrored: Mirrored, where: str | None) -> pa.Table:
    """The rows, with the scan's capitals in names: Trino shows all names in lower case."""
    names, found = run(query(source, where))
    schema = {field.name.lower(): field for field in mirrored.expected(filtered=False).schema}
    columns = {
        schema[name].name if name in schema else name: column(
            [row[place] for row in found], schema[name].type if name in schema else pa.null()
        )
        for place, name in enumerate(names)
    }
    return pa.table(columns)


def by_name(catalog: str) -> Read:
    return lambda mirrored, where: read(f"{catalog}.{mirrored.entry}", mirrored, where)


@cache
def registered(folder: str) -> str:
    """The name of a Delta table, which Trino gets with the first read."""
    name = "t" + "".join(letter if letter.isalnum() else "_" for letter in folder)
    run("create schema if not exists delta.shapes")
    run(f"call delta.system.register_table('shapes', '{name}', 'file://{folder}')")
    return f'delta.shapes."{name.lower()}"'


def delta(mirrored: Mirrored, where: str | None) -> pa.Table:
    return read(registered(str(mirrored.root)), mirrored, where)


TRINO = (
    Engine("trino-rest", ICEBERG, "trino", by_name("rest")),
    Engine("trino-hive", ICEBERG, "trino", by_name("hive")),
    Engine("trino-delta", DELTA, "trino", delta, change=milliseconds),
)
