"""Events of replication slots for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = {
    "id": "bigint",
    "name": "text",
    "note": "text",
    "price": "numeric(10,2)",
    "at": "timestamp with time zone",
    "tags": "text[]",
    "raw": "bytea",
    "more": "integer",
}


def columns(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": TYPES[name], "value": value} for name, value in values.items()]


def insert(**values: Any) -> dict[str, Any]:
    return {"action": "I", "schema": "public", "table": "orders", "columns": columns(values)}


def update(identity: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    return insert(**values) | {"action": "U", "identity": columns(identity)}


def delete(**identity: Any) -> dict[str, Any]:
    return {"action": "D", "schema": "public", "table": "orders", "identity": columns(identity)}


TRUNCATE = {"action": "T", "schema": "public", "table": "orders"}


def begin(lsn: int) -> dict[str, Any]:
    return {"action": "B", "xid": lsn, "lsn": f"0/{lsn - 1:X}", "nextlsn": f"0/{lsn:X}"}


def commit(lsn: int) -> dict[str, Any]:
    return begin(lsn) | {"action": "C"}


def transaction(lsn: int, *events: dict[str, Any]) -> list[dict[str, Any]]:
    return [begin(lsn), *events, commit(lsn)]
