"""Avro messages of Kafka, with their schemas as those of Kafka Connect."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
from fastavro.schema import expand_schema

from crdt_mor.errors import InvalidInputError

Schema = Mapping[str, Any] | str
Lookup = Callable[[int], Schema]

_KINDS: Final = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes"}
_LOGICAL: Final = {
    "date": "org.apache.kafka.connect.data.Date",
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
}


@dataclass(slots=True)
class AvroMessages:
    given: Schema | Lookup
    _known: dict[int, tuple[Any, Mapping[str, Any]]] = field(default_factory=dict)

    def decode(self, data: bytes | bytearray | memoryview) -> tuple[Any, Mapping[str, Any]]:
        number, body = self._parts(bytes(data))
        if number not in self._known:
            given = self.given(number) if callable(self.given) else self.given
            schema: dict[str, Any] = json.loads(given) if isinstance(given, str) else dict(given)
            self._known[number] = fastavro.parse_schema(schema), connect_schema(expand_schema(schema))
        parsed, connect = self._known[number]
        try:
            return fastavro.schemaless_reader(io.BytesIO(body), parsed, None), connect
        except (EOFError, ValueError, IndexError, UnicodeDecodeError) as error:
            raise InvalidInputError(
                f"this message does not fit its Avro schema: {error}. For Confluent's wire format pass a function from "
                f"an id to a schema. bytes={len(body)}"
            ) from error

    def _parts(self, data: bytes) -> tuple[int, bytes]:
        if not callable(self.given):
            return 0, data
        if len(data) < 5 or data[0]:
            raise InvalidInputError(
                "this message lacks Confluent's header, a zero byte and the schema's id: pass avro_schema as a schema, "
                f"not as a function. bytes={len(data)}"
            )
        return int.from_bytes(data[1:5], "big"), data[5:]


def connect_schema(schema: Any) -> dict[str, Any]:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise InvalidInputError(f"only unions of null and one type are supported. union={schema!r:.200}")
        return connect_schema(branches[0])
    if isinstance(schema, str):
        return {"type": _KINDS.get(schema, schema)}
    kind = schema["type"]
    if not isinstance(kind, str):
        return connect_schema(kind)
    name = schema.get("connect.name") or _LOGICAL.get(schema.get("logicalType", ""))
    found: dict[str, Any] = {"type": schema.get("connect.type") or _KINDS.get(kind, kind), "name": name}
    found["parameters"] = schema.get("connect.parameters") or {
        "scale": schema.get("scale", 0),
        "connect.decimal.precision": schema.get("precision", 38),
    }
    match kind:
        case "record":
            found |= {"type": "struct", "fields": [_field(one) for one in schema["fields"]]}
        case "array":
            found["items"] = connect_schema(schema["items"])
        case "map":
            found |= {"keys": {"type": "string"}, "values": connect_schema(schema["values"])}
    return found


def _field(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**connect_schema(one["type"]), "field": one["name"]}
