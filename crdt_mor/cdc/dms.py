"""Decode rows of AWS Database Migration Service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from crdt_mor.cdc.changes import Change, Operation
from crdt_mor.cdc.events import Event, Place, events_in, parsed
from crdt_mor.errors import InvalidInputError

_OPERATIONS: Final[Mapping[str | None, Operation]] = {
    None: "r", "": "r", "I": "c", "U": "u", "D": "d", "load": "r", "insert": "c", "update": "u", "delete": "d",
}  # fmt: skip
_OWN: Final = "AR_H_"


def decode_dms(events: Iterable[Any], place: Place) -> Iterator[Change]:
    """Decode rows and messages."""
    for event in events_in(events):
        yield event if isinstance(event, Change) else _change(event, *place.of(event))


def _change(event: Event, source: str, position: int) -> Change:
    found = parsed(event.value, event.raw)
    mark = Change("m", position, source, event=event.raw)
    if found is None:
        return mark
    if "metadata" in found:
        return _message(found, found["metadata"], mark)
    operation = _operation(found.get("Op"))
    row = {name: value for name, value in found.items() if name != "Op" and not name.startswith(_OWN)}
    return _of_row(operation, row, None, mark, None)


def _message(found: Mapping[str, Any], told: Mapping[str, Any], mark: Change) -> Change:
    if told.get("record-type", "data") != "data":
        return mark
    table = f"{told.get('schema-name')}.{told.get('table-name')}"
    return _of_row(_operation(told["operation"]), found["data"], found.get("before-image"), mark, table)


def _of_row(
    operation: Operation, row: Mapping[str, Any], before: Mapping[str, Any] | None, mark: Change, table: str | None
) -> Change:
    if operation == "d":
        return replace(mark, operation=operation, before={**row, **(before or {})}, whole=True, table=table)
    return replace(mark, operation=operation, row=row, before=before, whole=True, table=table)


def _operation(name: Any) -> Operation:
    try:
        return _OPERATIONS[name]
    except KeyError:
        raise InvalidInputError(f"unknown operation of DMS. Op={name!r}") from None
