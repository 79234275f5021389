"""The fixed settings of a table in `hoodie.properties`: key, partitions, buckets and merge.

Tables made by Hudi are read as they are; an unsupported feature raises an error with its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal

from crdt_mor.columns.schema import IS_DELETED, META_COLUMNS, TableSchema
from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedVersionError
from crdt_mor.model import config_properties as hoodie
from crdt_mor.model.config_merge import check_merge, merge_of_hudi, merge_properties, our_merge, unset_values
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.partition_functions import PartitionBy, from_text, to_text

SUPPORTED_VERSIONS: Final = (6, 8, 9)
WRITTEN_VERSION: Final = 9
_LAYOUT_TWO_FROM: Final = 8
"""From this table version on, Hudi's timeline has completion times and its own folder."""

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

_DEFAULT_DATABASE: Final = "default"
_BUCKETS_MAX: Final = 99_999_999  # a file id contains eight digits of the bucket

TableType = Literal["MERGE_ON_READ", "COPY_ON_WRITE"]


@dataclass(frozen=True)
class TableConfig:
    """The settings of a table that never change by themselves."""

    name: str
    key: KeySpec
    merge: MergeSpec = field(default_factory=MergeSpec)
    buckets: int | None = None
    """None: a table made by Hudi without the number."""
    version: int = WRITTEN_VERSION
    table_type: TableType = "MERGE_ON_READ"
    timeline_path: str = "timeline"
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    """As read from the file. Empty for a table not yet created."""

    def __reduce__(self) -> tuple[object, ...]:
        fields = self.name, self.key, self.merge, self.buckets, self.version, self.table_type, self.timeline_path
        return TableConfig, (*fields, dict(self.properties))

    @cached_property
    def ours(self) -> bool:
        return hoodie.OUR_VERSION in self.properties

    @cached_property
    def table_id(self) -> str | None:
        return self.properties.get(hoodie.OUR_ID)

    @cached_property
    def database(self) -> str | None:
        return self.properties.get(hoodie.DATABASE)

    @cached_property
    def layout_one(self) -> bool:
        """True for a read-only table, because Hudi's timeline lacks completion times."""
        return self.version < _LAYOUT_TWO_FROM

    @cached_property
    def was_upgraded(self) -> bool:
        """True if Hudi may have upgraded the table from a version with shared log files."""
        first = whole_number(self.properties.get(hoodie.INITIAL_VERSION, "").strip())
        known = first is not None and first >= _LAYOUT_TWO_FROM
        return not (self.ours or self.layout_one or known)

    @cached_property
    def history_path(self) -> str:
        """Hudi's archive, below its timeline's folder."""
        return self.properties.get(hoodie.HISTORY_PATH, "").strip() or "history"

    @cached_property
    def local_times(self) -> bool:
        """True if instants are in local time, Hudi's default."""
        return not self.ours and self.properties.get(hoodie.TIMEZONE, "").strip().upper() != "UTC"

    def require_utc(self, where: str) -> None:
        if self.local_times:
            raise InvalidInputError(
                "Hudi's writers use local time in this table and crdt-mor uses UTC, so older rows could win. Stop "
                f"these writers, set {hoodie.TIMEZONE}=UTC in hoodie.properties and open the table again. "
                f"Reading still works. table={where}"
            )

    def require_written_version(self) -> None:
        if self.version != WRITTEN_VERSION:
            raise InvalidInputError(
                f"tables of version {self.version} can be read, but not written: upgrade the table with Hudi to "
                f"version {WRITTEN_VERSION}. version={self.version}"
            )

    @cached_property
    def delete_markers(self) -> Mapping[str, str]:
        """Columns of a Hudi table, with the text that makes a log's row a delete."""
        if self.ours:
            return {}
        field, marker = (
            hoodie.merge_setting(self.properties, key) for key in (hoodie.DELETE_FIELD, hoodie.DELETE_MARKER)
        )
        return {IS_DELETED: "true", **({field: marker} if field and marker else {})}

    @cached_property
    def virtual_keys(self) -> bool:
        """True if the meta columns are empty, so readers compute the record keys."""
        return not hoodie.flag(self.properties, hoodie.META_FIELDS, default=True)

    @cached_property
    def unset_values(self) -> tuple[str | None, ...]:
        """The values in Hudi's logs that leave a column unchanged."""
        return () if self.ours else unset_values(self.properties, self.name)

    @cached_property
    def metadata_partitions(self) -> tuple[str, ...]:
        """The partitions of Hudi's metadata table. Hudi's readers see only the files that it lists."""
        return hoodie.names_in(self.properties.get(hoodie.METADATA_PARTITIONS, ""))

    def created_schema(self) -> TableSchema | None:
        if (text := self.properties.get(hoodie.OUR_SCHEMA)) is not None:
            return TableSchema.from_json(text)
        if (text := self.properties.get(hoodie.CREATE_SCHEMA)) is not None:
            return TableSchema.from_avro(text)
        return None

    def to_properties(self, schema: TableSchema, table_id: str, names: str = "") -> dict[str, str]:
        """Return the properties of a new table; raise `InvalidInputError` for invalid settings.

        The first property marks the table as ours, even in a truncated file.

        Args:
            schema: with stored column names.
            names: the property with the visible column names.
        """
        self.check_new(schema)
        return {
            hoodie.OUR_VERSION: hoodie.ENGINE_VERSION,
            hoodie.NAME: self.name,
            hoodie.DATABASE: _DEFAULT_DATABASE,
            hoodie.CHECKSUM: hoodie.checksum(_DEFAULT_DATABASE, self.name),
            hoodie.VERSION: str(WRITTEN_VERSION),
            hoodie.INITIAL_VERSION: str(WRITTEN_VERSION),
            hoodie.LAYOUT_VERSION: "2",
            hoodie.TIMELINE_PATH: self.timeline_path,
            hoodie.HISTORY_PATH: "history",
            hoodie.TIMEZONE: "UTC",
            hoodie.ARCHIVE_FOLDER: "archived",
            hoodie.TABLE_FORMAT: "native",
            hoodie.BASE_FORMAT: "PARQUET",
            hoodie.META_FIELDS: "true",
            **self._key_properties(),
            **self.told_of_merge(),
            hoodie.INDEX_TYPE: "BUCKET",
            hoodie.BUCKET_ENGINE: "SIMPLE",
            hoodie.CREATE_SCHEMA: schema.create_avro(self.name),
            hoodie.OUR_ID: table_id,
            hoodie.OUR_MERGE: str(self.merge),
            hoodie.OUR_BUCKETS: str(self.buckets),
            hoodie.OUR_SCHEMA: schema.to_json(),
            **({hoodie.OUR_NAMES: names} if names else {}),
        }

    def told_of_merge(self) -> dict[str, str]:
        """Return the properties that make Hudi's readers merge as ours do, or refuse."""
        return {hoodie.TYPE: "MERGE_ON_READ", **merge_properties(self.merge), hoodie.BUCKETS: str(self.buckets)}

    def _key_properties(self) -> dict[str, str]:
        key = self.key
        partition = {hoodie.PARTITION: ",".join(key.partition_columns)} if key.partition_by else {}
        functions = {hoodie.OUR_FUNCTIONS: to_text(key.partition_by)} if key.functions else {}
        prefixed = self.key.composite and len(self.key.fields) == 1
        return {
            hoodie.RECORD_KEY: ",".join(self.key.fields),
            **partition,
            **functions,
            hoodie.GENERATOR: self.key.keygen_type,
            # Hudi writers that ignore this property prefix keys of version 9 too.
            **({hoodie.KEY_ENCODING: "FIELD_PREFIXED"} if prefixed else {}),
            hoodie.HIVE_STYLE: hoodie.bool_text(self.key.hive_style),
            hoodie.URL_ENCODE: "false",
            hoodie.DROP_PARTITIONS: "false",
        }

    def check_new(self, schema: TableSchema) -> None:
        """Raise `InvalidInputError` if a new table cannot have these settings and columns."""
        if not _TABLE_NAME.fullmatch(self.name):
            raise InvalidInputError(
                f"a table name contains only letters, digits and _, and does not begin with a digit. name={self.name!r}"
            )
        if type(self.buckets) is not int or not 1 <= self.buckets <= _BUCKETS_MAX:
            raise InvalidInputError(f"a table has 1 to {_BUCKETS_MAX} buckets. buckets={self.buckets!r}")
        if self.version != WRITTEN_VERSION or self.table_type != "MERGE_ON_READ":
            got = f"type={self.table_type} version={self.version}"
            raise InvalidInputError(f"new tables must be MERGE_ON_READ and version {WRITTEN_VERSION}. {got}")
        of_hudi = self.key.generator or self.key.value_only or self.key.url_encode or self.key.hash_fields
        if of_hudi or self.merge.hudi_commit_time:
            raise InvalidInputError(f"a new table cannot have settings of old Hudi tables. key={self.key!r}")
        self.key.check_types(schema)
        check_merge(self.merge, self.key, schema)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], where: str) -> TableConfig:
        props = {key: value for key, value in properties.items() if value.strip()}
        version = _version(props, where)
        _refuse_features(props, where)
        ours = hoodie.OUR_VERSION in props
        config = cls(
            name=hoodie.required(props, hoodie.NAME, where),
            key=_key_spec(props, version, where),
            merge=our_merge(props, where) if ours else merge_of_hudi(props, where),
            buckets=_bucket_count(props, where),
            version=version,
            table_type=_table_type(props, where),
            # A timeline of layout 1 is directly in Hudi's folder, whatever the property says.
            timeline_path=props.get(hoodie.TIMELINE_PATH, "timeline") if version >= _LAYOUT_TWO_FROM else "",
            properties=MappingProxyType(dict(properties)),
        )
        if config.virtual_keys and config.key.is_foreign:
            generator = config.key.keygen_type
            raise hoodie.unsupported("a table without meta columns and with such keys", where, key_generator=generator)
        for name, folder in ((hoodie.TIMELINE_PATH, config.timeline_path), (hoodie.HISTORY_PATH, config.history_path)):
            if folder and not {"", ".", ".."}.isdisjoint(folder.split("/")):
                raise FormatError(f"this folder must be inside .hoodie: {name}={folder!r} table={where}")
        missing = [key for key in hoodie.of_ours(props) if key not in props] if ours else []
        if missing:
            raise FormatError(f"restore the damaged hoodie.properties. missing={missing[0]} table={where}")
        return config


# --- reading properties ---------------------------------------------------------------------------------------------


_KEEP_VERSION: Final = (
    "Downgrade the table to 9 with Hudi's CLI, and set hoodie.write.auto.upgrade=false and "
    "hoodie.write.table.version=9 in its writers."
)
"""From version 1.3 on, Hudi's writers upgrade tables to version 10 unless these options forbid it."""


def _version(props: Mapping[str, str], where: str) -> int:
    version = hoodie.integer(props, hoodie.VERSION, where)
    supported = [v for v in SUPPORTED_VERSIONS if v >= _LAYOUT_TWO_FROM or hoodie.OUR_VERSION not in props]
    if version not in supported:
        raise UnsupportedVersionError(
            "this release cannot read this table version. "
            f"{_KEEP_VERSION if version > supported[-1] else 'Upgrade the table with Hudi.'} "
            f"found={version} supported={supported} table={where}"
        )
    layout = "2" if version >= _LAYOUT_TWO_FROM else "1"
    if props.get(hoodie.LAYOUT_VERSION, layout).strip() != layout:
        raise UnsupportedVersionError(
            "the timeline has another layout than the table version. Let Hudi finish its upgrade or downgrade of the "
            "table; otherwise restore the damaged hoodie.properties. "
            f"version={version} {hoodie.LAYOUT_VERSION}={props[hoodie.LAYOUT_VERSION]} table={where}"
        )
    return version


def _refuse_features(props: Mapping[str, str], where: str) -> None:
    if props.get(hoodie.TABLE_FORMAT, "native").lower() != "native":
        raise hoodie.unsupported("a table format other than Hudi's own", where, format=props[hoodie.TABLE_FORMAT])
    base = props.get(hoodie.BASE_FORMAT, "PARQUET")
    if base.upper() != "PARQUET":
        raise hoodie.unsupported("base files other than Parquet", where, format=base)
    if hoodie.flag(props, hoodie.DROP_PARTITIONS, default=False):
        raise hoodie.unsupported("files without the partition columns", where)
    if props.get(hoodie.BUCKET_ENGINE, "SIMPLE").upper() != "SIMPLE":
        raise hoodie.unsupported("a bucket index other than SIMPLE", where, engine=props[hoodie.BUCKET_ENGINE])
    unset_values(props, where)
    known = {hoodie.MERGE_PROPERTY + key for key in (hoodie.DELETE_FIELD, hoodie.DELETE_MARKER, hoodie.UNAVAILABLE)}
    settings = sorted(key for key in props if key.startswith(hoodie.MERGE_PROPERTY) and key not in known)
    if settings:
        raise hoodie.unsupported("unknown settings of Hudi's merge", where, settings=settings)
    if hoodie.BOOTSTRAP in props:
        raise hoodie.unsupported("a bootstrapped table", where)


def _key_spec(props: Mapping[str, str], version: int, where: str) -> KeySpec:
    fields = hoodie.names_in(props.get(hoodie.RECORD_KEY, "")) or (META_COLUMNS[2],)
    # The custom generator's entries are `column:TYPE`.
    functions = from_text(props.get(hoodie.OUR_FUNCTIONS, "[]"))
    columns = (name.partition(":")[0] for name in hoodie.names_in(props.get(hoodie.PARTITION, "")))
    partition: PartitionBy = tuple(functions.get(name, name) for name in columns)
    class_name = props.get(hoodie.GENERATOR_CLASS, "").rsplit(".", 1)[-1]
    generator = props.get(hoodie.GENERATOR, _KEY_GENERATORS.get(class_name, class_name)).upper().removesuffix("_AVRO")
    if hoodie.flag(props, hoodie.SLASHED_DATES, default=False):
        generator = "SLASH_SEPARATED_DATE"
    if fields == (META_COLUMNS[2],):
        generator = "AUTO"  # without key fields, Hudi generates a key for each row
    try:
        derived = KeySpec(fields, partition).keygen_type
        return KeySpec(
            fields,
            partition,
            hive_style=hoodie.flag(props, hoodie.HIVE_STYLE, default=False),
            generator="" if generator == derived else generator,
            value_only=version >= WRITTEN_VERSION and props.get(hoodie.KEY_ENCODING, "").upper() == "VALUE_ONLY",
            url_encode=hoodie.flag(props, hoodie.URL_ENCODE, default=False),
            hash_fields=_hash_fields(props, fields),
        )
    except InvalidInputError as error:
        raise FormatError(f"{error} table={where}") from error


def _hash_fields(props: Mapping[str, str], fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key columns of the bucket hash, in key order. Empty: all."""
    named = hoodie.names_in(props.get(hoodie.HASH_FIELDS, ""))
    strange = tuple(name for name in named if name not in fields)
    hashed = (*(name for name in fields if name in named), *strange)
    return () if hashed == fields else hashed


def _bucket_count(props: Mapping[str, str], where: str) -> int | None:
    key = hoodie.OUR_BUCKETS if hoodie.OUR_BUCKETS in props else hoodie.BUCKETS
    if key not in props:
        return None
    count = hoodie.integer(props, key, where)
    if count < 1 or (hoodie.BUCKETS in props and hoodie.integer(props, hoodie.BUCKETS, where) != count):
        raise FormatError(
            "the bucket counts in hoodie.properties differ, so rows could go to wrong files: restore the file. "
            f"{key}={count} {hoodie.BUCKETS}={props.get(hoodie.BUCKETS)} table={where}"
        )
    return count


def _table_type(props: Mapping[str, str], where: str) -> TableType:
    match hoodie.required(props, hoodie.TYPE, where):
        case "MERGE_ON_READ":
            return "MERGE_ON_READ"
        case "COPY_ON_WRITE":
            return "COPY_ON_WRITE"
        case other:
            raise hoodie.unsupported("a table of another type", where, type=other)
