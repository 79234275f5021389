"""The properties of a table in `hoodie.properties`; the only place where a `hoodie.*` key is spelled.

Tables that we made have `crdt_mor.*` keys beside Hudi's. Hudi's own keys name the rule under which its readers return
our rows (the table below). Where Hudi has no such rule they name one that its readers refuse, so that no reader merges
the rows in another way. Tables that Hudi made are read as they are, and whatever would need a rule that we do not have
is refused by name.

    our merge               Hudi's mode              ordering.fields
    latest                  EVENT_TIME_ORDERING      _hoodie_commit_time
    ordering:<column>       EVENT_TIME_ORDERING      <column>
    partial, or payloads    CUSTOM, our strategy id  -
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

import pyarrow as pa

from crdt_mor.columns.schema import IS_DELETED, META_COLUMNS, TableSchema
from crdt_mor.columns.types import TIMESTAMP
from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedFeatureError, UnsupportedVersionError
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.merge_spec import MergeSpec

SUPPORTED_VERSIONS: Final = (8, 9)
WRITTEN_VERSION: Final = 9
ENGINE_VERSION: Final = "2"
_ENGINE_VERSIONS_READ: Final = ("1", ENGINE_VERSION)  # "1": tables whose properties have no id

MERGE_STRATEGY_ID: Final = "6f7a3c52-9d1e-4b8a-8f60-2c5d71e0b943"
"""Our own merge strategy, for Hudi's CUSTOM mode: its readers refuse unmerged logs instead of merging them wrongly."""

_STRATEGY_MODES: Final = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": "COMMIT_TIME_ORDERING",
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": "EVENT_TIME_ORDERING",
}
_PAYLOAD_STRATEGY: Final = "00000000-0000-0000-0000-000000000000"
_PAYLOAD_MODES: Final = {
    "OverwriteWithLatestAvroPayload": "COMMIT_TIME_ORDERING",
    "DefaultHoodieRecordPayload": "EVENT_TIME_ORDERING",
    "EventTimeAvroPayload": "EVENT_TIME_ORDERING",
}
_KEY_GENERATORS: Final = {
    "SimpleKeyGenerator": "SIMPLE",
    "SimpleAvroKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "ComplexAvroKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "NonpartitionedAvroKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "TimestampBasedAvroKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
    "CustomAvroKeyGenerator": "CUSTOM",
}
_TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

CHECKSUM: Final = "hoodie.table.checksum"
NAME: Final = "hoodie.table.name"
DATABASE: Final = "hoodie.database.name"
_TYPE: Final = "hoodie.table.type"
_VERSION: Final = "hoodie.table.version"
_CREATE_SCHEMA: Final = "hoodie.table.create.schema"
_RECORD_KEY: Final = "hoodie.table.recordkey.fields"
_PARTITION: Final = "hoodie.table.partition.fields"
_GENERATOR: Final = "hoodie.table.keygenerator.type"
_GENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"
_KEY_ENCODING: Final = "hoodie.table.complex.keygenerator.encoding"
_HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
_URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
_MERGE_MODE: Final = "hoodie.record.merge.mode"
_STRATEGY_ID: Final = "hoodie.record.merge.strategy.id"
_ORDERING: Final = "hoodie.table.ordering.fields"
_PRECOMBINE: Final = "hoodie.table.precombine.field"
_PAYLOAD_CLASSES: Final = ("hoodie.compaction.payload.class", "hoodie.table.legacy.payload.class")
_PARTIAL_UPDATE: Final = "hoodie.table.partial.update.mode"
_INDEX_TYPE: Final = "hoodie.index.type"
_BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"
_TIMELINE_PATH: Final = "hoodie.timeline.path"
_TABLE_FORMAT: Final = "hoodie.table.format"
_MERGE_PROPERTY: Final = "hoodie.record.merge.property."
_DELETE_FIELD: Final = "hoodie.payload.delete.field"
_DELETE_MARKER: Final = "hoodie.payload.delete.marker"
_HISTORY_PATH: Final = "hoodie.timeline.history.path"
_METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
_OUR_MERGE: Final = "crdt_mor.merge"
_OUR_BUCKETS: Final = "crdt_mor.buckets"
_OUR_SCHEMA: Final = "crdt_mor.schema"
_OUR_VERSION: Final = "crdt_mor.version"
_OUR_ID: Final = "crdt_mor.table.id"

ORDERING_TYPES: Final = (
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.date32(), TIMESTAMP,
)  # fmt: skip
"""Stored types that Hudi's readers order as we do; decimals beside them."""

ORDERING_DIGITS: Final = (23, 15)
"""The digits before and after the point that a decimal may have by which versions are ordered: a delete carries its
value, and Hudi's deletes have decimals of scale 15, which in 128 bits leaves 23."""

_DEFAULT_DATABASE: Final = "default"
_BUCKETS_MAX: Final = 99_999_999  # a file id has eight digits for them

TableType = Literal["MERGE_ON_READ", "COPY_ON_WRITE"]


@dataclass(frozen=True, slots=True)
class TableConfig:
    """Everything about a table that never changes by itself."""

    name: str
    key: KeySpec
    merge: MergeSpec = field(default_factory=MergeSpec)
    buckets: int | None = None
    """None: a table of Hudi's whose properties do not have the number."""
    version: int = WRITTEN_VERSION
    table_type: TableType = "MERGE_ON_READ"
    timeline_path: str = "timeline"
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    """All properties of the file, as read; empty for a table that is about to be made."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled by its fields; a mapping proxy cannot be."""
        fields = self.name, self.key, self.merge, self.buckets, self.version, self.table_type, self.timeline_path
        return TableConfig, (*fields, dict(self.properties))

    @property
    def ours(self) -> bool:
        """Whether we made this table."""
        return _OUR_VERSION in self.properties

    @property
    def table_id(self) -> str | None:
        """The id that the table was made with, which no other table has; None: it was made without one."""
        return self.properties.get(_OUR_ID)

    @property
    def database(self) -> str | None:
        """The database's name, part of the checksum."""
        return self.properties.get(DATABASE)

    @property
    def history_path(self) -> str:
        """Where Hudi archives instants, below its timeline's folder."""
        return self.properties.get(_HISTORY_PATH, "").strip() or "history"

    @property
    def delete_markers(self) -> Mapping[str, str]:
        """Columns of a table of Hudi's, each with the text there that makes a row of a log a delete."""
        if self.ours:
            return {}
        field, marker = (_merge_property(self.properties, key) for key in (_DELETE_FIELD, _DELETE_MARKER))
        return {IS_DELETED: "true", **({field: marker} if field and marker else {})}

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """What Hudi keeps in a metadata table beside this one; its readers then see only the files listed there."""
        return _names(self.properties.get(_METADATA_PARTITIONS, ""))

    def created_schema(self) -> TableSchema | None:
        """The schema at creation: ours exactly as declared, Hudi's from Avro; None where the table does not say."""
        if (text := self.properties.get(_OUR_SCHEMA)) is not None:
            return TableSchema.from_json(text)
        if (text := self.properties.get(_CREATE_SCHEMA)) is not None:
            return TableSchema.from_avro(text)
        return None

    def to_properties(self, schema: TableSchema, table_id: str) -> dict[str, str]:
        """The properties of a new table of ours; whatever it could not keep is refused here."""
        self._check_new(schema)
        return {
            NAME: self.name,
            DATABASE: _DEFAULT_DATABASE,
            CHECKSUM: checksum(_DEFAULT_DATABASE, self.name),
            _TYPE: self.table_type,
            _VERSION: str(WRITTEN_VERSION),
            "hoodie.table.initial.version": str(WRITTEN_VERSION),
            "hoodie.timeline.layout.version": "2",
            _TIMELINE_PATH: self.timeline_path,
            _HISTORY_PATH: "history",
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.archivelog.folder": "archived",
            _TABLE_FORMAT: "native",
            "hoodie.table.base.file.format": "PARQUET",
            "hoodie.populate.meta.fields": "true",
            **self._key_properties(),
            **_hudi_merge(self.merge),
            _INDEX_TYPE: "BUCKET",
            _BUCKET_ENGINE: "SIMPLE",
            _BUCKETS: str(self.buckets),
            _CREATE_SCHEMA: schema.create_avro(self.name),
            _OUR_VERSION: ENGINE_VERSION,
            _OUR_ID: table_id,
            _OUR_MERGE: str(self.merge),
            _OUR_BUCKETS: str(self.buckets),
            _OUR_SCHEMA: schema.to_json(),
        }

    def _key_properties(self) -> dict[str, str]:
        partition = {_PARTITION: ",".join(self.key.partition_fields)} if self.key.partition_fields else {}
        prefixed = self.key.composite and len(self.key.fields) == 1
        return {
            _RECORD_KEY: ",".join(self.key.fields),
            **partition,
            _GENERATOR: self.key.keygen_type,
            # Hudi's writers that do not know this property prefix keys in tables of version 9 as well.
            **({_KEY_ENCODING: "FIELD_PREFIXED"} if prefixed else {}),
            _HIVE_STYLE: _bool_text(self.key.hive_style),
            _URL_ENCODE: "false",
            "hoodie.datasource.write.drop.partition.columns": "false",
        }

    def _check_new(self, schema: TableSchema) -> None:
        if not _TABLE_NAME.fullmatch(self.name):
            raise InvalidInputError(f"a table's name has letters, digits and _, and no digit first. name={self.name!r}")
        if type(self.buckets) is not int or not 1 <= self.buckets <= _BUCKETS_MAX:
            raise InvalidInputError(f"a table has 1 to {_BUCKETS_MAX} buckets. buckets={self.buckets!r}")
        if self.version != WRITTEN_VERSION or self.table_type != "MERGE_ON_READ":
            got = f"type={self.table_type} version={self.version}"
            raise InvalidInputError(f"new tables are merge on read, version {WRITTEN_VERSION}. {got}")
        if self.key.generator or self.key.value_only or self.key.url_encode or self.merge.hudi_commit_time:
            raise InvalidInputError(f"Hudi made older tables so; new ones follow its present rule. key={self.key!r}")
        self.key.check_types(schema)
        _check_ordering(self.merge.ordering, schema)
        _check_members(self, schema)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], where: str) -> TableConfig:
        """The config of the table at `where`; features that we lack raise an error that names them."""
        props = {key: value for key, value in properties.items() if value.strip()}
        version = _version(props, where)
        _refuse_features(props, where)
        ours = _OUR_VERSION in props
        config = cls(
            name=_required(props, NAME, where),
            key=_key_spec(props, version, where),
            merge=_our_merge(props, where) if ours else _merge_of_hudi(props, where),
            buckets=_bucket_count(props, where),
            version=version,
            table_type=_table_type(props, where),
            timeline_path=props.get(_TIMELINE_PATH, "timeline"),
            properties=MappingProxyType(dict(properties)),
        )
        for name, folder in ((_TIMELINE_PATH, config.timeline_path), (_HISTORY_PATH, config.history_path)):
            if not {"", ".", ".."}.isdisjoint(folder.split("/")):
                raise FormatError(f"a folder of the table lies below .hoodie: {name}={folder!r} table={where}")
        if ours and config.buckets is None:
            raise FormatError(f"the table's properties are damaged: restore them. missing={_OUR_BUCKETS} table={where}")
        return config


# --- the merge ----------------------------------------------------------------------------------------------------


def _hudi_merge(merge: MergeSpec) -> dict[str, str]:
    """The rule under which Hudi's own readers give our rows, or refuse."""
    if merge.custom:
        return {_MERGE_MODE: "CUSTOM", _STRATEGY_ID: MERGE_STRATEGY_ID}
    return {_MERGE_MODE: "EVENT_TIME_ORDERING", _ORDERING: merge.ordering or META_COLUMNS[0]}


def _check_ordering(ordering: str | None, schema: TableSchema) -> None:
    if ordering is None:
        return
    index = schema.declared.get_field_index(ordering)
    if index < 0:
        known = schema.declared.names
        raise InvalidInputError(f"the ordering names a column that is not there. column={ordering} columns={known}")
    kind = schema.stored.field(index).type
    if kind not in ORDERING_TYPES and not pa.types.is_decimal(kind):
        raise InvalidInputError(
            f"versions are ordered by a number, a string, a date or a timestamp. column={ordering} type={kind}"
        )
    before, after = ORDERING_DIGITS
    if pa.types.is_decimal(kind) and (kind.precision - kind.scale > before or kind.scale > after):
        raise InvalidInputError(
            f"a decimal that orders versions has at most {before} digits before the point and {after} after it, as "
            f"Hudi's deletes hold no others: declare fewer. column={ordering} type={kind}"
        )


def _check_members(config: TableConfig, schema: TableSchema) -> None:
    """The columns that have payloads are there, and are not what tells rows apart."""
    identity = {*config.key.fields, *config.key.partition_fields}
    for member in config.merge.columns:
        for name in member.columns:
            if name not in schema.declared.names:
                known = schema.declared.names
                raise InvalidInputError(f"merge names a column that is not there. column={name!r} columns={known}")
            if name in identity:
                raise InvalidInputError(
                    f"key and partition columns are never merged: they say which row it is. column={name!r}"
                )


def _our_merge(props: Mapping[str, str], where: str) -> MergeSpec:
    if props[_OUR_VERSION] not in _ENGINE_VERSIONS_READ:
        raise UnsupportedVersionError(
            "this table was made by a newer crdt_mor: upgrade. "
            f"found={props[_OUR_VERSION]} supported={ENGINE_VERSION} table={where}"
        )
    try:
        return MergeSpec.parse(_required(props, _OUR_MERGE, where))
    except InvalidInputError as error:
        raise FormatError(f"{_OUR_MERGE} is damaged: {error} table={where}") from error


def _merge_of_hudi(props: Mapping[str, str], where: str) -> MergeSpec:
    """The merge of a table that Hudi made: from its mode, else as Hudi infers it."""
    fields = [name.strip() for name in props.get(_ORDERING, props.get(_PRECOMBINE, "")).split(",") if name.strip()]
    mode = _merge_mode(props, bool(fields), where)
    if mode == "COMMIT_TIME_ORDERING":
        return MergeSpec(hudi_commit_time=True)
    if len(fields) > 1:
        raise _unsupported("several ordering fields", where, fields=fields)
    if not fields:
        raise FormatError(f"the table orders by event time, but names no ordering field: set one. table={where}")
    # A table of Hudi's own that orders by our column is one of ours in all but name: by commit time.
    return MergeSpec() if fields == [META_COLUMNS[0]] else MergeSpec("ordering", ordering=fields[0])


def _merge_mode(props: Mapping[str, str], has_ordering: bool, where: str) -> str:
    payload = next((props[key] for key in _PAYLOAD_CLASSES if key in props), None)
    known = None if payload is None else _PAYLOAD_MODES.get(payload.rsplit(".", 1)[-1])
    if payload is not None and known is None:
        raise _unsupported("a payload class of its own", where, payload_class=payload)
    mode, strategy = props.get(_MERGE_MODE), props.get(_STRATEGY_ID)
    if mode is None and strategy is not None:
        mode = _STRATEGY_MODES.get(strategy, "CUSTOM")
    if mode == "CUSTOM" and strategy == _PAYLOAD_STRATEGY and known is not None:
        mode = known
    mode = mode or known or ("EVENT_TIME_ORDERING" if has_ordering else "COMMIT_TIME_ORDERING")
    if mode not in ("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"):
        raise _unsupported("a merge of its own", where, mode=mode, strategy_id=strategy)
    return mode


# --- the rest -----------------------------------------------------------------------------------------------------


def checksum(database: str | None, table: str) -> str:
    """Hudi's checksum of a table's name; without a database the text begins with the dot."""
    return str(zlib.crc32(f"{database or ''}.{table}".encode()))


def _version(props: Mapping[str, str], where: str) -> int:
    version = _integer(props, _VERSION, where)
    if version not in SUPPORTED_VERSIONS:
        raise UnsupportedVersionError(
            "this release does not read tables of this version: up- or downgrade the table with Hudi. "
            f"found={version} supported={list(SUPPORTED_VERSIONS)} table={where}"
        )
    return version


def _merge_property(props: Mapping[str, str], key: str) -> str:
    """A setting of Hudi's merge: since version 9 behind a prefix."""
    return props.get(_MERGE_PROPERTY + key, props.get(key, "")).strip()


def _refuse_features(props: Mapping[str, str], where: str) -> None:
    if props.get(_TABLE_FORMAT, "native").lower() != "native":
        raise _unsupported("a table format other than Hudi's own", where, format=props[_TABLE_FORMAT])
    base = props.get("hoodie.table.base.file.format", "PARQUET")
    if base.upper() != "PARQUET":
        raise _unsupported("base files that are not Parquet", where, format=base)
    if not _flag(props, "hoodie.populate.meta.fields", default=True):
        raise _unsupported("a table without Hudi's meta columns", where)
    if _flag(props, "hoodie.datasource.write.drop.partition.columns", default=False):
        raise _unsupported("partition columns that are left out of the files", where)
    if props.get(_BUCKET_ENGINE, "SIMPLE").upper() != "SIMPLE":
        raise _unsupported("a bucket index other than the simple one", where, engine=props[_BUCKET_ENGINE])
    if _PARTIAL_UPDATE in props:
        raise _unsupported("a partial update mode of the table", where, mode=props[_PARTIAL_UPDATE])
    known = {_MERGE_PROPERTY + _DELETE_FIELD, _MERGE_PROPERTY + _DELETE_MARKER}
    settings = sorted(key for key in props if key.startswith(_MERGE_PROPERTY) and key not in known)
    if settings:
        raise _unsupported("settings of Hudi's merge that it does not know", where, settings=settings)
    if "hoodie.bootstrap.base.path" in props:
        raise _unsupported("a bootstrapped table", where)


def _key_spec(props: Mapping[str, str], version: int, where: str) -> KeySpec:
    fields = _names(props.get(_RECORD_KEY, "")) or (META_COLUMNS[2],)
    # The custom generator says `column:TYPE`.
    partition = tuple(name.partition(":")[0] for name in _names(props.get(_PARTITION, "")))
    class_name = props.get(_GENERATOR_CLASS, "").rsplit(".", 1)[-1]
    generator = props.get(_GENERATOR, _KEY_GENERATORS.get(class_name, class_name)).upper().removesuffix("_AVRO")
    if _flag(props, "hoodie.datasource.write.slash.separated.date.partitioning", default=False):
        generator = "SLASH_SEPARATED_DATE"
    if fields == (META_COLUMNS[2],):
        generator = "AUTO"  # nobody named a key, so Hudi makes one up for each row
    try:
        derived = KeySpec(fields, partition).keygen_type
        return KeySpec(
            fields,
            partition,
            hive_style=_flag(props, _HIVE_STYLE, default=False),
            generator="" if generator == derived else generator,
            value_only=version >= WRITTEN_VERSION and props.get(_KEY_ENCODING, "").upper() == "VALUE_ONLY",
            url_encode=_flag(props, _URL_ENCODE, default=False),
        )
    except InvalidInputError as error:
        raise FormatError(f"{error} table={where}") from error


def _bucket_count(props: Mapping[str, str], where: str) -> int | None:
    key = _OUR_BUCKETS if _OUR_BUCKETS in props else _BUCKETS
    if key not in props:
        return None
    count = _integer(props, key, where)
    if count < 1 or (_BUCKETS in props and _integer(props, _BUCKETS, where) != count):
        raise FormatError(
            "the table's bucket counts differ, and rows would land in the wrong files: restore the properties. "
            f"{key}={count} {_BUCKETS}={props.get(_BUCKETS)} table={where}"
        )
    return count


def _table_type(props: Mapping[str, str], where: str) -> TableType:
    match _required(props, _TYPE, where):
        case "MERGE_ON_READ":
            return "MERGE_ON_READ"
        case "COPY_ON_WRITE":
            return "COPY_ON_WRITE"
        case other:
            raise _unsupported("a table of another type", where, type=other)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _required(props: Mapping[str, str], key: str, where: str) -> str:
    if key not in props:
        raise FormatError(f"the table's properties lack a key: restore them. missing={key} table={where}")
    return props[key]


def _integer(props: Mapping[str, str], key: str, where: str) -> int:
    text = _required(props, key, where)
    if not (text.isascii() and text.isdigit()):
        raise FormatError(f"the table's properties hold no number here: restore them. {key}={text!r} table={where}")
    return int(text)


def _flag(props: Mapping[str, str], key: str, *, default: bool) -> bool:
    return props.get(key, _bool_text(default)).strip().lower() == "true"


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _unsupported(feature: str, where: str, **values: object) -> UnsupportedFeatureError:
    details = "".join(f" {name}={value}" for name, value in values.items())
    return UnsupportedFeatureError(f"this release cannot read {feature}: use Hudi's own reader.{details} table={where}")
