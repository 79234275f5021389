"""Compare the schema and metadata of a data file with its writer's schema.

Our files contain their columns twice: in the Avro schema, for Hudi's readers, and in the Parquet schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
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
from crdt_mor.model.field_ids import FieldIds, ids_in_file, with_field_ids
from crdt_mor.services.verify_told import Schemas

_KEYS: Final = frozenset((AVRO_SCHEMA, LATEST_REQUESTED, MAX_RECORD_KEY, MIN_RECORD_KEY, ORDER, *CALENDAR))


def metadata_fault(footer: Footer, schemas: Schemas) -> str | None:
    """Return how the metadata of our base file differs from a writer's; None if equal."""
    unknown = sorted(footer.metadata.keys() - _KEYS)
    if unknown:
        return f"unknown metadata. keys={unknown}"
    wrong = {key for key, value in CALENDAR.items() if footer.metadata.get(key, value) != value}
    wrong |= {key for key in (LATEST_REQUESTED, ORDER) if footer.metadata.get(key) == ""}
    if wrong:
        return f"an invalid metadata value. key={min(wrong)}"
    return schemas.fault(footer.metadata.get(AVRO_SCHEMA, ""))


def schema_fault(avro: str, parquet: pa.Schema) -> str | None:
    """Return how the Parquet schema of our file differs from its Avro schema; None if equal."""
    expected = _stored_types(avro)
    if set(parquet.names) != expected.keys():
        others = sorted(set(parquet.names) ^ expected.keys())
        return f"the Parquet schema and the Avro schema have different columns. columns={others}"
    for column in parquet:
        if column.type != expected[column.name] or not column.nullable:
            return f"the Parquet and Avro types of a column differ. column={column.name} found={column.type}"
    return None


def ids_fault(parquet: pa.Schema, ids: FieldIds) -> str | None:
    """Return how the ids of our file's columns differ from the table's; None if equal, or if the file has none."""
    found, expected = ids_in_file(parquet), ids_in_file(with_field_ids(parquet, ids))
    if not found or found == expected:
        return None
    wrong = min(path for path in {*found, *expected} if found.get(path) != expected.get(path))
    return (
        "the id of a column differs from the table's. "
        f"column={'.'.join(wrong)} id={expected.get(wrong)} found={found.get(wrong)}"
    )


@lru_cache(maxsize=64)
def _stored_types(avro: str) -> Mapping[str, pa.DataType]:
    own = TableSchema(pa.schema([c for c in parse_record(avro) if c.name not in META_COLUMNS])).stored
    return {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in own}
