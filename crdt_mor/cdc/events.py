"""Take events apart: JSON, dicts, records of Kafka clients, and Arrow batches of either."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from crdt_mor.cdc.changes import Change
from crdt_mor.errors import InvalidInputError

_JSON = json.JSONDecoder(parse_float=Decimal)
_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `source` and `position` are those of a Kafka record."""

    value: Any
    key: Any = None
    source: str | None = None
    position: int | None = None
    raw: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of events that are not Kafka records."""

    source: str | None
    position: int | None

    def of(self, event: Event) -> tuple[str, int]:
        if event.source is not None and event.position is not None:
            return event.source, event.position
        if self.source is None or self.position is None:
            raise InvalidInputError(
                "an event alone has no place in its feed: pass records with topic, partition, offset and value, or "
                "source= and position=, a number that grows from batch to batch. "
                f"source={self.source!r} position={self.position!r}"
            )
        return self.source, self.position


def events_in(events: Any) -> Iterator[Event | Change]:
    for event in _single(events):
        yield event if isinstance(event, Change | Event) else _event(event)


def _single(events: Any) -> Iterable[Any]:
    if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
        batch = events if isinstance(events, pa.RecordBatch) else pa.table(events)
        rows: list[Any] = batch.to_pylist()
        return rows
    if isinstance(events, str | bytes | Mapping):
        return (events,)
    if not isinstance(events, Iterable):
        raise InvalidInputError(f"pass events as a list or as an Arrow batch. type={type(events).__name__}")
    return events


def _event(event: Any) -> Event:
    if isinstance(event, Mapping):
        if "value" in event and all(name in event for name in _PLACE):
            return _record(event.__getitem__, event)
        return Event(event, raw=event)
    if event is None or isinstance(event, str | bytes | bytearray | memoryview):
        return Event(event, raw=event)
    if all(hasattr(event, name) for name in (*_PLACE, "value")):
        return _record(lambda name: _attribute(event, name), event)
    raise InvalidInputError(
        "pass each event as JSON, a dict, a Kafka record with topic, partition, offset and value, or a Change. "
        f"type={type(event).__name__}"
    )


def _attribute(record: Any, name: str) -> Any:
    value = getattr(record, name, None)
    return value() if callable(value) else value


def _record(get: Any, raw: Any) -> Event:
    try:
        key = get("key")
    except KeyError:
        key = None
    return Event(get("value"), key, f"{get('topic')}-{get('partition')}", int(get("offset")), raw)


def parsed(value: Any, event: Any) -> Any:
    if not isinstance(value, str | bytes | bytearray | memoryview):
        return value
    try:
        return _JSON.decode(value if isinstance(value, str) else bytes(value).decode())
    except ValueError as error:
        raise InvalidInputError(
            f"this event is no JSON: {error}. For Avro pass avro_schema=. event={str(event)[:200]}"
        ) from error
