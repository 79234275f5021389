"""The fields of a timeline value as JSON. Each row of `FIELDS` describes a field.

To add a field, add it to `Value` in `model/timeline_value.py`, to `FIELDS`, and to docs/format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.model.alteration import alteration_json, alteration_of
from crdt_mor.model.file_ids import FIXED, file_ids_in, file_ids_json
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.migration import Moving, Origin, moving_json, moving_of, origin_json, origin_of
from crdt_mor.model.overwrite import overwrite_json, overwrite_of
from crdt_mor.model.posts import noted_json, noted_of
from crdt_mor.model.restore import restore_json, restore_of
from crdt_mor.model.rules import rule_json, rule_of
from crdt_mor.model.savepoint import savepoint_json, savepoint_of
from crdt_mor.model.table_properties import decoded
from crdt_mor.model.timeline_json import (
    archive_json,
    archive_of,
    completion_in,
    completion_json,
    pending_json,
    pending_of,
    plan_json,
    plan_of,
    require_types,
    retention_json,
    retention_of,
    rolled_back_json,
    rolled_back_of,
    segment_json,
    segment_of,
    tokens_noted_in,
)
from crdt_mor.model.timeline_parts import EVERYTHING_KEPT, NOTHING_ARCHIVED, Archive, Retention
from crdt_mor.model.tokens import tokens_in, tokens_json

_REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the value, by its key in the JSON.

    decode: the second argument is the document's format. absent: the value of a missing key; never written, unless
    `always`.
    """

    name: str
    encode: Callable[[Any], object] = lambda value: value
    decode: Callable[[Any, int], object] = lambda entry, written_in: entry  # noqa: ARG005
    absent: object = _REQUIRED
    always: bool = False
    parts: Callable[[Any], Iterable[object]] | None = None
    times: Callable[[Any], Iterable[InstantTime]] | None = None


def _records(
    name: str,
    encode: Callable[[Any], object],
    decode: Callable[[Any, int], object],
    times: Callable[[Any], Iterable[InstantTime]] | None = None,
    absent: object = _REQUIRED,
    *,
    are_checked: bool = False,
) -> _Field:
    """Return a field of many small records. The functions take a record; `are_checked` if `decode` checks types."""

    def times_of(records: Iterable[Any]) -> Iterable[InstantTime]:
        return (time for record in records for time in (times(record) if times is not None else ()))

    return _Field(
        name,
        lambda records: [encode(record) for record in records],
        lambda entries, written_in: tuple(decode(entry, written_in) for entry in entries),
        absent,
        parts=None if are_checked else lambda records: records,
        times=times_of if times is not None else None,
    )


def _times_of_retention(marks: Retention) -> Iterable[InstantTime]:
    return marks.since, marks.stable_since, marks.dropped, *(since for _, since in marks.groups)


def _times_of_archive(archive: Archive) -> Iterable[InstantTime]:
    return archive.watermark, archive.since


def _times_of_moving(moving: Moving | None) -> Iterable[InstantTime]:
    return (moving.since, moving.closed) if moving is not None else ()


def _parts_of_origin(origin: Origin | None) -> Iterable[object]:
    return [part for part in (origin, origin and origin.step) if part is not None]


def _times_of_origin(origin: Origin | None) -> Iterable[InstantTime]:
    return (origin.opened, origin.step.since, origin.step.until) if origin is not None else ()


FIELDS: Final = (
    _Field("version"),
    _Field("nonce"),
    _Field("table_id", absent=None, always=True),
    _Field("clock", times=lambda clock: (clock,)),
    _Field("swept", times=lambda swept: (swept,)),
    _Field("schema"),
    _records("pending", pending_json, pending_of, lambda pending: (pending.requested,)),
    _records("plans", plan_json, plan_of),
    _records("rolled_back", rolled_back_json, lambda entry, _: rolled_back_of(entry)),
    _records("completions", completion_json, completion_in, are_checked=True),
    _records("segments", segment_json, lambda entry, _: segment_of(*entry), are_checked=True),
    _Field("foreign_group"),
    _Field("added", decode=lambda names, _: tuple(names), absent=(), always=True),
    _Field("tokens", tokens_json, lambda entry, _: tokens_in(entry)),
    _Field("properties", dict, lambda entry, _: decoded(entry), absent=()),
    _Field(
        "retention", retention_json, lambda entry, _: retention_of(entry), EVERYTHING_KEPT,
        parts=lambda marks: (marks,), times=_times_of_retention,
    ),
    _Field(
        "archive", archive_json, lambda entry, _: archive_of(entry), NOTHING_ARCHIVED,
        parts=lambda archive: (archive,), times=_times_of_archive,
    ),
    _Field("tokens_since", absent=EPOCH, times=lambda since: (since,)),
    _records("overwrites", overwrite_json, lambda entry, _: overwrite_of(entry), lambda o: (o.barrier,), ()),
    _records("savepoints", savepoint_json, lambda entry, _: savepoint_of(entry), lambda s: (s.at,), ()),
    _records("restores", restore_json, lambda entry, _: restore_of(entry), lambda r: (r.to, r.at), ()),
    _Field("tokens_noted", absent=EPOCH, times=lambda noted: (noted,)),
    _Field(
        "moving", moving_json, lambda entry, _: moving_of(entry), None,
        parts=lambda moving: () if moving is None else (moving,), times=_times_of_moving,
    ),
    _Field(
        "origin", origin_json, lambda entry, _: origin_of(entry), None, parts=_parts_of_origin, times=_times_of_origin,
    ),
    _Field("posts", noted_json, lambda entry, _: noted_of(entry), ()),
    _records("rules", rule_json, lambda entry, _: rule_of(entry), absent=()),
    _records("alterations", alteration_json, lambda entry, _: alteration_of(entry), lambda a: (a.at,), ()),
    _Field("handed_over", absent=EPOCH, times=lambda since: (since,)),
    _Field("file_ids", file_ids_json, lambda entry, _: file_ids_in(entry), FIXED),
    _Field("schema_object", absent=None),
)  # fmt: skip
"""In the order of the JSON. `Timeline.is_in` relies on the first two."""


def document_of(value: object) -> dict[str, object]:
    found = ((field, getattr(value, field.name)) for field in FIELDS)
    return {field.name: field.encode(part) for field, part in found if field.always or part != field.absent}


def fields_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """Decode a document; raise one of `WRONG_SHAPE` if it is invalid."""
    written_in = document["format"]
    fields = {
        field.name: field.decode(document[field.name], written_in)
        if field.absent is _REQUIRED or field.name in document
        else field.absent
        for field in FIELDS
    }
    return fields | {"tokens_noted": tokens_noted_in(document)}


def require_shape(value: object) -> None:
    """Check types and instants; raise one of `WRONG_SHAPE`. A table may come from an untrusted source."""
    require_types((value,))
    for field in FIELDS:
        part = getattr(value, field.name)
        if field.parts is not None:
            require_types(field.parts(part))
        for time in field.times(part) if field.times is not None else ():
            to_ms(time)
