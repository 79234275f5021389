"""Families of numbers and booleans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.kind import Column, Json, Kind, kind_of, only, unsupported
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.late_imports import pc

_DECIMAL_DIGITS: Final = 38
_DIGITS: Final = {32: 10, 64: 19}
"""Digits of stored integers, by their bits."""
_TOO_MANY: Final = (
    f"together they need more than {_DECIMAL_DIGITS} digits, the most of a decimal: cast the data to the column's type"
)

_ORDERING_DIGITS: Final = (23, 15)
"""Maximal digits before and after the point of a decimal ordering column.

Hudi's deletes store its value with scale 15 in 128 bits, which leaves 23.
"""


class Booleans(Kind):
    samples = (pa.bool_(),)
    stored_as = pa.bool_()
    avro_types: ClassVar = {stored_as: "boolean"}

    def may_be_partition(self, kind: pa.DataType) -> bool:
        return True

    def key_texts(self, data: Column, kind: pa.DataType) -> Column | None:
        return data.cast(pa.string())

    def path_value(self, text: str) -> object:
        return ("false", "true").index(text) == 1


class _Number(Kind):
    is_number = True

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        return kind_of(given).is_number


class Integers(_Number):
    samples = (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    )  # fmt: skip
    avro_types: ClassVar = {pa.int32(): "int", pa.int64(): "long"}
    is_bounded = True
    _BY_SIZE = (pa.uint8(), pa.int8(), pa.uint16(), pa.int16(), pa.uint32(), pa.int32(), pa.int64())

    def stored(self, kind: pa.DataType, column: str) -> pa.DataType:
        signed = pt.is_signed_integer(kind)
        if kind.bit_width < 32 or (signed and kind.bit_width == 32):
            return pa.int32()
        return pa.int64() if signed or kind.bit_width == 32 else pa.decimal128(20, 0)

    def may_be_key(self, kind: pa.DataType) -> bool:
        return bool(kind != pa.uint64())

    def path_value(self, text: str) -> object:
        return only(int(text), text)

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        if left == right:
            return left
        if pa.uint64() in (left, right):
            return self.stored(pa.uint64(), "")
        return next(kind for kind in self._BY_SIZE if self.fits(left, kind) and self.fits(right, kind))

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        grows = pt.is_signed_integer(declared) - pt.is_signed_integer(batch)
        return grows >= 0 and bool(batch.bit_width + grows <= declared.bit_width)

    def join_other(self, kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        """Count all integers of a stored type alike, so that joins are associative."""
        stored = self.stored(kind, "")
        if pt.is_floating(other):
            return pa.float64() if pt.is_int32(stored) else None
        digits = stored.precision if pt.is_decimal(stored) else _DIGITS[stored.bit_width]
        return _decimal(digits, 0, other) if pt.is_decimal(other) else None

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if pt.is_floating(other):
            return "no float holds every integer of 64 bits: cast the integers to floats, or the floats to integers"
        return _TOO_MANY if pt.is_decimal(other) else ""


class Floats(_Number):
    samples = (pa.float16(), pa.float32(), pa.float64())
    avro_types: ClassVar = {pa.float32(): "float", pa.float64(): "double"}
    csv_types: ClassVar = {pa.float16(): pa.string()}
    json_types: ClassVar = {pa.float16(): pa.float32()}

    def stored(self, kind: pa.DataType, column: str) -> pa.DataType:
        return pa.float64() if kind.bit_width == 64 else pa.float32()

    def spelled(self, kind: pa.DataType) -> str:
        return f"float{kind.bit_width}"

    def from_reader(self, data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        if not pt.is_float16(kind):
            return super().from_reader(data, kind)
        given = data.cast(pa.float32())
        halves = given.cast(kind)
        if pc.any(pc.and_(pc.is_inf(halves.cast(pa.float32())), pc.invert(pc.is_inf(given)))).as_py():
            raise pa.ArrowInvalid("a number is beyond those of halffloat")
        return halves

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        return super().join(left, right) or pa.float64()

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return bool(batch.bit_width <= declared.bit_width)


class Decimals(_Number):
    samples = (pa.decimal32(7, 2), pa.decimal64(15, 2), pa.decimal128(38, 10), pa.decimal256(38, 0))

    def stored(self, kind: pa.DataType, column: str) -> pa.DataType:
        if kind.precision > _DECIMAL_DIGITS:
            raise unsupported(kind, column, f"a decimal has at most {_DECIMAL_DIGITS} digits")
        if not 0 <= kind.scale <= kind.precision:
            raise unsupported(kind, column, "the scale of a decimal lies between 0 and its precision")
        return pa.decimal128(kind.precision, kind.scale)

    def is_stored(self, kind: pa.DataType) -> bool:
        return bool(pt.is_decimal128(kind))

    def avro(self, stored: pa.DataType, namespace: str) -> Json:
        size = decimal_bytes(stored.precision)
        return {
            "type": "fixed", "name": "fixed", "namespace": namespace, "size": size, "logicalType": "decimal",
            "precision": stored.precision, "scale": stored.scale,
        }  # fmt: skip

    def from_avro(self, base: str, logical: str, schema: Mapping[str, Json]) -> pa.DataType | None:
        if logical != "decimal" or base not in ("fixed", "bytes"):
            return None
        return pa.decimal128(*map(whole, (schema["precision"], schema.get("scale", 0))))

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        return left if left == right else _decimal(left.precision - left.scale, left.scale, right)

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return bool(self.join(batch, declared) in (declared, self.stored(declared, "")))

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if pt.is_floating(other):
            return "floats round decimals: cast the data to the column's type"
        return _TOO_MANY if pt.is_decimal(other) else ""

    def key_texts(self, data: Column, kind: pa.DataType) -> Column | None:
        return data.cast(pa.string())

    def require_ordered(self, stored: pa.DataType, column: str) -> None:
        before, after = _ORDERING_DIGITS
        if stored.precision - stored.scale > before or stored.scale > after:
            raise InvalidInputError(
                f"a decimal ordering column may have {before} digits before the point and {after} after it, as Hudi's "
                f"deletes hold no more: declare fewer. column={column} type={stored}"
            )

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        if name not in ("decimal", "decimal32", "decimal64", "decimal128", "decimal256"):
            return None
        precision, scale = map(int, parameters)
        return getattr(pa, "decimal128" if name == "decimal" else name)(precision, scale)

    def in_polars(self, kind: pa.DataType) -> pa.DataType:
        return pa.decimal128(kind.precision, kind.scale) if pt.is_decimal256(kind) else kind

    def in_csv(self, kind: pa.DataType) -> pa.DataType:
        return kind if pt.is_decimal128(kind) else pa.string()

    def in_json(self, kind: pa.DataType) -> pa.DataType:
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= _DECIMAL_DIGITS else kind

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        return super().accepts(given, declared) and not pt.is_floating(given)


def _decimal(digits: int, scale: int, other: pa.DataType) -> pa.DataType | None:
    before, after = max(digits, other.precision - other.scale), max(scale, other.scale)
    return pa.decimal128(before + after, after) if before + after <= _DECIMAL_DIGITS else None


def decimal_bytes(precision: int) -> int:
    """Return the bytes of a signed number with `precision` digits, as in parquet-mr."""
    return int((10**precision - 1).bit_length() // 8 + 1)


def whole(value: Json) -> int:
    if not isinstance(value, int):
        raise TypeError(f"no number: {value!r}")
    return value
