"""Families of text and bytes."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.kind import Column, Kind, Values


class Texts(Kind):
    samples = (pa.string(), pa.large_string(), pa.string_view(), pa.json_())
    stored_as = pa.string()
    avro_types: ClassVar = {stored_as: "string"}
    polars_types: ClassVar = {pa.string_view(): stored_as}
    csv_types: ClassVar = {pa.string_view(): stored_as, pa.json_(): stored_as, pa.json_(pa.large_string()): stored_as}
    json_types: ClassVar = csv_types
    logical: ClassVar = {("string", "uuid"): stored_as}

    def may_be_key(self, kind: pa.DataType) -> bool:
        return True

    def path_value(self, text: str) -> object:
        return text

    def declared(self, kind: pa.DataType, column: str) -> pa.DataType:
        return kind.storage_type if isinstance(kind, pa.JsonType) else kind

    def from_texts(self, texts: Values, kind: pa.DataType) -> Values:
        return texts.cast(self.declared(kind, "")).cast(kind)

    def takes_all(self, declared: pa.DataType) -> bool:
        return True


class Bytes(Kind):
    samples = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4))
    stored_as = pa.binary()
    avro_types: ClassVar = {stored_as: "bytes"}
    polars_types: ClassVar = {pa.binary_view(): stored_as}
    csv_types: ClassVar = polars_types
    is_text_in_json = True
    is_ordered = False
    python = bytes

    def key_texts(self, data: Column, kind: pa.DataType) -> Column | None:
        if pt.is_fixed_size_binary(kind):
            return None
        return pa.array([None if value is None else value.hex() for value in data.to_pylist()], pa.string())

    def to_json(self, value: Any) -> str:
        return b64encode(value).decode()

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        if name != "fixed_size_binary":
            return None
        (size,) = parameters
        return pa.binary(int(size)) if size.isdigit() else None

    def from_reader(self, data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """Decode the bytes of JSON texts (RFC 4648, section 4), as the command line prints them."""
        if not pt.is_string(data.type):
            return data.cast(kind)
        values = [None if text is None else _decoded(text) for text in data.to_pylist()]
        return pa.chunked_array([pa.array(values, pa.binary()).cast(kind)])

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return self.takes_all(declared) or bool(batch == declared)

    def takes_all(self, declared: pa.DataType) -> bool:
        return not pt.is_fixed_size_binary(declared)

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        sized = given != declared and not self.takes_all(declared)
        return [pa.binary(), declared, target] if sized else super().steps(given, declared, target)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise pa.ArrowInvalid(
            f"bytes in JSON are base64 text, and this is not: {error}. value={text[:40]!r}"
        ) from error
