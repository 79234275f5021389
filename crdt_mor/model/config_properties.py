"""The names of the properties in `hoodie.properties`, and parsers for their values.

Only this module contains the names of Hudi's `hoodie.*` properties.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.model.numbers import whole_number

ENGINE_VERSION: Final = "2"
_FIRST_VERSION: Final = "1"
"""Tables of this version lack an id, and may lack the columns."""
ENGINE_VERSIONS_READ: Final = (_FIRST_VERSION, ENGINE_VERSION)

CHECKSUM: Final = "hoodie.table.checksum"
NAME: Final = "hoodie.table.name"
DATABASE: Final = "hoodie.database.name"
TYPE: Final = "hoodie.table.type"
VERSION: Final = "hoodie.table.version"
INITIAL_VERSION: Final = "hoodie.table.initial.version"
LAYOUT_VERSION: Final = "hoodie.timeline.layout.version"
CREATE_SCHEMA: Final = "hoodie.table.create.schema"
RECORD_KEY: Final = "hoodie.table.recordkey.fields"
PARTITION: Final = "hoodie.table.partition.fields"
GENERATOR: Final = "hoodie.table.keygenerator.type"
GENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"
KEY_ENCODING: Final = "hoodie.table.complex.keygenerator.encoding"
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
DROP_PARTITIONS: Final = "hoodie.datasource.write.drop.partition.columns"
SLASHED_DATES: Final = "hoodie.datasource.write.slash.separated.date.partitioning"
MERGE_MODE: Final = "hoodie.record.merge.mode"
STRATEGY_ID: Final = "hoodie.record.merge.strategy.id"
ORDERING: Final = "hoodie.table.ordering.fields"
PRECOMBINE: Final = "hoodie.table.precombine.field"
LEGACY_PAYLOAD: Final = "hoodie.table.legacy.payload.class"
PAYLOAD_CLASSES: Final = ("hoodie.compaction.payload.class", LEGACY_PAYLOAD)
PARTIAL_UPDATE: Final = "hoodie.table.partial.update.mode"
INDEX_TYPE: Final = "hoodie.index.type"
BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
BUCKETS: Final = "hoodie.bucket.index.num.buckets"
HASH_FIELDS: Final = "hoodie.bucket.index.hash.field"
PARTITION_BUCKETS: Final = "hoodie.bucket.index.partition.expressions"
TIMELINE_PATH: Final = "hoodie.timeline.path"
TIMEZONE: Final = "hoodie.table.timeline.timezone"
TABLE_FORMAT: Final = "hoodie.table.format"
BASE_FORMAT: Final = "hoodie.table.base.file.format"
META_FIELDS: Final = "hoodie.populate.meta.fields"
BOOTSTRAP: Final = "hoodie.bootstrap.base.path"
MERGE_PROPERTY: Final = "hoodie.record.merge.property."
DELETE_FIELD: Final = "hoodie.payload.delete.field"
DELETE_MARKER: Final = "hoodie.payload.delete.marker"
UNAVAILABLE: Final = "hoodie.write.partial.update.unavailable.value"
HISTORY_PATH: Final = "hoodie.timeline.history.path"
ARCHIVE_FOLDER: Final = "hoodie.archivelog.folder"
METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
METADATA_INFLIGHT: Final = "hoodie.table.metadata.partitions.inflight"
OUR_MERGE: Final = "crdt_mor.merge"
OUR_BUCKETS: Final = "crdt_mor.buckets"
OUR_SCHEMA: Final = "crdt_mor.schema"
OUR_NAMES: Final = "crdt_mor.names"
OUR_FUNCTIONS: Final = "crdt_mor.partition_functions"
OUR_VERSION: Final = "crdt_mor.version"
OUR_ID: Final = "crdt_mor.table.id"
OUR_RULES: Final = "crdt_mor.rules"


def checksum(database: str | None, table: str) -> str:
    """Return Hudi's checksum of a table name. Without a database, the hashed text begins with a dot."""
    return str(zlib.crc32(f"{database or ''}.{table}".encode()))


def of_ours(props: Mapping[str, str]) -> Sequence[str]:
    """Return our mandatory properties. A lost id is detected by the timeline's copy."""
    return [OUR_MERGE, OUR_BUCKETS, *([] if props[OUR_VERSION] == _FIRST_VERSION else [OUR_SCHEMA])]


def merge_setting(props: Mapping[str, str], key: str) -> str:
    """Return a setting of Hudi's merge. Since version 9 its name has a prefix."""
    return props.get(MERGE_PROPERTY + key, props.get(key, "")).strip()


def names_in(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def required(props: Mapping[str, str], key: str, where: str) -> str:
    if key not in props:
        raise FormatError(f"hoodie.properties lacks a property: restore the file. missing={key} table={where}")
    return props[key]


def integer(props: Mapping[str, str], key: str, where: str) -> int:
    text = required(props, key, where)
    number = whole_number(text)
    if number is None:
        raise FormatError(f"a property is not a number: restore hoodie.properties. {key}={text!r:.99} table={where}")
    return number


def flag(props: Mapping[str, str], key: str, *, default: bool) -> bool:
    return props.get(key, bool_text(default)).strip().lower() == "true"


def bool_text(value: bool) -> str:
    """Format a bool as Java does."""
    return "true" if value else "false"


def unsupported(feature: str, where: str, **values: object) -> UnsupportedFeatureError:
    details = "".join(f" {name}={value}" for name, value in values.items())
    return UnsupportedFeatureError(f"this release cannot read {feature}: use Hudi's own reader.{details} table={where}")
