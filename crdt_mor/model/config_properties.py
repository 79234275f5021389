"""The properties in `hoodie.properties`: what each is called, and how what it says is read.

This is the only place where a key of Hudi's, `hoodie.*`, is spelled. A table that we made has keys of our own beside
them, `crdt_mor.*`. What they mean is said in `model.config`, and of merges in `model.config_merge`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.model.numbers import whole_number

ENGINE_VERSION: Final = "2"
_FIRST_VERSION: Final = "1"
"""Tables of this version have no id, and need not say their columns."""
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
OUR_VERSION: Final = "crdt_mor.version"
OUR_ID: Final = "crdt_mor.table.id"
OUR_RULES: Final = "crdt_mor.rules"


def checksum(database: str | None, table: str) -> str:
    """Hudi's checksum of a table's name; without a database the text begins with the dot."""
    return str(zlib.crc32(f"{database or ''}.{table}".encode()))


def of_ours(props: Mapping[str, str]) -> Sequence[str]:
    """The properties of ours that a table of ours has. One that has lost its id is known by that in the timeline."""
    return [OUR_MERGE, OUR_BUCKETS, *([] if props[OUR_VERSION] == _FIRST_VERSION else [OUR_SCHEMA])]


def merge_setting(props: Mapping[str, str], key: str) -> str:
    """A setting of Hudi's merge: since version 9 behind a prefix."""
    return props.get(MERGE_PROPERTY + key, props.get(key, "")).strip()


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list of columns or of parts, which commas separate."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def required(props: Mapping[str, str], key: str, where: str) -> str:
    """A property that each table has; raises `FormatError` where the table at `where` lacks it."""
    if key not in props:
        raise FormatError(f"the table's properties lack a key: restore them. missing={key} table={where}")
    return props[key]


def integer(props: Mapping[str, str], key: str, where: str) -> int:
    """A number from 0 up that each table has."""
    text = required(props, key, where)
    number = whole_number(text)
    if number is None:
        raise FormatError(f"the table's properties hold no number here: restore them. {key}={text!r:.99} table={where}")
    return number


def flag(props: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Whether a property is true, in any case of letters. default: what it is where the table does not say."""
    return props.get(key, bool_text(default)).strip().lower() == "true"


def bool_text(value: bool) -> str:
    """A truth value as Java writes it."""
    return "true" if value else "false"


def unsupported(feature: str, where: str, **values: object) -> UnsupportedFeatureError:
    """What is raised of a table that has this feature. values: what the properties say of it."""
    details = "".join(f" {name}={value}" for name, value in values.items())
    return UnsupportedFeatureError(f"this release cannot read {feature}: use Hudi's own reader.{details} table={where}")
