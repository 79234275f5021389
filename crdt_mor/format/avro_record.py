"""One Hudi record in an Avro container: the content of every non-empty file of Hudi's timeline.

The schemas in `schemas/` are Hudi's own, except for the notes (`doc`) on fields of plans. Strings and maps have the
property `avro.java.string`, because Java casts to String. Equal values give equal bytes, so all processes write the
same file. A file is read by its own schema; fields that it lacks are null.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.format import avro
from crdt_mor.format.avro import Json
from crdt_mor.format.avro_schemas import require_bounded
from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import fastavro
    from fastavro.types import Schema
else:
    fastavro = Late("fastavro")

Datum: TypeAlias = dict[str, object]
_CODECS: Final = ("null", "deflate")


class Kind:
    """A kind of file with the schema `schemas/<file>.avsc`; its header is made once.

    notes: header entries besides the schema, for facts without a place in the record.
    """

    def __init__(self, file: str, notes: Mapping[str, str] = MappingProxyType({})) -> None:
        self._file = file
        self._notes = notes

    @cached_property
    def name(self) -> str:
        return str(self._schema["name"])

    @cached_property
    def parsed(self) -> Schema:
        return fastavro.parse_schema(self._schema)

    @cached_property
    def header(self) -> bytes:
        return avro.container_header(json.dumps(self._schema, separators=(",", ":")), self._notes)

    @cached_property
    def _schema(self) -> dict[str, object]:
        text = resources.files("crdt_mor.format").joinpath("schemas", f"{self._file}.avsc").read_text("utf-8")
        schema: dict[str, object] = json.loads(text)
        return schema


def encode(kind: Kind, datum: Datum) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, kind.parsed, datum)
    return avro.encode_container(kind.header, 1, buffer.getvalue())


@contextmanager
def taking_fields(what: str, path: str) -> Iterator[None]:
    """Raise `FormatError` if the block meets fields of other types. what: the record, such as "savepoint"."""
    try:
        yield
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise FormatError(f"unreadable {what}: its fields differ from Hudi's: {error!r}. path={path}") from error


def notes_of(data: bytes, path: str) -> Mapping[str, str]:
    """Return the header of a file; raise `FormatError` if it is damaged."""
    try:
        found = fastavro.block_reader(io.BytesIO(data)).metadata
        return {str(key): str(value) for key, value in found.items()}
    except Exception as error:  # fastavro raises any error for such bytes
        raise FormatError(f"not an Avro container: {error!r}. path={path} size={len(data)}") from error


def decode(data: bytes, path: str, record: str) -> Datum:
    """Decode a file with one record of this name, by the schema in the file.

    Raises `FormatError` for damage or another record, `UnsupportedFeatureError` for a codec that Hudi does not use.
    """
    if data[:4] != avro.MAGIC:
        what = "an empty file" if not data else f"it begins with {data[:4]!r}"
        raise FormatError(f"not an Avro container: {what}. The file is damaged or not Hudi's. path={path}")
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        if reader.codec not in _CODECS:
            raise UnsupportedFeatureError(
                f"Avro codec not supported; known are null and deflate. codec={reader.codec} path={path}"
            )
        require_bounded(cast("Json", reader.writer_schema))
        name = str(cast("Mapping[str, object]", reader.writer_schema)["name"]).rpartition(".")[2]
        blocks = list(reader)
        counts = [block.num_records for block in blocks if block.num_records]
        # No union of these records has two branches with equal Python types, so fastavro's result is unambiguous.
        datums = [cast("Datum", datum) for block in blocks for datum in block] if counts == [1] else []
        bytes_left = any(block.bytes_.read(1) for block in blocks)  # type: ignore[attr-defined]  # not in its stubs
    except UnsupportedFeatureError:
        raise
    except Exception as error:  # fastavro raises any error for such bytes
        raise FormatError(f"damaged {record}: {error!r}. path={path} size={len(data)}") from error
    if name != record:
        raise FormatError(f"{record} expected, {name} found. path={path}")
    if len(datums) != 1:
        raise FormatError(f"one record expected, {sum(counts)} found. record={record} path={path}")
    if bytes_left:
        raise FormatError(f"bytes after the record. record={record} path={path}")
    return datums[0]
