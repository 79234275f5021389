"""Decode the content of an Avro log block, a whole column at a time.

    3 (int32) | number of records (int32) | per record: length (int32), datum

The lengths make the content no container. A schema that begins with a fixed field of four bytes reads each length as
part of its record, so polars decodes all at once. The decoded lengths must add up to the content's size, which detects
a wrong schema. fastavro decodes blocks with maps or unions of several types, row by row.
"""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.columns.avro import parse_record
from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.format import avro
from crdt_mor.format.avro import Json
from crdt_mor.format.avro_schemas import require_bounded
from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import fastavro
else:
    fastavro = Late("fastavro")

_LENGTH: Final = "_crdt_length"
_LENGTH_BYTES: Final = 4
_LENGTH_FIELD: Final = {"name": _LENGTH, "type": {"type": "fixed", "name": "CrdtMorLength", "size": _LENGTH_BYTES}}


def decode(content: memoryview, schema: str, path: str, offset: int) -> pa.Table:
    """Decode the rows of a block; errors name the path and the offset."""
    where = f"path={path} offset={offset}"
    count, body = avro.content_of(content, "Avro log block", where)
    try:
        writer = _writer(schema)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"damaged Avro log block: its schema is not one: {error!r}. {where}") from error
    if not 0 <= count <= len(body) // _LENGTH_BYTES:
        raise FormatError(f"damaged Avro log block: {count} records in {len(body)} bytes. {where}")
    try:
        table = _decode_columns(writer, count, body) if writer.columnar else None
        return _decode_rows(writer, count, body, schema) if table is None else table
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(f"{error} {where}") from error
    except (Exception, pl.exceptions.PanicException) as error:  # both decoders raise any error for such bytes
        raise FormatError(f"damaged Avro log block: {error!r}. {where}") from error


class _Writer:
    """A writer's schema with the length in front."""

    __slots__ = ("columnar", "header")

    def __init__(self, schema: dict[str, Json]) -> None:
        fields = cast("list[dict[str, Json]]", schema["fields"])
        self.columnar = all(_columnar(item["type"]) for item in fields)
        self.header = avro.container_header(json.dumps({**schema, "fields": [_LENGTH_FIELD, *fields]}))


@lru_cache(maxsize=256)
def _writer(schema: str) -> _Writer:
    parsed = json.loads(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ValueError("not a record")
    require_bounded(parsed)
    return _Writer(parsed)


def _columnar(type_: Json) -> bool:
    """Return True if polars reads this type. It panics on maps and raises for unions of several types."""
    if isinstance(type_, list):
        return len(type_) - ("null" in type_) == 1 and all(_columnar(branch) for branch in type_)
    if not isinstance(type_, dict):
        return True
    kind = type_["type"]
    if kind == "record":
        return all(_columnar(item["type"]) for item in cast("list[dict[str, Json]]", type_["fields"]))
    if kind == "array":
        return _columnar(type_["items"])
    return kind != "map" and (not isinstance(kind, (dict, list)) or _columnar(kind))


def _decode_columns(writer: _Writer, count: int, body: memoryview) -> pa.Table | None:
    container = avro.encode_container(writer.header, count, body)
    try:
        frame = pl.read_avro(io.BytesIO(container))
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    table = frame.to_arrow()
    _check_lengths(table[_LENGTH], count, len(body))
    return table.drop_columns([_LENGTH])


def _check_lengths(lengths: pa.ChunkedArray, count: int, size: int) -> None:
    total = 0
    for chunk in lengths.chunks:
        data = b"".join(chunk.to_pylist()) if not pa.types.is_fixed_size_binary(chunk.type) else _fixed_bytes(chunk)
        total += int(np.frombuffer(data, ">i4").sum(dtype=np.int64))
    if len(lengths) != count or total + 4 * count != size:
        raise ValueError(f"{len(lengths)} of {count} records, {total + 4 * count} of {size} bytes")


def _fixed_bytes(chunk: pa.Array) -> memoryview:
    start = chunk.offset * 4
    return memoryview(chunk.buffers()[1])[start : start + 4 * len(chunk)]


def _decode_rows(writer: _Writer, count: int, body: memoryview, schema: str) -> pa.Table:
    stored = pa.schema(parse_record(schema))
    container = avro.encode_container(writer.header, count, body)
    rows = cast("list[dict[str, object]]", list(fastavro.reader(io.BytesIO(container))))
    lengths = pa.chunked_array([pa.array([row.pop(_LENGTH) for row in rows], pa.binary(4))])
    _check_lengths(lengths, count, len(body))
    return pa.Table.from_pylist(rows, stored)
