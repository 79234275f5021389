"""The base class of the families of column types, and the family of each type.

`crdt_mor.columns.kinds` registers the families: import from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.errors import InvalidInputError, SchemaMismatchError, page

Json = None | bool | int | str | list["Json"] | dict[str, "Json"]
Types: TypeAlias = Mapping[pa.DataType, pa.DataType]
Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Values = TypeVar("Values", pa.Scalar, pa.ChunkedArray)

KINDS: Final[dict[int | str, Kind]] = {}
"""The families by `type_id`."""

AS_NUMBER: Final = "cast to an integer, in the column's unit"
_APART: Final = "cast one side"
_OF_INTERVAL: Final = (
    "a month has no fixed length: cast to pa.duration, or write months, days and time in a column each"
)
_OF_VOID: Final = "no value says which type this is: cast the column to its later type, or drop it"


class Kind:
    """A family of types without inner types. `kind`, `left` and `declared` are types of the family."""

    __slots__ = ()

    samples: ClassVar[tuple[pa.DataType, ...]]
    """Its types, with some parameters, as in docs/types.md. Their Arrow type ids belong to the family."""

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
                "an ordering column must be a number, a string, a bool, a date, a timestamp, a time of day or a "
                f"duration. column={column} type={stored}"
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
        """Join with another family's type, if this family knows how."""
        return None

    def fits_other(self, batch: pa.DataType, declared: pa.DataType) -> bool:
        """Return True if `declared` holds every value of another family's `batch`."""
        joined = join(batch, declared)
        return joined is not None and kind_of(joined) is self and self.fits(joined, declared)

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        """Return the reason why the two do not join, and the next step; "" for the general one."""
        return ""

    def from_files(self, kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
        """Return the type of Hudi's values in a `declared` column. `kind`: their type in files, of any family."""
        return kind

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

    def require_whole(self, stored: pa.ChunkedArray) -> None:
        """Raise `pyarrow.ArrowInvalid` for values that readers cannot show."""

    def shown(self, stored: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
        return stored.cast(declared)

    def advice(self, given: pa.DataType, declared: pa.DataType) -> str:
        """Advise how to convert data of any type `given` to a `declared` column."""
        return kind_of(given).way_out(given)

    def way_out(self, kind: pa.DataType) -> str:
        """Advise how to convert values to another family's type."""
        return "cast to the column's type"


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
        if pt.is_interval(kind):
            return self.way_out(kind)
        return _OF_VOID if pt.is_null(kind) else f"cast to a type in {page('types')}"

    def in_csv(self, kind: pa.DataType) -> pa.DataType:
        return pa.string() if pt.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) else kind

    def in_json(self, kind: pa.DataType) -> pa.DataType:
        return pa.string() if pt.is_temporal(kind) else kind

    def from_reader(self, data: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        if isinstance(kind, pa.BaseExtensionType):
            data = kind_of(kind.storage_type).from_reader(data, kind.storage_type)
        return super().from_reader(data, kind)

    def apart(self, kind: pa.DataType, other: pa.DataType) -> str:
        if pt.is_struct(kind) and pt.is_struct(other):
            return "a struct without fields never gets any: add another column"
        if pt.is_map(kind) and pt.is_map(other):
            return "the keys of a map keep their type: cast the data's"
        return ""

    def way_out(self, kind: pa.DataType) -> str:
        if isinstance(kind, pa.UuidType):
            return f"cast to text, or to bytes, {kind.storage_type}"
        if pt.is_interval(kind):
            return _OF_INTERVAL
        return super().way_out(kind)


def unsupported(kind: pa.DataType, column: str, advice: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"Hudi tables cannot store this type: {advice}. column={column} type={kind}")


UNKNOWN: Final = _Unknown()


def type_id(kind: pa.DataType) -> int | str:
    """Return the key of a type's family in `KINDS`: types of one Arrow id differ in parameters only."""
    key: int | str = kind.extension_name if isinstance(kind, pa.BaseExtensionType) else kind.id
    return key


def kind_of(kind: pa.DataType) -> Kind:
    """Return the family of a type; `UNKNOWN` for types with inner types, and for types that no table can have."""
    return KINDS.get(type_id(kind), UNKNOWN)


def join(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    one, other = kind_of(left), kind_of(right)
    return one.join(left, right) if one is other else one.join_other(left, right) or other.join_other(right, left)


def fits(batch: pa.DataType, declared: pa.DataType) -> bool:
    one, other = kind_of(batch), kind_of(declared)
    return one.fits(batch, declared) if one is other else other.fits_other(batch, declared)


def apart(left: pa.DataType, right: pa.DataType) -> str:
    one, other = kind_of(left), kind_of(right)
    return one.apart(left, right) or other.apart(right, left) or _APART


def only(value: object, text: str) -> object:
    """Return a value that has only this text; raise ValueError for others, such as 07."""
    if str(value) != text:
        raise ValueError(text)
    return value
