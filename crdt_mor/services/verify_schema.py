"""The schema and the metadata of a data file, compared with the schema that its writer had.

A file of ours says its columns twice: in the Avro schema, for Hudi's readers, and in the Parquet schema.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from crdt_mor.columns.avro import parse_record
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.format.base_file import (
    AVRO_SCHEMA,
    CALENDAR,
    LATEST_REQUESTED,
    MAX_RECORD_KEY,
    MIN_RECORD_KEY,
    ORDER,
    Footer,
)
from crdt_mor.services.verify_told import Schemas

_KEYS: Final = frozenset((AVRO_SCHEMA, LATEST_REQUESTED, MAX_RECORD_KEY, MIN_RECORD_KEY, ORDER, *CALENDAR))


def metadata_fault(footer: Footer, schemas: Schemas) -> str | None:
    """Return how the metadata of a base file of ours differs from a writer's; None for no difference."""
    unknown = sorted(footer.metadata.keys() - _KEYS)
    if unknown:
        return f"it has metadata that no writer puts. keys={unknown}"
    wrong = {key for key, value in CALENDAR.items() if footer.metadata.get(key, value) != value}
    wrong |= {key for key in (LATEST_REQUESTED, ORDER) if footer.metadata.get(key) == ""}
    if wrong:
        return f"it has a metadata value that no writer puts. key={min(wrong)}"
    return schemas.fault(footer.metadata.get(AVRO_SCHEMA, ""))


def schema_fault(avro: str, parquet: pa.Schema) -> str | None:
    """Return how the Parquet schema of a file of ours differs from its Avro schema; None for no difference."""
    own = TableSchema(pa.schema([c for c in parse_record(avro) if c.name not in META_COLUMNS])).stored
    expected = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in own}
    if set(parquet.names) != expected.keys():
        others = sorted(set(parquet.names) ^ expected.keys())
        return f"its Parquet schema has other columns than its Avro schema. columns={others}"
    for column in parquet:
        if column.type != expected[column.name] or not column.nullable:
            return f"its Parquet schema has another type than its Avro schema. column={column.name} found={column.type}"
    return None
