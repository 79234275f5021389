"""Convert Arrow types and batches of a table to Spark's, and back.

Spark has fewer types. It reads an unsigned integer as the next wider signed one, a dictionary as its values, each kind
of list as an array, a duration as an interval, and a time of day as microseconds since midnight. A time without a zone
is a `timestamp_ntz`, one with a zone a `timestamp`.

Fields inside a column are nullable, whatever a table or frame declares: a null struct contains nulls in NOT NULL
fields, in both systems.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from crdt_mor.errors import SchemaMismatchError
from crdt_mor.readers.spark.versions import SPARK

_SCALARS: dict[pa.DataType, st.DataType] = {
    pa.bool_(): st.BooleanType(), pa.int8(): st.ByteType(), pa.int16(): st.ShortType(), pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(), pa.uint8(): st.ShortType(), pa.uint16(): st.IntegerType(), pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0), pa.float16(): st.FloatType(), pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), st.StringType()),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), st.BinaryType()),
    **dict.fromkeys((pa.date32(), pa.date64()), st.DateType()),
    **dict.fromkeys(map(pa.duration, ("s", "ms", "us", "ns")), st.DayTimeIntervalType()),
}  # fmt: skip

NEVER_NULL = "crdt_mor.key"
"""Column metadata in Spark's catalog: the key, NOT NULL because every row has one."""

_MICROSECONDS = pa.time64("us")

BATCH_BYTES = 4 << 20
"""A batch crosses to the JVM whole. At 1 MiB its overhead shows; above 16 MiB, the JVM allocates memory for each."""


def spark_schema(schema: pa.Schema) -> st.StructType:
    return st.StructType([st.StructField(f.name, spark_type(f.type), f.nullable) for f in schema])


def spark_type(kind: pa.DataType) -> st.DataType:
    """Return the Spark type that holds every value of a table's type."""
    if (scalar := _SCALARS.get(kind)) is not None:
        return scalar
    if pt.is_fixed_size_binary(kind):
        return st.BinaryType()
    if pt.is_time(kind):
        return st.LongType()  # Spark before 4.1 has no type for it
    if pt.is_timestamp(kind):
        return st.TimestampNTZType() if kind.tz is None else st.TimestampType()
    if pt.is_decimal(kind):
        return st.DecimalType(kind.precision, kind.scale)
    if pt.is_dictionary(kind):
        return spark_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return st.VariantType()
    if pt.is_struct(kind):
        return st.StructType([st.StructField(field.name, spark_type(field.type)) for field in kind])
    if pt.is_map(kind):
        return st.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    return st.ArrayType(spark_type(kind.value_type))


def check_schema(requested: st.StructType, available: st.StructType) -> None:
    columns = {field.name: field for field in available}
    unknown = [name for name in requested.names if name not in columns]
    if unknown:
        raise SchemaMismatchError(
            "the schema that was asked for has columns that are not there. "
            f"available={available.names} unknown={unknown}"
        )
    for field in requested:
        column = columns[field.name]
        if field.dataType != column.dataType:
            raise SchemaMismatchError(
                "the schema that was asked for has another type for a column: ask for the table's, and cast the frame. "
                f"column={field.name} asked={field.dataType.simpleString()} table={column.dataType.simpleString()}"
            )
        if column.nullable and not field.nullable and NEVER_NULL not in field.metadata:
            raise SchemaMismatchError(
                f"the schema that was asked for says NOT NULL of a column that may be null. column={field.name}"
            )


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark requires for batches of these columns."""
    return to_arrow_schema(schema, timezone="UTC") if SPARK >= (4, 2) else to_arrow_schema(schema)


_OPAQUE = {
    "GeometryType": "binary with st_asbinary",
    "GeographyType": "binary with st_asbinary",
    "YearMonthIntervalType": "a number of months, cast(cast(c AS interval month) AS int): Spark returns no such "
    "interval from a data source in Python",
    "CalendarIntervalType": "an interval of days to seconds, or numbers of its months, days and microseconds, in a "
    "column each: Spark lets no data source hold it",
}
"""Spark types without an Arrow type, by class (older releases lack some), and a substitute.

pyspark converts some of them to Arrow structs, so they would come back as structs.
"""


def written_schema(schema: st.StructType, table: pa.Schema) -> pa.Schema:
    """Return the table's columns for a frame; raise `SchemaMismatchError` for types that no table supports.

    table: its columns. For a time of day, a bigint is accepted as microseconds since midnight, as reads return it.
    """
    for field in schema:
        _refuse_opaque(field.name, field.dataType)
    kinds = dict(zip(table.names, table.types, strict=True))
    columns = [field.with_type(_nullable_inside(field.type)) for field in arrow_schema(schema)]
    return pa.schema([_with_times(field, kinds.get(field.name)) for field in columns])


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    """Make all inner fields nullable. A null struct contains nulls, which Arrow does not cast to NOT NULL fields."""
    if pt.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_field))
    return pa.list_(_nullable(kind.value_field)) if pt.is_list(kind) else kind


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable_inside(field.type)).with_nullable(True)


def _with_times(field: pa.Field, kind: pa.DataType | None) -> pa.Field:
    return field if kind is None else field.with_type(_type_with_times(field.type, kind))


def _type_with_times(written: pa.DataType, kind: pa.DataType) -> pa.DataType:
    if pt.is_time(kind):
        return _MICROSECONDS if pt.is_int64(written) else written
    if pt.is_struct(written) and pt.is_struct(kind):
        kinds = {field.name: field.type for field in kind}
        return pa.struct([_with_times(field, kinds.get(field.name)) for field in written])
    if pt.is_map(written) and pt.is_map(kind):
        key = _type_with_times(written.key_type, kind.key_type)
        return pa.map_(key, _with_times(written.item_field, kind.item_type))
    if pt.is_list(written) and isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return pa.list_(_with_times(written.value_field, kind.value_type))
    return written


def _refuse_opaque(name: str, kind: st.DataType) -> None:
    way_out = _OPAQUE.get(type(kind).__name__)
    if way_out is not None:
        raise SchemaMismatchError(
            f"no table holds this type of Spark's: make it {way_out}. column={name} type={kind.simpleString()}"
        )
    match kind:
        case st.StringType() if not kind.isUTF8BinaryCollation():
            raise SchemaMismatchError(
                "a table compares texts by their bytes, and holds no other collation: cast the column to string. "
                f"column={name} type={kind.simpleString()}"
            )
        case st.StructType():
            for field in kind:
                _refuse_opaque(f"{name}.{field.name}", field.dataType)
        case st.ArrayType():
            _refuse_inside(name, kind, kind.elementType)
        case st.MapType():
            _refuse_inside(name, kind, kind.keyType)
            _refuse_inside(name, kind, kind.valueType)


def _refuse_inside(name: str, whole: st.DataType, part: st.DataType) -> None:
    if isinstance(part, st.NullType):
        raise SchemaMismatchError(
            "no value says what type this holds, as of array(): cast the column, as to array<string>. "
            f"column={name} type={whole.simpleString()}"
        )
    _refuse_opaque(name, part)


def fitted(batches: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [_cast(batch.column(field.name), field.type) for field in schema]
        whole = pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch.select([])
        rows = max(1, BATCH_BYTES * whole.num_rows // max(1, whole.nbytes))
        for start in range(0, whole.num_rows, rows):
            yield whole.slice(start, rows)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pt.is_dictionary(column.type):  # of views, Arrow has no cast
        return column.dictionary.cast(kind).take(column.indices)
    if pt.is_time(column.type):
        return column.cast(_MICROSECONDS).cast(kind)
    nullable = _nullable_inside(kind)
    return column.cast(kind) if nullable == kind else pa.array(_Called(column.cast(nullable), kind))


class _Called:
    """An array as a type whose fields are not null. Arrow's cast refuses nulls below nulls."""

    def __init__(self, column: pa.Array, kind: pa.DataType) -> None:
        self._column, self._kind = column, kind

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        del requested_schema
        return self._kind.__arrow_c_schema__(), self._column.__arrow_c_array__()[1]
