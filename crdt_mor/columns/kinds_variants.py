"""The family of Parquet's variants, such as Spark's VARIANT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.kind import Kind, kind_of, unsupported
from crdt_mor.columns.kinds_texts import Bytes
from crdt_mor.ground.late_imports import pc

_NAME: Final = "arrow.parquet.variant"
_PARTS: Final = ("metadata", "value")


class VariantType(pa.ExtensionType):  # type: ignore[misc]
    """Arrow's canonical type of variants, which pyarrow lacks."""

    def __init__(self) -> None:
        super().__init__(pa.struct([(part, pa.binary()) for part in _PARTS]), _NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> VariantType:
        return cls()

    def __hash__(self) -> int:
        return hash(_NAME)


VARIANT: Final = VariantType()


def is_marked(kind: pa.StructType) -> bool:
    """Return True for Spark's struct of a VARIANT."""
    return any(field.name == "metadata" and (field.metadata or {}).get(b"variant") == b"true" for field in kind)


class Variants(Kind):
    samples = (VARIANT,)
    stored_as = VARIANT.storage_type
    mixes = False
    is_ordered = False
    no_sum = "variants have no sum: declare the column with a type of numbers"
    polars_types: ClassVar = {VARIANT: stored_as}
    csv_types: ClassVar = {VARIANT: pa.string()}
    json_types: ClassVar = {VARIANT: pa.struct([(part, pa.string()) for part in _PARTS])}

    def declared(self, kind: pa.DataType, column: str) -> pa.DataType:
        if not self.accepts(kind, VARIANT):
            raise unsupported(kind, column, "write shredded variants with Spark, which hands them over whole")
        return VARIANT

    def spelled(self, kind: pa.DataType) -> str:
        return "variant"

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        return VARIANT if name == "variant" and not parameters else None

    def from_files(self, kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
        return VARIANT if kind == self.stored_as else kind

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        """Return True for the two parts of a variant. A shredded one has a third."""
        parts = given.storage_type if isinstance(given, pa.BaseExtensionType) else given
        if not pt.is_struct(parts) or {part.name for part in parts} != {*_PARTS}:
            return False
        return all(isinstance(kind_of(part.type), Bytes) for part in parts)

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        return [target]

    def require_whole(self, stored: pa.ChunkedArray) -> None:
        for chunk in stored.chunks:
            if any(pc.any(pc.and_not(chunk.is_valid(), chunk.field(part).is_valid())).as_py() for part in _PARTS):
                raise pa.ArrowInvalid("a variant without metadata or value")

    def from_reader(self, data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        if not pt.is_struct(data.type):
            raise pa.ArrowInvalid("a variant in text is an object of metadata and value, both base64")
        chunks = [
            pa.StructArray.from_arrays([_bytes(chunk.field(part)) for part in _PARTS], _PARTS, mask=chunk.is_null())
            for chunk in data.chunks
        ]
        return pa.chunked_array(chunks, self.stored_as).cast(kind)

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        return "make it a variant, as Spark's parse_json or VariantVal.parseJson of pyspark do"

    def way_out(self, kind: pa.DataType) -> str:
        return "make it text with Spark's to_json, or a type with variant_get"


def _bytes(texts: pa.Array) -> pa.Array:
    found = kind_of(pa.binary()).from_reader(pa.chunked_array([texts]), pa.binary())
    return found.combine_chunks()
