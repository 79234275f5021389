"""The entry of a Hudi table in a Hive metastore or in AWS Glue, as Hudi's `HiveSyncTool` writes it.

Names and types are as in the files. Spark reads its own schema in the parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.names import join_path

INPUT_FORMAT: Final = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
OUTPUT_FORMAT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
EXTERNAL: Final = "EXTERNAL_TABLE"
PROVIDER: Final = "spark.sql.sources.provider"

_SCHEMA: Final = "spark.sql.sources.schema"

_PART_MAX: Final = 4000
"""Characters of a parameter in Hive's database."""

_LEAVES: Final = {
    pa.bool_(): ("boolean", "boolean"), pa.int32(): ("int", "integer"), pa.int64(): ("bigint", "long"),
    pa.float32(): ("float", "float"), pa.float64(): ("double", "double"), pa.string(): ("string", "string"),
    pa.binary(): ("binary", "binary"), pa.date32(): ("date", "date"),
    pa.timestamp("us", "UTC"): ("bigint", "timestamp"),
}  # fmt: skip
"""Types of Hive and Spark. Hive 3 reads times of Parquet files as integers, so Hudi declares integers."""

Columns = tuple[tuple[str, str], ...]
"""Names and Hive types. Hive folds both to lower case."""

Values = tuple[str, ...]
"""A partition's value of each partition column."""


@dataclass(frozen=True, slots=True)
class HudiEntry:
    """An entry.

    Attributes:
        columns: without the partition columns.
        serde: parameters of the serde.
        partitions: address and columns of each partition.
    """

    location: str
    columns: Columns
    partition_columns: Columns
    parameters: Mapping[str, str]
    serde: Mapping[str, str]
    partitions: Mapping[Values, tuple[str, Columns]]

    def has_table_of(self, other: HudiEntry) -> bool:
        """Compare columns and parameters; this entry may have more parameters."""
        return (
            self.columns == other.columns
            and other.parameters.items() <= self.parameters.items()
            and other.serde.items() <= self.serde.items()
        )

    def missing(self, other: HudiEntry) -> Iterator[Values]:
        yield from (values for values in other.partitions if values not in self.partitions)

    def changed(self, other: HudiEntry) -> Iterator[Values]:
        both = self.partitions.keys() & other.partitions.keys()
        yield from (values for values in sorted(both) if self.partitions[values] != other.partitions[values])


def entry_of(location: str, stored: pa.Schema, key: KeySpec, partitions: Iterable[str]) -> HudiEntry:
    """Return the entry of a table. stored: its schema. partitions: the paths of all partitions."""
    if key.is_foreign:
        raise UnsupportedFeatureError(
            "this table's partitions are made by a key generator of Hudi's: register it with Hudi's HiveSyncTool. "
            f"key_generator={key.keygen_type} url_encode={key.url_encode}"
        )
    whole = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *stored])
    inner = [field for field in whole if field.name not in key.partition_columns]
    outer = [whole.field(name) for name in key.partition_columns]
    columns = _columns(inner)
    return HudiEntry(
        location,
        columns,
        _columns(outer),
        MappingProxyType({"EXTERNAL": "TRUE", **_of_spark([*inner, *outer], key.partition_columns)}),
        MappingProxyType({"serialization.format": "1", "hoodie.query.as.ro.table": "false", "path": location}),
        MappingProxyType({_values(path, key): (join_path(location, path), columns) for path in partitions if path}),
    )


def _columns(fields: Iterable[pa.Field]) -> Columns:
    return tuple((field.name.lower(), _hive(field.type).lower()) for field in fields)


def _values(path: str, key: KeySpec) -> Values:
    levels = path.split("/") if len(key.partition_columns) > 1 else [path]
    prefixes = [f"{name}=" if key.hive_style else "" for name in key.partition_columns]
    return tuple(level.removeprefix(prefix) for level, prefix in zip(levels, prefixes, strict=True))


def _of_spark(fields: Iterable[pa.Field], partition_fields: Values) -> dict[str, str]:
    schema = _json({"type": "struct", "fields": [_field(field) for field in fields]})
    parts = [schema[start : start + _PART_MAX] for start in range(0, len(schema), _PART_MAX)]
    found = {PROVIDER: "hudi", f"{_SCHEMA}.numParts": str(len(parts))}
    found |= {f"{_SCHEMA}.part.{number}": part for number, part in enumerate(parts)}
    if partition_fields:
        found[f"{_SCHEMA}.numPartCols"] = str(len(partition_fields))
    return found | {f"{_SCHEMA}.partCol.{n}": name for n, name in enumerate(partition_fields)}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _spark(field.type), "nullable": True, "metadata": {}}


def _spark(kind: pa.DataType) -> Any:
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [_field(field) for field in kind]}
    if pt.is_map(kind):
        value = _spark(kind.item_type)
        return {"type": "map", "keyType": _spark(kind.key_type), "valueType": value, "valueContainsNull": True}
    if pt.is_list(kind):
        return {"type": "array", "elementType": _spark(kind.value_type), "containsNull": True}
    return f"decimal({kind.precision},{kind.scale})" if pt.is_decimal(kind) else _LEAVES[kind][1]


def _hive(kind: pa.DataType) -> str:
    if pt.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{_hive(field.type)}' for field in kind)}>"
    if pt.is_map(kind):
        return f"map<{_hive(kind.key_type)},{_hive(kind.item_type)}>"
    if pt.is_list(kind):
        return f"array<{_hive(kind.value_type)}>"
    return f"decimal({kind.precision},{kind.scale})" if pt.is_decimal(kind) else _LEAVES[kind][0]


def plain_location(location: str) -> str:
    """Return an address in one spelling: catalogs write `file:/path` for `file:///path`, and Hive `s3a` for `s3`."""
    return re.sub(r"^(file:)?/+", "file:///", re.sub(r"^s3[an]://", "s3://", location)).rstrip("/")


def plain(entry: HudiEntry) -> HudiEntry:
    """Return an entry for comparison with others."""
    parameters = dict(entry.parameters)
    parts = [parameters.pop(name) for name in _names_of_parts(parameters)]
    parameters.pop(f"{_SCHEMA}.numParts", None)
    with suppress(ValueError):
        parameters[_SCHEMA] = _json(json.loads("".join(parts)))
    return HudiEntry(
        plain_location(entry.location),
        _folded(entry.columns),
        _folded(entry.partition_columns),
        parameters,
        {**entry.serde, "path": plain_location(entry.serde.get("path", ""))},
        {values: (plain_location(there), _folded(columns)) for values, (there, columns) in entry.partitions.items()},
    )


def _folded(columns: Columns) -> Columns:
    return tuple((name.lower(), kind.lower()) for name, kind in columns)


def _names_of_parts(parameters: Mapping[str, str]) -> list[str]:
    count = parameters.get(f"{_SCHEMA}.numParts", "")
    names = [f"{_SCHEMA}.part.{number}" for number in range(int(count) if count.isascii() and count.isdigit() else 0)]
    return [name for name in names if name in parameters]


def _json(found: Any) -> str:
    return json.dumps(found, separators=(",", ":"))
