"""Maxwell's and AWS DMS's events, in the shapes of their documentation."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cdc import apply
from tests.cdc.tables import rows, table_of

LEM = {"id": 1, "daemon": "Stanislaw Lem"}
SCHEMA = pa.schema([("id", pa.int64()), ("daemon", pa.string())])


def maxwell(offset: int, kind: str, xid: int, data: dict[str, Any], commit: bool = True, **more: Any) -> dict[str, Any]:
    value = {"database": "test", "table": "maxwell", "type": kind, "ts": 1449786310, "xid": xid, "data": data} | more
    value |= {"commit": True} if commit else {"xoffset": 0}
    return {"topic": "maxwell", "partition": 3, "offset": offset, "key": b"{}", "value": json.dumps(value)}


def test_maxwell_inserts_updates_and_deletes() -> None:
    table = table_of(SCHEMA)
    done = apply(
        table,
        [
            maxwell(0, "insert", 940752, LEM),
            maxwell(1, "update", 940786, LEM | {"daemon": "firebus!"}, old={"daemon": "Stanislaw Lem"}),
            maxwell(2, "insert", 940790, LEM | {"id": 2}),
            maxwell(3, "delete", 940791, LEM | {"id": 2}),
        ],
    )
    assert rows(table) == [LEM | {"daemon": "firebus!"}]
    assert done.positions == {"maxwell-3": 3}


def test_maxwells_old_key_is_deleted() -> None:
    table = table_of(SCHEMA)
    apply(table, [maxwell(0, "insert", 1, LEM)])
    apply(table, [maxwell(1, "update", 2, LEM | {"id": 9}, old={"id": 1})])
    assert [row["id"] for row in rows(table)] == [9]


def test_maxwells_transaction_ends_with_its_commit() -> None:
    table = table_of(SCHEMA)
    open_ = maxwell(0, "insert", 1, LEM, commit=False)
    done = apply(table, [open_])
    assert [*done.left] == [open_]
    apply(table, [open_, maxwell(1, "insert", 1, LEM | {"id": 2})])
    assert len(rows(table)) == 2


def test_maxwells_definitions_of_tables_and_bootstraps() -> None:
    table = table_of(pa.schema([*SCHEMA, ("raw", pa.binary()), ("at", pa.timestamp("us"))]))
    ddl = {"type": "table-alter", "database": "test", "table": "maxwell", "old": {}, "def": {}, "ts": 1, "sql": ""}
    events = [json.dumps(ddl), {"database": "test", "table": "maxwell", "type": "bootstrap-start", "ts": 1, "data": {}}]
    row = LEM | {"raw": "AP8=", "at": "2016-01-01 12:34:56"}
    events.append({"database": "test", "table": "maxwell", "type": "bootstrap-insert", "ts": 1, "data": row})
    apply(table, events, source="bootstrap", position=1)
    at = datetime.fromisoformat("2016-01-01T12:34:56")
    assert rows(table) == [LEM | {"raw": b"\x00\xff", "at": at}]


@pytest.mark.parametrize("form", [pa.Table.from_pylist, pl.DataFrame, list])
def test_dms_rows_of_files(form: Any) -> None:
    table = table_of(pa.schema([("id", pa.int64()), ("name", pa.string()), ("pay", pa.decimal128(8, 2))]))
    full = [{"id": 101, "name": "Smith", "pay": Decimal("1.50")}, {"id": 102, "name": "Bob", "pay": None}]
    apply(table, form(full), format="dms", source="dms", position=1)
    changed = [
        {"Op": "I", "id": 103, "name": "Eve", "pay": Decimal("2.00")},
        {"Op": "U", "id": 101, "name": "Smythe", "pay": Decimal("1.50")},
        {"Op": "D", "id": 102, "name": "Bob", "pay": None},
    ]
    done = apply(table, form(changed), source="dms", position=20260131120000)
    assert [(row["id"], row["name"]) for row in rows(table)] == [(101, "Smythe"), (103, "Eve")]
    assert (done.rows, done.deletes) == (2, 1)
    assert apply(table, form(changed), source="dms", position=20260131120000).skipped == 3


def test_dms_messages() -> None:
    def message(offset: int, operation: str, data: Any, **more: Any) -> dict[str, Any]:
        told = {"timestamp": "2019-10-31T22:53:59.721201Z", "record-type": "data", "operation": operation}
        told |= {"partition-key-type": "primary-key", "schema-name": "test", "table-name": "maxwell"}
        value = {"data": data, "metadata": told} | more
        return {"topic": "dms", "partition": 0, "offset": offset, "value": json.dumps(value)}

    control = {"control": {}, "data": None, "metadata": {"record-type": "control", "operation": "create-table"}}
    table = table_of(SCHEMA)
    apply(
        table,
        [
            {"topic": "dms", "partition": 0, "offset": 0, "value": json.dumps(control)},
            message(1, "load", LEM),
            message(2, "insert", LEM | {"id": 2}),
            message(3, "update", LEM | {"id": 3}, **{"before-image": {"id": 2}}),
            message(4, "delete", LEM),
        ],
    )
    assert [row["id"] for row in rows(table)] == [3]


def test_an_unknown_operation_of_dms_is_refused() -> None:
    with pytest.raises(mor.InvalidInputError, match="unknown operation of DMS"):
        apply(table_of(SCHEMA), [{"Op": "X", **LEM}], source="dms", position=1)
