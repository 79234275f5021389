"""Choose the decoder of a feed's events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa

from crdt_mor.cdc.avro import Lookup, Schema
from crdt_mor.cdc.changes import Change
from crdt_mor.cdc.debezium import decode_debezium
from crdt_mor.cdc.dms import decode_dms
from crdt_mor.cdc.events import Place, events_in, parsed
from crdt_mor.cdc.maxwell import decode_maxwell
from crdt_mor.cdc.wal2json import decode_wal2json
from crdt_mor.errors import InvalidInputError

Format = Literal["debezium", "maxwell", "wal2json", "dms"]


def decode(
    events: Any,
    format: Format | None,
    columns: Mapping[str, pa.DataType],
    source: str | None,
    position: int | None,
    avro_schema: Schema | Lookup | None,
) -> Iterator[Change]:
    events = [*events_in(events)]
    found = format or ("debezium" if avro_schema is not None else _recognised(events))
    place = Place(source, position)
    match found:
        case None:
            return iter(events)
        case "debezium":
            return decode_debezium(events, place, columns, avro_schema)
        case "maxwell":
            return decode_maxwell(events, place, columns)
        case "wal2json":
            return decode_wal2json(events, source)
        case "dms":
            return decode_dms(events, place)
    raise InvalidInputError(f"format must be debezium, maxwell, wal2json or dms. format={format!r}")


def _recognised(events: Iterable[Any]) -> Format | None:
    for event in events:
        value = None if isinstance(event, Change) else parsed(event.value, event.raw)
        if value is not None:
            return _format_of(value)
    return "debezium" if any(not isinstance(event, Change) for event in events) else None


def _format_of(value: Any) -> Format:
    names = {*value} if isinstance(value, Mapping) else set[str]()
    if names >= {"database", "table", "type"}:
        return "maxwell"
    if "action" in names:
        return "wal2json"
    if "Op" in names or names >= {"data", "metadata"}:
        return "dms"
    if "op" in names or "payload" in names or names >= {"status", "id"}:
        return "debezium"
    raise InvalidInputError(
        f"unknown events: pass format=, one of debezium, maxwell, wal2json and dms. event={value!r:.200}"
    )
