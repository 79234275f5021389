"""Decode events of PostgreSQL's wal2json, format version 2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from crdt_mor.cdc.changes import Change, Operation
from crdt_mor.cdc.events import Event, events_in, parsed
from crdt_mor.cdc.postgres_types import type_of, value_of
from crdt_mor.errors import InvalidInputError

_OPERATIONS: Mapping[str, Operation] = {"I": "c", "U": "u", "D": "d", "T": "t"}


def decode_wal2json(events: Iterable[Any], source: str | None) -> Iterator[Change]:
    """Decode events with `include-lsn` and `include-transaction`. source: the slot's name."""
    if source is None:
        raise InvalidInputError("pass the slot's name as source=: it counts the events once")
    begun: Change | None = None
    for event in events_in(events):
        if isinstance(event, Change):
            yield event
            continue
        found = parsed(event.value, event.raw)
        action = found.get("action")
        if action == "B":
            begun = Change("m", _position(found), source, transaction=str(found.get("xid")), event=event.raw)
            yield begun
        elif action == "C":
            if begun is None:
                raise _outside(found)
            yield replace(begun, ends=True, event=event.raw)
            begun = None
        elif action in _OPERATIONS:
            if begun is None:
                raise _outside(found)
            yield _change(found, _OPERATIONS[action], begun, event)
        elif action != "M":
            raise InvalidInputError(f"unknown action of wal2json, use format-version 2. action={action!r}")
        elif begun is not None:
            yield replace(begun, event=event.raw)


def _change(found: Mapping[str, Any], operation: Operation, begun: Change, event: Event) -> Change:
    columns, identity = found.get("columns"), found.get("identity")
    before = None if identity is None else _values(identity)
    described = columns or identity or ()
    return replace(
        begun,
        operation=operation,
        key=before,
        row=None if columns is None else _values(columns),
        before=before,
        types=_types(described),
        whole=operation == "c",
        table=f"{found.get('schema')}.{found.get('table')}",
        event=event.raw,
    )


def _values(columns: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {column["name"]: value_of(column.get("type"), column.get("value")) for column in columns}


def _types(columns: Iterable[Mapping[str, Any]]) -> dict[str, pa.DataType]:
    named = ((column["name"], type_of(column.get("type"))) for column in columns)
    return {name: kind for name, kind in named if kind is not None}


def _position(found: Mapping[str, Any]) -> int:
    text = found.get("nextlsn") or found.get("lsn")
    if text is None:
        raise InvalidInputError(f"wal2json tells no positions: read the slot with the option include-lsn. {found=}")
    return lsn(text)


def lsn(text: str) -> int:
    high, _, low = text.partition("/")
    try:
        return int(high, 16) << 32 | int(low, 16)
    except ValueError as error:
        raise InvalidInputError(f"a log position looks like 16/B374D848. lsn={text!r}") from error


def _outside(found: Mapping[str, Any]) -> InvalidInputError:
    return InvalidInputError(
        "this event belongs to a transaction whose begin is missing: read the slot with include-transaction, and pass "
        f"all events since the last B again (Applied.left). event={str(found)[:200]}"
    )
