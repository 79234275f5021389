"""Decode Maxwell's events of MySQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from crdt_mor.cdc.changes import Change, Operation
from crdt_mor.cdc.connect import bytes_of
from crdt_mor.cdc.events import Event, Place, events_in, parsed

_OPERATIONS: Final[Mapping[str, Operation]] = {"insert": "c", "bootstrap-insert": "r", "update": "u", "delete": "d"}


def decode_maxwell(events: Iterable[Any], place: Place, columns: Mapping[str, pa.DataType]) -> Iterator[Change]:
    """Decode events. columns: types, to decode bytes."""
    binary = {n for n, kind in columns.items() if types.is_binary(kind) or types.is_large_binary(kind)}
    for event in events_in(events):
        yield event if isinstance(event, Change) else _change(event, binary, *place.of(event))


def _change(event: Event, binary: set[str], source: str, position: int) -> Change:
    found = parsed(event.value, event.raw)
    operation = None if found is None else _OPERATIONS.get(found["type"])
    if operation is None:
        return Change("m", position, source, event=event.raw)
    data, old = _decoded(found["data"], binary), _decoded(found.get("old") or {}, binary)
    xid = found.get("xid")
    return Change(
        operation,
        position,
        source,
        row=None if operation == "d" else data,
        before={**data, **old} if operation in "ud" else None,
        transaction=None if xid is None else str(xid),
        ends=bool(found.get("commit")),
        whole=True,
        table=f"{found['database']}.{found['table']}",
        event=event.raw,
    )


def _decoded(row: Mapping[str, Any], binary: set[str]) -> dict[str, Any]:
    return {n: bytes_of(value) if n in binary and value is not None else value for n, value in row.items()}
