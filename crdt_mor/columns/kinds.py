"""The families of column types, an object each: `kind_of` finds the family of a type.

A `Kind` defines how its types are stored, spelled, cast, widened, parsed and used in keys. Other modules of this room
apply this inside lists, structs, maps and dictionaries. The defaults suit a type that Arrow casts to its stored type
and back. To add a type, add a family here (ARCHITECTURE.md).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Final, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from crdt_mor.ground.late_imports import pc

TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIME: Final = pa.time64("us")
"""The declared type of a time of day, stored as microseconds since midnight."""

_DECIMAL_DIGITS: Final = 38
_APART: Final = "cast one side"
_DIGITS: Final = {32: 10, 64: 19}
"""Digits of stored integers, by their bits."""
_TOO_MANY: Final = (
    f"together they need more than {_DECIMAL_DIGITS} digits, the most of a decimal: cast the data to the column's type"
)
_UNITS: Final = {"s": 0, "ms": 1, "us": 2, "ns": 3}
_AS_NUMBER: Final = "cast to an integer, in the column's unit"
_OFFSET: Final = re.compile(r"[+-]([01][0-9]|2[0-3]):[0-5][0-9]")
"""A time zone given as an offset from UTC."""


_ORDERING_DIGITS: Final = (23, 15)
"""Maximal digits before and after the point of a decimal ordering column.

Hudi's deletes store its value with scale 15 in 128 bits, which leaves 23.
"""

Json = None | bool | int | str | list["Json"] | dict[str, "Json"]
Types: TypeAlias = Mapping[pa.DataType, pa.DataType]
Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Values = TypeVar("Values", pa.Scalar, pa.ChunkedArray)


class Kind:
    """A family of types without inner types. `kind`, `left` and `declared` are types of the family."""

    __slots__ = ()

    samples: ClassVar[tuple[pa.DataType, ...]]
    """Its types, with some parameters, as docs/types.md lists them. Their Arrow type ids belong to the family."""

    stored_as: ClassVar[pa.DataType]
    """The type in files: one that Hudi's readers know."""

    mixes: ClassVar[bool] = True
    """False if the stored values of other families never mean the same, such as numbers beside times of day."""

    is_number: ClassVar[bool] = False

    is_bounded: ClassVar[bool] = False
    """True if a sum of stored values may lie outside of the declared type."""

    no_sum: ClassVar[str] = ""
    """The reason why payloads cannot add the values, for an error; empty: they can."""

    is_ordered: ClassVar[bool] = True
    """True if Hudi's readers order the stored values as we do."""

    polars_types: ClassVar[Types] = {}
    csv_types: ClassVar[Types] = {}
    json_types: ClassVar[Types] = {}
    """The types for polars and for Arrow's readers, if they differ."""

    is_text_in_json: ClassVar[bool] = False

    python: ClassVar[type | None] = None
    """The class of its values in Python, if `to_json` writes them in its own way."""

    avro_types: ClassVar[Mapping[pa.DataType, Json]] = {}
    """The Avro types of stored types."""

    logical: ClassVar[Mapping[tuple[str, str], pa.DataType]] = {}
    """The types of Avro types with a logical type, as any writer of Hudi has them."""

    unsound: ClassVar[str] = ""
    """The rule that invalid values break, for an error; empty: the general message suits."""

    def declared(self, kind: pa.DataType, column: str) -> pa.DataType:
        """Return the type that reads return; raise an error if no table can have the type."""
        self.stored(kind, column)
        return kind

    def inner(self, kind: pa.DataType) -> pa.DataType:
        """Return the type that reads return inside lists, structs and maps."""
        return kind

    def stored(self, kind: pa.DataType, column: str) -> pa.DataType:
        """Return the type in files; raise `SchemaMismatchError` if there is none."""
        return self.stored_as

    def in_polars(self, kind: pa.DataType) -> pa.DataType:
        """Return a type of polars for the same values."""
        return self.polars_types.get(kind, kind)

    def spelled(self, kind: pa.DataType) -> str:
        """Return the type's name in a table's schema; `type_named` parses it."""
        return str(kind)

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        """Return the type with a name that Arrow does not parse, or None; raise ValueError for wrong parameters."""
        return None

    # --- Avro ---------------------------------------------------------------------------------------------------------

    def is_stored(self, kind: pa.DataType) -> bool:
        """Return True if files contain the type itself."""
        return kind in self.avro_types

    def avro(self, stored: pa.DataType, namespace: str) -> Json:
        """Return the Avro type of a stored type; `namespace` is free for the names of Avro types."""
        return self.avro_types[stored]

    def from_avro(self, base: str, logical: str, schema: Mapping[str, Json]) -> pa.DataType | None:
        """Return the type for an Avro type with a logical type, if it is in the family."""
        return self.logical.get((base, logical))

    # --- keys and ordering columns ------------------------------------------------------------------------------------

    def may_be_key(self, kind: pa.DataType) -> bool:
        """Return True if all engines format the values alike."""
        return False

    def may_be_partition(self, kind: pa.DataType) -> bool:
        return self.may_be_key(kind)

    def key_texts(self, data: Column, kind: pa.DataType) -> Column | None:
        """Convert values to text as Hudi's upserts do; None if engines format them differently."""
        return data.cast(pa.string()) if self.may_be_key(kind) else None

    def from_key_texts(self, texts: pa.Array, stored: pa.DataType) -> pa.Array | None:
        """Convert texts of keys to stored values; None if engines format them differently."""
        return texts.cast(stored) if self.may_be_key(stored) else None

    def path_value(self, text: str) -> object:
        """Return the value in a partition's path; raise ValueError if it is not the only one with this text."""
        raise ValueError(text)

    def require_ordered(self, stored: pa.DataType, column: str) -> None:
        if not self.is_ordered:
            raise InvalidInputError(
                "an ordering column must be a number, a string, a bool, a date, a timestamp or a time of day. "
                f"column={column} type={stored}"
            )

    # --- values as text -----------------------------------------------------------------------------------------------

    def in_csv(self, kind: pa.DataType) -> pa.DataType:
        """Return the type for Arrow's CSV reader: the type itself, or text."""
        return self.csv_types.get(kind, kind)

    def in_json(self, kind: pa.DataType) -> pa.DataType:
        """Return the type for Arrow's JSON reader."""
        return pa.string() if self.is_text_in_json else self.json_types.get(kind, kind)

    def to_json(self, value: Any) -> str:
        """Return the JSON text of a value in Python; `from_texts` parses it."""
        return str(value)

    def from_reader(self, data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """Convert values of Arrow's readers; raise `pyarrow.ArrowInvalid` for other values."""
        return self.from_texts(data, kind) if pt.is_string(data.type) else data.cast(kind)

    def from_texts(self, texts: Values, kind: pa.DataType) -> Values:
        """Parse texts; raise `pyarrow.ArrowInvalid` for others."""
        return texts.cast(kind)

    # --- the types of two writers -------------------------------------------------------------------------------------

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        """Return the least type for values of both, or None; commutative and associative."""
        stored = self.stored(left, "")
        return None if stored != self.stored(right, "") else left if left == right else stored

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        """Return True if `declared` holds every value of `batch`."""
        return bool(self.stored(batch, "") == self.stored(declared, ""))

    def join_other(self, kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        """Return the least type for values of `kind` and of another family's `other`, if this family knows it."""
        return None

    def fits_other(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        """Return True if `declared` holds every value of another family's `batch`."""
        joined = join(batch, declared)
        return joined is not None and kind_of(joined) is self and self.fits(joined, declared)

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        """Return the reason why the two have no join, and the next step; "" for none of its own."""
        return ""

    # --- casts --------------------------------------------------------------------------------------------------------

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        """Return True if values of any type `given` may convert to `declared`; values are checked later."""
        other = kind_of(given)
        if other is not self and not (self.mixes and other.mixes):
            return False
        try:
            return bool(other.stored(given, "") == self.stored(declared, ""))
        except SchemaMismatchError:
            return False

    def takes_all(self, declared: pa.DataType) -> bool:
        """Return True if each value of the stored type is a value of `declared`."""
        return False

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        """Return the casts from `given` to the stored type `target`, each checked by Arrow.

        The declared type comes first: 300 in an int8 column could be stored, but not read back.
        """
        return [target] if self.takes_all(declared) else [declared, target]

    def shown(self, stored: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
        return stored.cast(declared)

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        """Advise how to convert data of any type `given` to a `declared` column."""
        return kind_of(given).way_out(given)

    def way_out(self, kind: pa.DataType) -> str:
        """Advise how to convert values to another family's type."""
        return "cast to the column's type"


class _Booleans(Kind):
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


class _Integers(_Number):
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
        return _only(int(text), text)

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
        """Join with floats and decimals. All integers of a stored type count alike, so that joins are associative."""
        stored = self.stored(kind, "")
        if pt.is_floating(other):
            return pa.float64() if pt.is_int32(stored) else None
        digits = stored.precision if pt.is_decimal(stored) else _DIGITS[stored.bit_width]
        return _decimal(digits, 0, other) if pt.is_decimal(other) else None

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if pt.is_floating(other):
            return "no float holds every integer of 64 bits: cast the integers to floats, or the floats to integers"
        return _TOO_MANY if pt.is_decimal(other) else ""


class _Floats(_Number):
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


class _Decimals(_Number):
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
    """Return the least decimal with so many digits before and after the point, and those of `other`."""
    before, after = max(digits, other.precision - other.scale), max(scale, other.scale)
    return pa.decimal128(before + after, after) if before + after <= _DECIMAL_DIGITS else None


class _Texts(Kind):
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


class _Bytes(Kind):
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


def _only(value: object, text: str) -> object:
    """Return a value that has only this text; raise ValueError for others, such as 07."""
    if str(value) != text:
        raise ValueError(text)
    return value


def decimal_bytes(precision: int) -> int:
    """Return the bytes of a signed number with `precision` digits, as in parquet-mr."""
    return int((10**precision - 1).bit_length() // 8 + 1)


def whole(value: Json) -> int:
    if not isinstance(value, int):
        raise TypeError(f"no number: {value!r}")
    return value


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise pa.ArrowInvalid(
            f"bytes in JSON are base64 text, and this is not: {error}. value={text[:40]!r}"
        ) from error


class _Dates(Kind):
    samples = (pa.date32(), pa.date64())
    stored_as = pa.date32()
    is_text_in_json = True
    avro_types: ClassVar = {stored_as: {"type": "int", "logicalType": "date"}}
    logical: ClassVar = {("int", "date"): stored_as}
    python = date  # and its subclass datetime, of timestamps

    def may_be_key(self, kind: pa.DataType) -> bool:
        return True

    def path_value(self, text: str) -> object:
        return _only(date.fromisoformat(text), text)

    def to_json(self, value: Any) -> str:
        return str(value.isoformat())

    def spelled(self, kind: pa.DataType) -> str:
        return str(kind).partition("[")[0]

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        return pa.date32() if name == "date" and [*parameters] in ([], ["day"]) else None

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if not pt.is_timestamp(other):
            return ""
        return (
            "Hudi's readers would show old dates as midnight in their session's zone: add a column of timestamps, fill "
            "it by update, and drop the dates"
        )

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        if pt.is_timestamp(given):  # polars' date64
            return pt.is_date64(declared) and given.tz is None
        return super().accepts(given, declared)

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        if pt.is_timestamp(given):
            return [pa.timestamp("ms"), pa.int64(), declared, target]
        return super().steps(given, declared, target)


class _TimesOfDay(Kind):
    samples = (pa.time32("s"), pa.time32("ms"), TIME, pa.time64("ns"))
    stored_as = pa.int64()
    is_text_in_json = True
    mixes = False
    unsound = "a time of day must lie between 00:00 and 24:00"
    no_sum = "times of day have no sum: declare the column int64"

    def inner(self, kind: pa.DataType) -> pa.DataType:
        return TIME

    def from_texts(self, texts: Values, kind: pa.DataType) -> Values:
        """Parse texts behind a date, because Arrow parses no time of day alone."""
        moments = pc.binary_join_element_wise(pa.scalar("1970-01-01T"), texts, pa.scalar(""))
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        return left if left == right else TIME

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return _UNITS[batch.unit] <= _UNITS[declared.unit]

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        return [declared, TIME, target]

    def shown(self, stored: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
        return stored.cast(TIME).cast(declared)

    def way_out(self, kind: pa.DataType) -> str:
        return _AS_NUMBER

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        if pt.is_nested(given):
            return super().advice(given, declared)
        return (
            "convert it to times of day, pa.time64, datetime.time or in SQL TIME '10:30:00', because the unit of a "
            "number is unknown; from Spark, a bigint of microseconds since midnight is accepted"
        )


class _Timestamps(Kind):
    samples = (
        *map(pa.timestamp, _UNITS), pa.timestamp("s", "UTC"), pa.timestamp("ms", "Asia/Tokyo"), TIMESTAMP,
        pa.timestamp("ns", "Europe/Berlin"),
    )  # fmt: skip
    stored_as = TIMESTAMP
    is_text_in_json = True
    avro_types: ClassVar = {stored_as: {"type": "long", "logicalType": "timestamp-micros"}}
    logical: ClassVar = {
        ("long", "timestamp-micros"): stored_as,
        ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
        ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    }

    def key_texts(self, data: Column, kind: pa.DataType) -> Column | None:
        return data.cast(pa.int64()).cast(pa.string())

    def from_key_texts(self, texts: pa.Array, stored: pa.DataType) -> pa.Array | None:
        return texts.cast(pa.int64()).cast(stored)

    def declared(self, kind: pa.DataType, column: str) -> pa.DataType:
        if kind.tz is not None:
            _require_zone(kind.tz, column)
        return kind

    def spelled(self, kind: pa.DataType) -> str:
        return str(kind).replace("tz=", "", 1)

    def named(self, name: str, parameters: Sequence[str]) -> pa.DataType | None:
        if name not in ("timestamp", "datetime"):
            return None
        if len(parameters) > 2:
            raise ValueError(parameters)
        unit, zone = [*(parameters or ["us"]), ""][:2]
        return pa.timestamp(unit, zone.removeprefix("tz=") or None)

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        if (left.tz is None) != (right.tz is None):
            return None  # the zone of a naive time would be a guess
        return left if left == right else pa.timestamp("us") if left.tz is None else TIMESTAMP

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if not pt.is_timestamp(other):
            return ""
        return "the zone of times without one would be a guess: add the zone to the data, or drop it"

    def fits(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return (batch.tz is None) == (declared.tz is None) and _UNITS[batch.unit] <= _UNITS[declared.unit]

    def fits_other(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        return pt.is_date(batch) and declared.tz is None

    def accepts(self, given: pa.DataType, declared: pa.DataType) -> bool:
        """Accept dates as midnight, if the column has no zone."""
        if pt.is_date(given):
            return declared.tz is None
        return pt.is_timestamp(given) and (given.tz is None) == (declared.tz is None)

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        if pt.is_date(given):
            return "convert the dates to timestamps in their time zone"
        if not pt.is_timestamp(given):
            return super().advice(given, declared)
        return "add the time zone of the data" if given.tz is None else "drop the data's time zone, as in the column"


def _require_zone(name: str, column: str) -> None:
    """Readers could not show a column in an unknown zone."""
    if not (name == "UTC" or _OFFSET.fullmatch(name) or _has_zone(name)) and _has_zone("UTC"):
        raise InvalidInputError(
            f"no such time zone: take a name like Europe/Berlin or UTC, or +02:00. column={column} zone={name!r}"
        )


def _has_zone(name: str) -> bool:
    """Return False for an unknown zone, and on a machine without a time zone database."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


class _Unknown(Kind):
    """The types that no table can have, and types with inner types."""

    samples = ()
    is_ordered = False

    def stored(self, kind: pa.DataType, column: str) -> pa.DataType:
        raise unsupported(kind, column, self._instead(kind))

    def _instead(self, kind: pa.DataType) -> str:
        if isinstance(kind, pa.BaseExtensionType):
            is_text = isinstance(kind, pa.UuidType)
            return self.way_out(kind) if is_text else f"cast to its storage type, {kind.storage_type}"
        if pt.is_duration(kind):
            return "cast to int64, and note the unit in the column's name or comment"
        return "give the column a type" if pt.is_null(kind) else "cast to a type in docs/types.md"

    def in_csv(self, kind: pa.DataType) -> pa.DataType:
        return pa.string() if pt.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) else kind

    def in_json(self, kind: pa.DataType) -> pa.DataType:
        return pa.string() if pt.is_temporal(kind) else kind

    def from_reader(self, data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        if isinstance(kind, pa.BaseExtensionType):
            data = kind_of(kind.storage_type).from_reader(data, kind.storage_type)
        return super().from_reader(data, kind)

    def way_out(self, kind: pa.DataType) -> str:
        if isinstance(kind, pa.UuidType):
            return f"cast to text, or to bytes, {kind.storage_type}"
        return _AS_NUMBER if pt.is_duration(kind) else super().way_out(kind)


def unsupported(kind: pa.DataType, column: str, advice: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"Hudi tables cannot store this type: {advice}. column={column} type={kind}")


# --- the registry -----------------------------------------------------------------------------------------------------

UNKNOWN: Final = _Unknown()
FAMILIES: Final[Sequence[Kind]] = (
    _Booleans(), _Integers(), _Floats(), _Texts(), _Bytes(), _Dates(), _TimesOfDay(), _Timestamps(), _Decimals(),
)  # fmt: skip
"""All families, in the order of docs/types.md."""


def type_id(kind: pa.DataType) -> int | str:
    """Return the key of a type's family in `KINDS`: types of one Arrow id differ in parameters only."""
    key: int | str = kind.extension_name if isinstance(kind, pa.BaseExtensionType) else kind.id
    return key


KINDS: Final[dict[int | str, Kind]] = {type_id(sample): kind for kind in FAMILIES for sample in kind.samples}


def kind_of(kind: pa.DataType) -> Kind:
    """Return the family of a type; `UNKNOWN` for types with inner types, and for types that no table can have."""
    return KINDS.get(type_id(kind), UNKNOWN)


OF_CLASS: Final[dict[type, Kind]] = {kind.python: kind for kind in FAMILIES if kind.python is not None}


def json_text(value: object) -> str:
    """Return the JSON text of a value in Python that JSON lacks."""
    family = next((OF_CLASS[one] for one in type(value).__mro__ if one in OF_CLASS), None)
    return str(value) if family is None else family.to_json(value)


def first_answer(ask: Callable[[Kind], pa.DataType | None]) -> pa.DataType | None:
    """Return the answer of the first family that has one."""
    return next((answer for kind in dict.fromkeys(KINDS.values()) if (answer := ask(kind)) is not None), None)


def join(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    one, other = kind_of(left), kind_of(right)
    return one.join(left, right) if one is other else one.join_other(left, right) or other.join_other(right, left)


def fits(batch: pa.DataType, declared: pa.DataType) -> bool:
    one, other = kind_of(batch), kind_of(declared)
    return one.fits(batch, declared) if one is other else other.fits_other(batch, declared)


def apart(left: pa.DataType, right: pa.DataType) -> str:
    """Return the reason why two types have no join, and the next step."""
    one, other = kind_of(left), kind_of(right)
    return one.apart(left, right) or other.apart(right, left) or _APART


# --- names ------------------------------------------------------------------------------------------------------------

_NAMED: Final = {
    name: kind for family in FAMILIES for kind in family.samples for name in (str(kind), family.spelled(kind))
}
_PARAMETERS: Final = re.compile(r"(\w+)[\[(]([^\])]*)[\])]")


def type_named(text: str) -> pa.DataType:
    """Parse a name as Arrow or `Kind.spelled` writes it; raise ValueError or TypeError for others."""
    if (known := _NAMED.get(text)) is not None:
        return known
    match = _PARAMETERS.fullmatch(text)
    name, inner = (match[1], match[2]) if match else (text, "")
    parameters = [part.strip() for part in inner.split(",") if part.strip()]
    return first_answer(lambda family: family.named(name, parameters)) or pa.type_for_alias(text)
