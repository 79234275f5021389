"""A table: create or open it, write to it from any number of processes, read it.

`Table` is how a table is made and opened, and what it is. What reads it is `table_reads`, what writes to it
`table_writes`, and `job`, `update_parts` and `merge_into_parts` where many processes make one commit. There is no lock,
no coordinator and no retry loop to write: two writers of one key both succeed, and the table's merge decides what
readers see.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from crdt_mor.api.alteration import AlteredColumns
from crdt_mor.api.create import (
    Merge,
    default_name,
    in_stored_names,
    merge_spec,
    names_of,
    new_properties,
    payloads_there,
    put_properties,
    refuse_another_format,
    refuse_inside_a_table,
    warn_of_partitions,
)
from crdt_mor.api.create_again import Asked, start
from crdt_mor.api.data import SchemaLike, read_schema
from crdt_mor.api.job import WrittenByMany
from crdt_mor.api.merge_into_parts import MergedByMany
from crdt_mor.api.migration_status import warn_of_move
from crdt_mor.api.table_reads import TableReads
from crdt_mor.api.table_rules import TableRules, rules_to_make
from crdt_mor.api.table_writes import TableWrites
from crdt_mor.api.update_parts import UpdatedByMany
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, InvalidUseError
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.deadlines import operations
from crdt_mor.laws.allowed import allow_payloads
from crdt_mor.merge.payload import Payload
from crdt_mor.model import layout as layouts
from crdt_mor.model.alteration import property_of
from crdt_mor.model.authors import check_info
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.layout import LINEAR, Layout
from crdt_mor.model.policies import milliseconds
from crdt_mor.model.table_properties import checked_changes
from crdt_mor.store.addresses import place_of
from crdt_mor.store.open import store_at
from crdt_mor.store.protocol import Store, is_bucket
from crdt_mor.write.named import shown_config

if TYPE_CHECKING:
    from crdt_mor.api.inspect import Inspect
    from crdt_mor.api.load import OnProgress
    from crdt_mor.api.load_sources import LoadSource
    from crdt_mor.api.maintenance import Maintenance
    from crdt_mor.store.handed_stores import Handed

WRITER_EXPIRY = timedelta(minutes=10)


@operations
class Table(TableReads, TableWrites, WrittenByMany, UpdatedByMany, MergedByMany, TableRules, AlteredColumns):
    """A merge-on-read table: `Table("events")` opens one, `Table.create` makes one.

    It is an Arrow stream of its rows as they are now, for `pl.DataFrame(table)`, `pa.table(table)` and DuckDB, and no
    sequence of rows: to iterate, to index and to ask for its length raise `InvalidUseError`.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        payloads: Sequence[str | type[Payload]] = (),
        writer_expiry: timedelta = WRITER_EXPIRY,
        maintain: Literal["inline", "off"] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | Handed | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Open a table, as `Table.open` does."""
        if not isinstance(uri, str | os.PathLike):
            raise InvalidUseError(
                f"a table is opened by its address, a text or a path: Table('events'). type={type(uri).__name__}"
            )
        allow_payloads(*_payloads(payloads))
        inline = _inline(maintain)
        environment = environment or SystemEnvironment()
        objects = store_at(os.fspath(uri), environment, storage_options, store)
        session = Session.open(os.fspath(uri), environment, milliseconds("writer_expiry", writer_expiry), objects)
        session.inline = inline
        self._hold(session, str(uri), objects if store is not None else None)

    def _hold(self, session: Session, uri: str, store: Store | None) -> None:
        self._session = session
        self._store = session.store if store is None and is_bucket(session.store) else store
        self.uri = uri
        warn_of_move(session.views.sealed(look=True).moving)

    @classmethod
    def _of(cls, session: Session, uri: str, store: Store | None = None) -> Self:
        """The table of a session that is there already."""
        table = cls.__new__(cls)
        cls._hold(table, session, uri, store)
        return table

    @property
    def environment(self) -> Environment:
        """Where this table takes time and chance from; what waits for the table lets time pass here."""
        return self._session.environment

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: SchemaLike,
        *,
        key: str | Sequence[str],
        ordering: str | None = None,
        partition_by: str | Sequence[str] = (),
        hive_style: bool = True,
        buckets: int = 4,
        merge: Merge | None = None,
        not_null: str | Sequence[str] = (),
        check: Mapping[str, str] | None = None,
        default: Mapping[str, Any] | None = None,
        cluster_by: str | Sequence[str] = (),
        cluster_order: Literal["linear", "z-order"] = "linear",
        compression: Literal["zstd", "lz4"] = "zstd",
        name: str | None = None,
        exist_ok: bool = False,
        writer_expiry: timedelta = WRITER_EXPIRY,
        maintain: Literal["inline", "off"] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | Handed | None = None,
        environment: Environment | None = None,
    ) -> Table:
        """Create a table, without rows.

        uri: where: a local path, `file://`, `s3://bucket/path`, `gs://`, `az://`, `abfss://` (docs/stores.md); where a
            `store` is given, only the table's name in messages.
        schema: the columns: a pyarrow or polars schema, types by name like `{"id": pl.String}`; or a pyarrow, polars or
            pandas frame, a scan, another table, whose columns are taken and whose rows are NOT written: upsert them.
            What polars and pandas say becomes Arrow's ordinary types (`string`, not `large_string`). pandas' index is
            no column, unless it has a name.
        key: the column or columns that name a row; unique within its partition.
        ordering: the greatest value of this column wins, instead of the latest commit.
        partition_by: columns whose values make the folders; `hive_style` writes them as `column=value`. Those that the
            key does not name give a `PartitionNotInKeyWarning`: see `move`.
        buckets: file groups a partition; fixed for the table's life. One per few hundred MB of data is a good start.
        merge: payloads by column, `{"views": Counter(), ("price", "priced_at"): LatestBy("priced_at")}`, as objects or
            by name; all other columns take the latest commit's value, as all do by default. Or `PartialUpdate()`.
        not_null, check, default: rules that every row fulfils, as in `add_rules`: columns that have a value, conditions
            of SQL by name, {"positive": "price > 0"}, and values of columns that a write does not give.
        cluster_by: columns by which compaction sorts base files, most important first, so that filters on them read
            less; by default rows are in the order of their keys. `cluster_order="z-order"` gives up to four columns
            the same weight. Both are properties, `crdt_mor.cluster_by` and `crdt_mor.cluster_order`, which
            `set_properties` changes at any time.
        compression: of base files; "lz4" is read in about half the time, and takes half as much space again. It is the
            property `crdt_mor.compression`.
        exist_ok: open the table if there is one with the same columns and settings, as people see them now: a column
            that was renamed has its new name, a dropped one is left out, and one that was added may be. Anything else
            is an error, which names each difference.
        maintain, storage_options, store, environment: see `Table.open`.

        Raises `TableExistsError`, `InvalidInputError`, `SchemaMismatchError` (a type that cannot be stored);
        `UnsupportedFeatureError` where an object store has no put-if-absent, which is tried.
        """
        inline = _inline(maintain)
        environment = environment or SystemEnvironment()
        objects = store_at(uri, environment, storage_options, store)
        key_spec = KeySpec(names_of(key), names_of(partition_by), hive_style and bool(partition_by))
        warn_of_partitions(key_spec)
        spec = merge_spec(merge, ordering, payloads_there(objects, str(uri)) if exist_ok else ())
        config = TableConfig(name or default_name(uri), key_spec, spec, buckets)
        expiry_ms = milliseconds("writer_expiry", writer_expiry)
        layout = Layout.asked(names_of(cluster_by), cluster_order, compression)
        config, layout, columns, odd = in_stored_names(config, layout, read_schema(schema))
        rules, said = rules_to_make(not_null, check, default, config, columns, odd), property_of(odd)
        found, is_new = put_properties(
            objects, environment, str(uri), config, columns, exist_ok, layout, expiry_ms, rules, said
        )
        session = Session(objects, environment, found, expiry_ms, str(uri))
        session.inline = inline
        start(session, None if is_new else Asked.of(config, columns, layout, rules, odd))
        return cls._of(session, str(uri), objects if store is not None else None)

    @classmethod
    def create_from(
        cls,
        uri: str | os.PathLike[str],
        source: LoadSource,
        *,
        key: str | Sequence[str],
        schema: SchemaLike | None = None,
        rename: Mapping[str, str] | None = None,
        ordering: str | None = None,
        partition_by: str | Sequence[str] = (),
        hive_style: bool = True,
        buckets: int = 4,
        merge: Merge | None = None,
        not_null: str | Sequence[str] = (),
        check: Mapping[str, str] | None = None,
        default: Mapping[str, Any] | None = None,
        compression: Literal["zstd", "lz4"] = "zstd",
        name: str | None = None,
        commit_info: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
        writer_expiry: timedelta = WRITER_EXPIRY,
        maintain: Literal["inline", "off"] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | Handed | None = None,
        environment: Environment | None = None,
    ) -> Table:
        """Create a table with the rows of a source, of any size: it is there with all of them, or not at all.

        source: a path, a pattern or a list of paths, of Parquet or whatever `read_files` reads; a folder of Parquet
            files, whose levels like `day=2026-01-31` are columns; a Delta table (its folder, or a `DeltaTable`); an
            Iceberg table (its folder, a `Table` or a scan); or anything that a write takes. A reader, a dataset and a
            lazy frame are taken batch by batch. Paths may be addresses of object stores, to which `storage_options`
            lead as well; `read_files` and `DeltaTable` take other ones.
        key: the columns that name a row. A key that stands twice in its partition is refused by name.
        schema: the types of the columns, where they are to be others than the source's; each value must become its
            column's type without loss. The rest is as in `create` and `upsert`.
        rename: new names of columns, by their names in the source; all other arguments have the new ones.
        on_progress: called with a `LoadProgress` after some 100,000 rows; what it raises gives the load up.

        Rows are sorted in the table's store, so about as much space is needed besides as they take; memory is needed
        for some 500,000 rows, however many there are. They are put as base files, so that readers have nothing to
        merge. While a load runs there is no table. Of one that fails nothing is left; one whose process dies leaves
        what nobody sees, and may be run again at once. Of several that make a table at one address one does.

        Raises `TableExistsError`, `InvalidInputError`, `SchemaMismatchError`; `UnsupportedFeatureError`, which says
        what to install, where a format needs a package.
        """
        from crdt_mor.api import load
        from crdt_mor.api.files_places import Places, providers_of
        from crdt_mor.api.load_sources import open_source
        from crdt_mor.columns.renames import Renames
        from crdt_mor.store.options import shared

        _inline(maintain)
        expiry_ms = milliseconds("writer_expiry", writer_expiry)
        environment = environment or SystemEnvironment()
        given, here = storage_options, place_of(uri)
        if here is not None and given is not None:
            storage_options = shared(given, here.provider, providers_of(source))
        objects = store_at(uri, environment, storage_options, store)
        info = check_info(commit_info)
        key_spec = KeySpec(names_of(key), names_of(partition_by), hive_style and bool(partition_by))
        warn_of_partitions(key_spec)
        config = TableConfig(name or default_name(uri), key_spec, merge_spec(merge, ordering), buckets)
        load.require_free(objects, str(uri))
        if is_bucket(objects):
            objects.probe()
        refuse_another_format(objects, str(uri))
        refuse_inside_a_table(objects, str(uri))
        types = None if schema is None else read_schema(schema)
        rows = open_source(source, types, str(uri), Places(given, environment, uri), Renames.of(rename))
        layout = Layout.asked((), LINEAR, compression)
        config, layout, columns, odd = in_stored_names(config, layout, rows.schema if types is None else types)
        rules = rules_to_make(not_null, check, default, config, columns, odd)
        names = property_of(odd)
        properties, config = new_properties(environment, str(uri), config, columns, layout, rules, names)
        new = load.NewTable(str(uri), objects, environment, config, properties, expiry_ms)
        load.load(new, map(Renames(odd).batch, rows.read()), rows.rows, info, on_progress)
        return cls(
            uri, writer_expiry=writer_expiry, maintain=maintain, storage_options=storage_options, store=store,
            environment=environment,
        )  # fmt: skip

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        payloads: Sequence[str | type[Payload]] = (),
        writer_expiry: timedelta = WRITER_EXPIRY,
        maintain: Literal["inline", "off"] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | Handed | None = None,
        environment: Environment | None = None,
    ) -> Table:
        """Open a table that we or Hudi made.

        uri: where: a local path, `file://`, `s3://bucket/path`, `gs://`, `az://`, `abfss://` (docs/stores.md); where a
            `store` is given, only the table's name in messages.
        payloads: those of your own that the table may use, as in `crdt_mor.allow_payloads`: classes, or modules by
            name. What you have imported needs no word.
        writer_expiry: a write that has been silent for longer may be rolled back by this process.
        maintain: "inline": after each commit of this table object, what is due in the file groups that it has written
            is compacted; "off": it is not; None: as the table's property `crdt_mor.maintain` says, by default off. What
            fails of it is told (`observe`) and fails no commit.
        storage_options: how an object store is reached, by the names that deltalake and polars use, such as
            `aws_region`; the environment says the rest. Keys among them are never written or shown.
            `credential_provider` is a callable that gives keys, as obstore and polars take one, or "module:function".
        store: where the table's objects are, such as a `MemoryStore`, which no other process sees, or an `S3Store`, an
            `AzureStore` or a `GCSStore` of obstore, made for the bucket that `uri` is in.
        environment: where time, ids and chance come from, so that a test can own them.

        Raises `TableNotFoundError`, `UnsupportedVersionError`, `UnsupportedFeatureError`. What uses a payload that is
        neither imported nor allowed raises `PayloadNotAllowedError`.
        """
        return cls(
            uri, payloads=payloads, writer_expiry=writer_expiry, maintain=maintain, storage_options=storage_options,
            store=store, environment=environment,
        )  # fmt: skip

    # --- what it is -----------------------------------------------------------------------------------------------

    @property
    def storage_options(self) -> dict[str, str]:
        """With which another process opens the same table, and polars the files at its address. It shows no keys and is
        pickled without them, as another process takes them from its own environment; empty where the table is not in an
        object store."""
        store = self._session.store
        return store.options if is_bucket(store) else {}

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are now, in the types that they were declared in."""
        value = self._session.views.sealed()
        return value.names.outward(TableSchema.from_json(value.schema)).declared

    @property
    def config(self) -> TableConfig:
        """Key, partitioning, buckets and merge of the table, in the names of its columns, as last seen."""
        return shown_config(self._session.config, self._session.known().names)

    @property
    def version(self) -> int:
        """The newest version of the timeline."""
        return self._session.views.sealed().version

    @property
    def properties(self) -> Mapping[str, str]:
        """What was noted of the table with `set_properties`, by name, as it is now."""
        value = self._session.views.sealed()
        found = dict(value.properties)
        if layouts.CLUSTER_BY in found:
            found[layouts.CLUSTER_BY] = layouts.with_columns(found[layouts.CLUSTER_BY], value.names.shown)
        return MappingProxyType(found)

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Note things of the table, `{"owner": "ops", "retired": None}`: None takes a property away, others stay.

        All of it is one event; of two processes that set one name, the later event counts. Names that begin with
        `crdt_mor.` are the engine's, and those that it does not know are refused. Names have at most 256 characters;
        all names and values together have at most 16 KiB, since each version of the timeline carries them.

        Raises `InvalidInputError` for what is no such text; nothing is set then.
        """
        changes = checked_changes(properties)
        value = self._session.views.sealed()
        if not value.names.are_stored and (order := changes.get(layouts.CLUSTER_BY)):
            schema = TableSchema.from_json(value.schema)
            changes[layouts.CLUSTER_BY] = layouts.with_columns(order, lambda name: value.names.one(name, schema))
        self._session.set_properties(changes)

    @property
    def inspect(self) -> Inspect:
        """The timeline and the files, as Arrow tables."""
        from crdt_mor.api.inspect import Inspect

        return Inspect(self._session)

    @property
    def maintenance(self) -> Maintenance:
        """Upkeep: what is due, and each service by itself; safe beside writers and readers."""
        from crdt_mor.api.maintenance import Maintenance

        return Maintenance(self._session)


# --- arguments --------------------------------------------------------------------------------------------------------


def _payloads(payloads: Sequence[str | type[Payload]] | str | type[Payload]) -> Sequence[str | type[Payload]]:
    """The payloads as a sequence, also where one is passed by itself."""
    return (payloads,) if isinstance(payloads, str | type) else payloads


def _inline(maintain: object) -> bool | None:
    """Whether writers do upkeep; None: as the table says."""
    if maintain not in (None, "inline", "off"):
        raise InvalidInputError(f'maintain is "inline" or "off", or None: as the table says. got={maintain!r}')
    return None if maintain is None else maintain == "inline"
