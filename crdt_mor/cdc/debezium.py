"""Decode Debezium's envelopes: JSON with or without schemas, and Avro."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import pyarrow as pa

from crdt_mor.cdc.avro import AvroMessages, Lookup, Schema
from crdt_mor.cdc.changes import Change, Operation
from crdt_mor.cdc.connect import Read, columns_of, reader_of, same
from crdt_mor.cdc.events import Event, Place, events_in, parsed
from crdt_mor.errors import InvalidInputError

UNAVAILABLE: Final = "__debezium_unavailable_value"
_MARKERS: Final = (
    UNAVAILABLE,
    UNAVAILABLE.encode(),
    base64.b64encode(UNAVAILABLE.encode()).decode(),
    [UNAVAILABLE],
    [*UNAVAILABLE.encode()],
    {UNAVAILABLE: UNAVAILABLE},
)
_KINDS_OF_MARKERS: Final = frozenset((str, bytes, list, dict))
_OPERATIONS: Final = frozenset("cudrtm")


def decode_debezium(
    events: Iterable[Any], place: Place, columns: Mapping[str, pa.DataType], avro_schema: Schema | Lookup | None
) -> Iterator[Change]:
    """Decode envelopes. columns: types for values without a schema."""
    envelopes = _Envelopes(columns, None if avro_schema is None else AvroMessages(avro_schema))
    changes = [
        event if isinstance(event, Change) else envelopes.change(event, *place.of(event)) for event in events_in(events)
    ]
    yield from _with_moves(_with_ends(changes, envelopes.ends))


@dataclass(slots=True)
class _Envelopes:
    """ends: numbers of events, by transaction and collection."""

    columns: Mapping[str, pa.DataType]
    avro: AvroMessages | None
    ends: dict[str, Mapping[str, int]] = field(default_factory=dict)
    _schema: Any = None
    _types: Mapping[str, pa.DataType] | None = None
    _reads: Mapping[str, Read] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reads = self._by_columns()

    def change(self, event: Event, source: str, position: int) -> Change:
        value, schema = self._decoded(event.value, event)
        mark = Change("m", position, source, event=event.raw)
        if value is None:
            return mark
        if "op" not in value:
            return self._end(value, mark)
        operation = value["op"]
        if operation not in _OPERATIONS:
            raise InvalidInputError(f"unknown operation of Debezium. op={operation!r} event={str(value)[:200]}")
        self._learn(schema)
        given, told = value.get("after"), value.get("source") or {}
        row = _row(given, self._reads)
        return Change(
            cast(Operation, operation),
            position,
            source,
            key=self._key(event),
            row=row,
            before=_row(value.get("before"), self._reads),
            types=self._types,
            transaction=(value.get("transaction") or {}).get("id"),
            whole=row is not None and len(row) == len(given),
            order=_order(told),
            table=_table(told),
            event=event.raw,
        )

    def _decoded(self, value: Any, event: Event) -> tuple[Any, Any]:
        if self.avro is not None and isinstance(value, bytes | bytearray | memoryview):
            return self.avro.decode(value)
        found = parsed(value, event.raw)
        if isinstance(found, Mapping) and "payload" in found:
            return found["payload"], found.get("schema")
        return found, None

    def _learn(self, schema: Any) -> None:
        if schema is self._schema or schema == self._schema:
            return
        self._schema = schema
        structs = [one for one in schema["fields"] if one["field"] in ("after", "before")] if schema else []
        known = columns_of(structs[0]) if structs else {}
        self._types = {name: kind for name, (kind, _) in known.items()} or None
        of_schema = {name: read for name, (_, read) in known.items() if read is not same}
        self._reads = of_schema if known else self._by_columns()

    def _by_columns(self) -> dict[str, Read]:
        reads = {name: reader_of(kind) for name, kind in self.columns.items()}
        return {name: read for name, read in reads.items() if read is not same}

    def _key(self, event: Event) -> Mapping[str, Any] | None:
        key = event.key
        if key is None or (self.avro is not None and not callable(self.avro.given)):
            return None
        found, _ = self._decoded(key, event)
        return _row(found, self._reads) if isinstance(found, Mapping) else None

    def _end(self, value: Mapping[str, Any], mark: Change) -> Change:
        if value.get("status") not in ("BEGIN", "END"):
            return mark
        if value["status"] == "END":
            counts = value.get("data_collections") or ()
            self.ends[value["id"]] = {one["data_collection"]: one["event_count"] for one in counts}
        return replace(mark, transaction=value["id"])


def _row(values: Mapping[str, Any] | None, reads: Mapping[str, Read]) -> dict[str, Any] | None:
    """Return the available columns."""
    if values is None:
        return None
    row: dict[str, Any] = {}
    for name, value in values.items():
        if type(value) in _KINDS_OF_MARKERS and value in _MARKERS:
            continue
        read = reads.get(name)
        row[name] = value if read is None or value is None else read(value)
    return row


def _order(source: Mapping[str, Any]) -> int | None:
    if isinstance(source.get("lsn"), int):
        return int(source["lsn"])
    if source.get("file") and source.get("pos") is not None:
        return int(str(source["file"]).rpartition(".")[2]) << 32 | int(source["pos"])
    return None


def _table(source: Mapping[str, Any]) -> str | None:
    table, space = source.get("table"), source.get("schema") or source.get("db")
    return None if not table else f"{space}.{table}"


def _with_ends(changes: list[Change], ends: Mapping[str, Mapping[str, int]]) -> list[Change]:
    """Mark the ends of transactions without a missing event."""
    seen = Counter((c.transaction, c.table) for c in changes if c.operation != "m")
    last = {(change.transaction, change.source): place for place, change in enumerate(changes)}
    for (transaction, table), count in seen.items():
        told = ends.get(transaction or "", {})
        if count and count == sum(n for name, n in told.items() if f".{name}".endswith(f".{table}")):
            for (named, _), place in last.items():
                if named == transaction:
                    changes[place] = replace(changes[place], ends=True)
    return changes


def _with_moves(changes: list[Change]) -> list[Change]:
    """Make an update of a new key's delete and create, if the create lacks unavailable values."""
    last: dict[str, int] = {}
    for place, change in enumerate(changes):
        if change.operation == "c" and not change.whole:
            gone = last.get(change.source, place)
            changes[place] = replace(change, operation="u")
            if changes[gone].operation == "d":
                old = changes[gone]
                changes[gone] = replace(old, operation="m", key=None, before=None)
                changes[place] = replace(change, operation="u", key=old.key, before=old.before)
        if change.operation != "m":
            last[change.source] = place
    return changes
