"""One record of Hudi's in an Avro container: what every file of Hudi's timeline is, if it is not empty.

The schemas in `schemas/` are Hudi's own to the letter, but for the notes (`doc`) on fields of plans: every string and
map has the property `avro.java.string`, since Java casts to String. Equal values give equal bytes, so that all
processes that project an instant write the same file. A file of another Hudi release is read by the schema that it
carries: fields that it lacks are null.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
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
"""A record as fastavro takes and gives it: values by the names of Hudi's fields."""

_CODECS: Final = ("null", "deflate")


class Kind:
    """One kind of file, whose schema is `schemas/<file>.avsc`; what is needed to write it is made once, when it is.

    What we write carries the schema without its white space.
    notes: what the header of such a file says beside the schema, where the record itself has no place for it.
    """

    def __init__(self, file: str, notes: Mapping[str, str] = MappingProxyType({})) -> None:
        self._file = file
        self._notes = notes

    @cached_property
    def name(self) -> str:
        """The name of its record."""
        return str(self._schema["name"])

    @cached_property
    def parsed(self) -> Schema:
        """The schema as fastavro takes it."""
        return fastavro.parse_schema(self._schema)

    @cached_property
    def header(self) -> bytes:
        """How a file of this kind begins."""
        return avro.container_header(json.dumps(self._schema, separators=(",", ":")), self._notes)

    @cached_property
    def _schema(self) -> dict[str, object]:
        text = resources.files("crdt_mor.format").joinpath("schemas", f"{self._file}.avsc").read_text("utf-8")
        schema: dict[str, object] = json.loads(text)
        return schema


def encode(kind: Kind, datum: Datum) -> bytes:
    """The bytes of a file of this kind that holds `datum`."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, kind.parsed, datum)
    return avro.encode_container(kind.header, 1, buffer.getvalue())


def notes_of(data: bytes, path: str) -> Mapping[str, str]:
    """What the header of a file says, the schema among it; `FormatError` if that is damaged."""
    try:
        found = fastavro.block_reader(io.BytesIO(data)).metadata
        return {str(key): str(value) for key, value in found.items()}
    except Exception as error:  # fastavro raises whatever the bytes lead it to
        raise FormatError(f"not an Avro container: {error!r}. path={path} size={len(data)}") from error


def decode(data: bytes, path: str, record: str) -> Datum:
    """The datum of a file that holds one record of this name, read by the schema that the file carries.

    Raises `FormatError` if the file is empty, damaged or holds another record, `UnsupportedFeatureError` for a codec
    that Hudi does not use.
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
        # No union of our records has two branches that are alike in Python, so what fastavro returns is unambiguous.
        datums = [cast("Datum", datum) for block in blocks for datum in block] if counts == [1] else []
        bytes_left = any(block.bytes_.read(1) for block in blocks)  # type: ignore[attr-defined]  # not in its stubs
    except UnsupportedFeatureError:
        raise
    except Exception as error:  # fastavro raises whatever the bytes lead it to
        raise FormatError(f"damaged {record}: {error!r}. path={path} size={len(data)}") from error
    if name != record:
        raise FormatError(f"{record} expected, {name} found. path={path}")
    if len(datums) != 1:
        raise FormatError(f"one record expected, {sum(counts)} found. record={record} path={path}")
    if bytes_left:
        raise FormatError(f"bytes after the record. record={record} path={path}")
    return datums[0]
