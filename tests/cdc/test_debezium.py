"""Debezium's envelopes, in the shapes of its documentation: PostgreSQL and MySQL, with schemas, without, and Avro."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cdc import apply
from crdt_mor.cdc.debezium import decode_debezium
from crdt_mor.cdc.events import Place
from tests.cdc.tables import rows, table_of

CUSTOMERS = pa.schema([(name, pa.string()) for name in ("first_name", "last_name", "email")])
CUSTOMERS = pa.schema([("id", pa.int32()), *CUSTOMERS])
ANNE = {"id": 1, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}


def postgres(op: str, lsn: int, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    source = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "PostgreSQL_server", "ts_ms": 1559033904863,
        "snapshot": "false", "db": "postgres", "sequence": f'["{lsn - 1}","{lsn}"]', "schema": "public",
        "table": "customers", "txId": 555, "lsn": lsn, "xmin": None,
    }  # fmt: skip
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1559033904863} | more


def mysql(op: str, pos: int, before: Any, after: Any) -> dict[str, Any]:
    source = {
        "version": "3.0.0.Final", "connector": "mysql", "name": "mysql-server-1", "ts_ms": 1465581029100,
        "snapshot": "false", "db": "inventory", "table": "customers", "server_id": 223344, "gtid": None,
        "file": "mysql-bin.000003", "pos": pos, "row": 0, "thread": 7,
    }  # fmt: skip
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1465581029523}


def record(offset: int, value: Any, key: Any = None, topic: str = "server.public.customers") -> dict[str, Any]:
    encoded = None if value is None else json.dumps(value).encode()
    return {"topic": topic, "partition": 0, "offset": offset, "value": encoded, "key": key and json.dumps(key).encode()}


def test_creates_updates_deletes_reads_and_tombstones() -> None:
    table = table_of(CUSTOMERS)
    anne = ANNE | {"first_name": "Anne Marie"}
    done = apply(
        table,
        [
            record(3, postgres("r", 100, None, ANNE | {"id": 2})),
            record(4, postgres("c", 24023128, None, ANNE), {"id": 1}),
            record(5, postgres("u", 24023130, {"id": 1}, anne), {"id": 1}),
            record(6, postgres("d", 24023140, {"id": 2}, None), {"id": 2}),
            record(7, None, {"id": 2}),
        ],
    )
    assert rows(table) == [anne]
    assert (done.rows, done.deletes, done.positions) == (1, 1, {"server.public.customers-0": 7})
    assert apply(table, [record(5, postgres("u", 24023130, {"id": 1}, anne))]).skipped == 1


def test_a_delete_without_a_before_image_takes_the_records_key() -> None:
    table = table_of(CUSTOMERS)
    schema = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}], "name": "Key"}
    apply(table, [record(0, mysql("c", 484, None, ANNE))])
    apply(table, [record(1, mysql("d", 805, None, None), {"schema": schema, "payload": {"id": 1}})])
    assert rows(table) == []


def test_a_truncation_and_a_heartbeat() -> None:
    table = table_of(CUSTOMERS)
    apply(
        table,
        [record(0, postgres("c", 1, None, ANNE)), record(1, {"ts_ms": 1}), record(2, postgres("t", 2, None, None))],
    )
    assert rows(table) == []


def test_mysqls_place_in_the_log_orders_rows_of_several_partitions() -> None:
    table = table_of(CUSTOMERS.append(pa.field("place", pa.int64())), ordering="place")
    apply(table, [record(9, mysql("u", 900, None, ANNE | {"email": "new"}))])
    apply(table, [record(2, mysql("u", 800, None, ANNE), topic="other")])
    assert rows(table) == [ANNE | {"email": "new", "place": 3 << 32 | 900}]


def test_an_unavailable_column_is_unchanged() -> None:
    table = table_of(
        pa.schema([*CUSTOMERS, ("photo", pa.binary()), ("tags", pa.list_(pa.string()))]), merge=mor.PartialUpdate()
    )
    first = ANNE | {"photo": base64.b64encode(b"big").decode(), "tags": ["a"]}
    marker = "__debezium_unavailable_value"
    last = ANNE | {
        "email": marker,
        "photo": base64.b64encode(marker.encode()).decode(),
        "tags": [marker],
        "last_name": "K",
    }
    apply(table, [record(0, postgres("c", 1, None, first))])
    apply(table, [record(1, postgres("u", 2, None, last))])
    assert rows(table) == [ANNE | {"last_name": "K", "photo": b"big", "tags": ["a"]}]


def test_a_new_key_keeps_the_unavailable_values_of_the_old() -> None:
    """Debezium reports a new key as a delete, a tombstone and a create."""
    table = table_of(CUSTOMERS, merge=mor.PartialUpdate())
    apply(table, [record(0, postgres("c", 1, None, ANNE))])
    moved = ANNE | {"id": 9, "email": "__debezium_unavailable_value"}
    apply(
        table,
        [record(1, postgres("d", 2, {"id": 1}, None)), record(2, None), record(3, postgres("c", 2, None, moved))],
    )
    assert rows(table) == [ANNE | {"id": 9}]


FIELDS: list[tuple[dict[str, Any], Any, Any, pa.DataType]] = [
    ({"type": "int32", "name": "io.debezium.time.Date"}, 18250, date(2019, 12, 20), pa.date32()),
    ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, 1, date(1970, 1, 2), pa.date32()),
    ({"type": "int32", "name": "io.debezium.time.Time"}, 3_600_001, time(1, 0, 0, 1000), pa.time64("us")),
    ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 1, time(0, 0, 0, 1), pa.time64("us")),
    (
        {"type": "int64", "name": "io.debezium.time.Timestamp"},
        1_529_507_596_945,
        datetime.fromisoformat("2018-06-20T15:13:16.945000"),
        pa.timestamp("us"),
    ),
    (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        1_529_507_596_945_104,
        datetime.fromisoformat("2018-06-20T15:13:16.945104"),
        pa.timestamp("us"),
    ),
    (
        {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
        -1000,
        datetime.fromisoformat("1969-12-31T23:59:59.999999"),
        pa.timestamp("us"),
    ),
    (
        {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        1,
        datetime.fromisoformat("1970-01-01T00:00:00.001000"),
        pa.timestamp("us"),
    ),
    (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "2018-06-20T13:37:03.123456Z",
        datetime(2018, 6, 20, 13, 37, 3, 123456, UTC),
        pa.timestamp("us", "UTC"),
    ),
    (
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "5"},
        },
        "AWI=",
        Decimal("3.54"),
        pa.decimal128(5, 2),
    ),
    (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []},
        {"scale": 1, "value": "/w=="},
        "-0.1",
        pa.string(),
    ),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a":1}', '{"a":1}', pa.string()),
    ({"type": "bytes"}, "AP8=", b"\x00\xff", pa.binary()),
    (
        {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}},
        [0],
        [date(1970, 1, 1)],
        pa.list_(pa.date32()),
    ),
    (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}},
        {"a": 1},
        [("a", 1)],
        pa.map_(pa.string(), pa.int64()),
    ),
    ({"type": "double"}, 0.5, 0.5, pa.float64()),
    ({"type": "boolean"}, True, True, pa.bool_()),
]


@pytest.mark.parametrize(
    ("schema", "given", "value", "kind"),
    FIELDS,
    ids=lambda v: v.get("name") or v["type"] if isinstance(v, dict) and "type" in v else "",
)
def test_a_schema_gives_new_columns_their_types(
    schema: dict[str, Any], given: Any, value: Any, kind: pa.DataType
) -> None:
    struct = {
        "type": "struct",
        "field": "after",
        "fields": [{"type": "int32", "field": "id"}, schema | {"optional": True, "field": "x"}],
    }
    envelope = {"type": "struct", "fields": [struct | {"field": "before"}, struct], "name": "Envelope"}
    value_of = {"schema": envelope, "payload": postgres("c", 1, None, {"id": 1, "x": given})}
    table = table_of(pa.schema([("id", pa.int32())]))
    apply(
        table,
        [record(0, value_of), record(1, {"schema": envelope, "payload": postgres("c", 1, None, {"id": 2, "x": None})})],
    )
    assert table.schema.field("x").type == kind
    found = [row["x"] for row in rows(table)]
    assert found == [value, None]


def test_geometries_are_refused() -> None:
    field = {"type": "struct", "name": "io.debezium.data.geometry.Point", "fields": [], "field": "place"}
    envelope = {"fields": [{"field": "after", "type": "struct", "fields": [{"type": "int32", "field": "id"}, field]}]}
    value = {"schema": envelope, "payload": postgres("c", 1, None, {"id": 1, "place": {}})}
    with pytest.raises(mor.InvalidInputError, match=r"column\.exclude\.list.*'place'"):
        apply(table_of(CUSTOMERS), [record(0, value)])


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (pa.date32(), 18250, date(2019, 12, 20)),
        (pa.timestamp("ms"), 1_529_507_596_945, datetime.fromisoformat("2018-06-20T15:13:16.945000")),
        (pa.timestamp("us"), 1_529_507_596_945_104, datetime.fromisoformat("2018-06-20T15:13:16.945104")),
        (pa.timestamp("us", "UTC"), "2018-06-20T13:37:03.123456+02:00", datetime(2018, 6, 20, 11, 37, 3, 123456, UTC)),
        (pa.time64("us"), 1, time(0, 0, 0, 1)),
        (pa.decimal128(5, 2), "AWI=", Decimal("3.54")),
        (pa.decimal128(5, 2), "3.54", Decimal("3.54")),
        (pa.decimal128(5, 2), 3.54, Decimal("3.54")),
        (pa.decimal128(9, 0), "-1234", Decimal(-1234)),
        (pa.decimal128(9, 0), "AQ==", Decimal(1)),
        (pa.decimal128(9, 2), {"scale": 1, "value": "AQ=="}, Decimal("0.10")),
        (pa.binary(), "AP8=", b"\x00\xff"),
        (pa.list_(pa.date32()), [0], [date(1970, 1, 1)]),
        (pa.struct([("at", pa.date32())]), {"at": 1}, {"at": date(1970, 1, 2)}),
        (pa.string(), {"a": [1]}, '{"a":[1]}'),
        (pa.int64(), "12", 12),
    ],
)  # fmt: skip
def test_without_a_schema_the_columns_type_says_how_a_value_is_encoded(
    kind: pa.DataType, given: Any, value: Any
) -> None:
    table = table_of(pa.schema([("id", pa.int32()), ("x", kind)]))
    apply(table, [record(0, postgres("c", 1, None, {"id": 1, "x": given}))])
    assert rows(table) == [{"id": 1, "x": value}]


def test_a_text_that_may_be_a_number_or_bytes_is_refused() -> None:
    table = table_of(pa.schema([("id", pa.int32()), ("x", pa.decimal128(9, 0))]))
    with pytest.raises(mor.InvalidInputError, match=r"schemas\.enable"):
        apply(table, [record(0, postgres("c", 1, None, {"id": 1, "x": "1234"}))])


def test_a_wider_type_of_the_source_widens_the_column() -> None:
    table = table_of(pa.schema([("id", pa.int32()), ("x", pa.int32())]))
    apply(table, [record(0, postgres("c", 1, None, {"id": 1, "x": 1 << 40}))])
    assert table.schema.field("x").type == pa.int64()
    with pytest.raises(mor.InvalidInputError, match=r"does not fit the column.*'x'"):
        apply(table, [record(1, postgres("c", 1, None, {"id": 1, "x": "word"}))])


# --- transactions -----------------------------------------------------------------------------------------------------


def of_transaction(offset: int, number: int, row: Mapping[str, Any], order: int) -> dict[str, Any]:
    block = {"id": f"{number}:1", "total_order": order, "data_collection_order": order}
    return record(offset, postgres("c", number, None, row, transaction=block))


def end(offset: int, number: int, events: int) -> dict[str, Any]:
    collections = [{"data_collection": "public.customers", "event_count": events}]
    value = {"status": "END", "id": f"{number}:1", "event_count": events, "data_collections": collections}
    return record(offset, value, topic="server.transaction")


def test_a_transaction_is_left_until_the_next_one_begins() -> None:
    table = table_of(CUSTOMERS)
    events = [
        of_transaction(0, 1, ANNE, 1),
        of_transaction(1, 2, ANNE | {"id": 2}, 1),
        of_transaction(2, 2, ANNE | {"id": 3}, 2),
    ]
    done = apply(table, events)
    assert (done.positions, [*done.left]) == ({"server.public.customers-0": 0}, events[1:])
    done = apply(table, [*done.left, of_transaction(3, 3, ANNE | {"id": 4}, 1)])
    assert [row["id"] for row in rows(table)] == [1, 2, 3]
    assert len(done.left) == 1


def test_a_transaction_ends_with_the_event_of_its_end() -> None:
    table = table_of(CUSTOMERS)
    first, second = of_transaction(0, 1, ANNE, 1), of_transaction(1, 1, ANNE | {"id": 2}, 2)
    done = apply(table, [end(0, 1, 2), first])
    assert len(done.left) == 2
    assert rows(table) == []
    done = apply(table, [*done.left, second])
    assert done.left == ()
    assert len(rows(table)) == 2
    assert done.positions == {"server.public.customers-0": 1, "server.transaction-0": 0}


def test_a_tombstone_does_not_end_a_transaction() -> None:
    table = table_of(CUSTOMERS)
    gone = of_transaction(1, 1, ANNE, 2)
    gone["value"] = gone["value"].replace(b'"op": "c"', b'"op": "d"').replace(b'"before": null', b'"before": {"id": 1}')
    cut = [of_transaction(0, 1, ANNE, 1), gone, record(2, None, {"id": 1})]
    assert [*apply(table, cut).left] == cut


# --- where events come from -------------------------------------------------------------------------------------------


@dataclass
class Record:
    """As kafka-python has it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Message:
    """As confluent_kafka has it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name not in self._fields:
            raise AttributeError(name)
        return lambda: self._fields[name]


@pytest.mark.parametrize(
    "form",
    [
        lambda records: records,
        lambda records: [Record(**one) for one in records],
        lambda records: [Message(one) for one in records],
        pa.Table.from_pylist,
        pl.DataFrame,
        iter,
    ],
)
def test_records_come_in_any_form(form: Any) -> None:
    table = table_of(CUSTOMERS)
    done = apply(table, form([record(7, postgres("c", 1, None, ANNE), {"id": 1}), record(8, None, {"id": 1})]))
    assert (rows(table), done.positions) == ([ANNE], {"server.public.customers-0": 8})


def test_envelopes_without_records_need_their_place() -> None:
    table = table_of(CUSTOMERS)
    with pytest.raises(mor.InvalidInputError, match="source= and position="):
        apply(table, [postgres("c", 1, None, ANNE)])
    apply(table, [json.dumps(postgres("c", 1, None, ANNE))], source="file", position=1)
    assert apply(table, [postgres("c", 1, None, ANNE)], source="file", position=1).skipped == 1


def test_unknown_events_are_refused() -> None:
    for events in ([{"a": 1}], ["no json"], [3], 3):
        with pytest.raises(mor.InvalidInputError):
            apply(table_of(CUSTOMERS), events, source="a", position=1)


# --- Avro -------------------------------------------------------------------------------------------------------------

VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 5,
                    "logicalType": "decimal",
                    "connect.version": 1,
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "5"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                },
            ],
            "default": None,
        },
        {
            "name": "at",
            "type": ["null", {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}],
            "default": None,
        },
        {"name": "small", "type": {"type": "int", "connect.type": "int16"}},
    ],
    "connect.name": "server.public.orders.Value",
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "server.public.orders",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


def encoded(schema: Any, value: Any, number: int | None) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + buffer.getvalue()


def test_avro_in_confluents_wire_format() -> None:
    table = table_of(pa.schema([("id", pa.int32())]))
    row = {"id": 1, "price": Decimal("3.54"), "at": 1_529_507_596_945_104, "small": 7}
    created = {"before": None, "after": row, "source": {"lsn": 1}, "op": "c"}
    records = [
        {
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "key": encoded(KEY, {"id": 1}, 2),
            "value": encoded(ENVELOPE, created, 1),
        },
        {
            "topic": "t",
            "partition": 0,
            "offset": 1,
            "key": encoded(KEY, {"id": 2}, 2),
            "value": encoded(ENVELOPE, created | {"after": None, "op": "d"}, 1),
        },
    ]
    schemas: dict[int, Any] = {1: ENVELOPE, 2: json.dumps(KEY)}
    done = apply(table, records, avro_schema=schemas.__getitem__)
    assert (done.rows, done.deletes) == (1, 1)
    at = datetime.fromisoformat("2018-06-20T15:13:16.945104")
    assert rows(table) == [{"id": 1, "price": Decimal("3.54"), "at": at, "small": 7}]
    assert [table.schema.field(n).type for n in ("price", "at", "small")] == [
        pa.decimal128(5, 2),
        pa.timestamp("us"),
        pa.int16(),
    ]


def test_plain_avro_with_its_schema() -> None:
    row = {"id": 1, "price": None, "at": None, "small": 7}
    value = encoded(ENVELOPE, {"before": None, "after": row, "source": {"lsn": 5}, "op": "c"}, None)
    (change,) = decode_debezium([value], Place("file", 1), {}, ENVELOPE)
    assert (change.row, change.order) == (row, 5)
    with pytest.raises(mor.InvalidInputError, match="lacks Confluent's header"):
        [*decode_debezium([b"\1" + value], Place("file", 1), {}, lambda _: ENVELOPE)]
    with pytest.raises(mor.InvalidInputError, match="does not fit its Avro schema"):
        [*decode_debezium([value[:4]], Place("file", 1), {}, ENVELOPE)]
