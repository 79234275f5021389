"""Create or open a table, write to it from any number of processes, and read it.

`Table` itself creates, opens and describes tables. Its reads are in `table_reads`, its writes in `table_writes`, and
writes of many processes in `job`, `update_parts` and `merge_into_parts`. Writers need no lock or coordinator.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from crdt_mor.api.alteration import AlteredColumns
from crdt_mor.api.config import TableConfig, shown
from crdt_mor.api.create import (
    Merge,
    default_name,
    in_stored_names,
    merge_spec,
    new_properties,
    payloads_there,
    put_properties,
    refuse_another_format,
    refuse_nested,
    warn_of_partitions,
)
from crdt_mor.api.create_again import CreateArguments, start
from crdt_mor.api.data import SchemaLike, read_schema
from crdt_mor.api.migration_status import warn_of_move
from crdt_mor.api.opening import Opening, opened_with
from crdt_mor.api.statements import names_of
from crdt_mor.api.table_reads import TableReads
from crdt_mor.api.table_rules import rules_to_make
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidUseError
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import Environment
from crdt_mor.ground.deadlines import operations
from crdt_mor.laws.allowed import allow_payloads
from crdt_mor.log.deciding import deciding
from crdt_mor.merge.payload import Payload
from crdt_mor.model import config as engine
from crdt_mor.model import layout as layouts
from crdt_mor.model.alteration import property_of
from crdt_mor.model.authors import check_info
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.layout import LINEAR, Layout
from crdt_mor.model.partition_functions import PartitionFunction, partition_by_of
from crdt_mor.model.table_properties import checked_changes
from crdt_mor.store.addresses import place_of
from crdt_mor.store.open import store_at
from crdt_mor.store.protocol import Store, is_bucket
from crdt_mor.write.named import shown_config

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from crdt_mor.api.inspect import Inspect
    from crdt_mor.api.job import Jobs
    from crdt_mor.api.load import OnProgress
    from crdt_mor.api.load_sources import LoadSource
    from crdt_mor.api.maintenance import Maintenance
    from crdt_mor.api.rules import Rules


@operations
class Table(TableReads, AlteredColumns):
    """A merge-on-read table: `Table("events")` opens and `Table.create` creates a table.

    It is an Arrow stream of the current rows, for `pl.DataFrame(table)`, `pa.table(table)` and DuckDB. Iterating,
    indexing and `len` raise `InvalidUseError`.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        payloads: Sequence[str | type[Payload]] = (),
        storage_options: Mapping[str, Any] | None = None,
        opening: Opening | None = None,
    ) -> None:
        """Open a table made by crdt_mor or Hudi.

        Args:
            uri: as in `create`, or `glue://database/table` for a table that was registered in AWS Glue.
            payloads: your own payloads that the table may use, as in `crdt_mor.allow_payloads`: classes, or module
                names. Imported payloads need not be listed.
            storage_options: access to an object store, with the names of deltalake and polars, such as `aws_region`; by
                default from the environment. Keys are never stored or shown. `credential_provider` is a callable, as in
                obstore and polars, or "module:function".
            opening: options that programs seldom give, such as a `store`; see `Opening`.

        Raises:
            TableNotFoundError, UnsupportedVersionError, UnsupportedFeatureError: the table cannot be opened.
            PayloadNotAllowedError: on use of a payload that is neither imported nor allowed.
        """
        if not isinstance(uri, str | os.PathLike):
            raise InvalidUseError(
                f"pass the table's address as text or a path: Table('events'). type={type(uri).__name__}"
            )
        allow_payloads(*([payloads] if isinstance(payloads, str | type) else payloads))
        given, uri = opened_with(opening), _address(os.fspath(uri))
        objects = store_at(uri, given.environment, storage_options, given.store)
        session = Session.open(uri, given.environment, given.expiry_ms, objects)
        session.maintain, session.memory_limit = given.maintain, given.memory_limit
        self._hold(session, uri, objects if given.store is not None else None)

    @classmethod
    def from_catalog(
        cls,
        catalog: Catalog,
        name: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        opening: Opening | None = None,
    ) -> Self:
        """Open a table by its name in a catalog, where `maintenance.register` put it.

        Args:
            catalog: a catalog of pyiceberg, such as `load_catalog("prod")`.
            name: namespace and table, such as "lake.events".
            storage_options, opening: as for `Table`.

        Raises:
            InvalidInputError: the catalog lacks the name, or its entry is of another engine.
        """
        from crdt_mor.services.catalogs import located

        return cls(located(catalog, name), storage_options=storage_options, opening=opening)

    def _hold(self, session: Session, uri: str, store: Store | None) -> None:
        self._session = session
        self._store = session.store if store is None and is_bucket(session.store) else store
        self.uri = uri
        warn_of_move(session.views.sealed(look=True).moving)

    @classmethod
    def _of(cls, session: Session, uri: str, store: Store | None = None) -> Self:
        table = cls.__new__(cls)
        cls._hold(table, session, uri, store)
        return table

    @property
    def environment(self) -> Environment:
        """Source of time and randomness for this table; waits let time pass here."""
        return self._session.environment

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: SchemaLike,
        *,
        key: str | Sequence[str],
        ordering: str | None = None,
        partition_by: str | PartitionFunction | Sequence[str | PartitionFunction] = (),
        hive_style: bool = True,
        buckets: int = 4,
        merge: Merge | None = None,
        ttl: str | tuple[str, timedelta] | None = None,
        rules: Rules | None = None,
        cluster_by: str | Sequence[str] = (),
        cluster_order: Literal["linear", "z-order"] = "linear",
        compression: Literal["zstd", "lz4"] = "zstd",
        name: str | None = None,
        exist_ok: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        opening: Opening | None = None,
    ) -> Table:
        """Create a table without rows.

        Args:
            uri: a local path, `file://`, `s3://bucket/path`, `gs://`, `az://`, `abfss://` (docs/stores.md). With a
                `store` in `opening`, only the name in messages.
            schema: a pyarrow or polars schema, types by name like `{"id": pl.String}`, or a frame, scan or table with
                the columns; rows are NOT written. Types become Arrow's ordinary types (`string`, not `large_string`);
                an unnamed pandas index is no column.
            key: the columns that identify a row within its partition.
            ordering: the row with the greatest value in this column wins, instead of the latest commit.
            partition_by: columns that form the folders, or functions of columns: `[day("ts"), bucket("id", 16)]`, see
                `day`. Columns outside the key cause a `PartitionNotInKeyWarning`: see `move`.
            hive_style: name folders `column=value`.
            buckets: file groups per partition, fixed for the table's life. Use one per few hundred MB.
            merge: payloads by column, `{"views": Counter(), ("price", "priced_at"): LatestBy("priced_at")}`, as objects
                or names; other columns take the latest commit's value. Or `PartialUpdate()`.
            ttl: rows expire at the time in this timestamp column, or later: `("created", timedelta(days=30))`. Null is
                never. Not with payloads or `PartialUpdate`.
            rules: `Rules(not_null=..., check=..., default=...)`, as in `add_rules`.
            cluster_by: columns that sort base files in compactions, most important first, for filters on them; by
                default the key. The property `crdt_mor.cluster_by`.
            cluster_order: "z-order" weights up to four columns equally. The property `crdt_mor.cluster_order`.
            compression: of base files; "lz4" reads in half the time and needs half as much space again. The property
                `crdt_mor.compression`.
            name: the table's name for Hudi; by default from `uri`.
            exist_ok: open an existing table with the same current columns and settings; columns added later may be
                missing in `schema`. An error names all differences.
            storage_options, opening: see `Table`.

        Raises:
            TableExistsError, InvalidInputError: the address is in use, or an argument is invalid.
            SchemaMismatchError: a type cannot be stored.
            UnsupportedFeatureError: the object store lacks put-if-absent, which is tested.
        """
        given = opened_with(opening)
        objects = store_at(uri, given.environment, storage_options, given.store)
        key_spec = KeySpec(names_of(key), partition_by_of(partition_by), hive_style and bool(partition_by))
        warn_of_partitions(key_spec)
        spec = merge_spec(merge, ordering, ttl, payloads_there(objects, str(uri)) if exist_ok else ())
        config = engine.TableConfig(name or default_name(uri), key_spec, spec, buckets)
        layout = Layout.checked(names_of(cluster_by), cluster_order, compression)
        config, layout, columns, odd = in_stored_names(config, layout, read_schema(schema))
        kept, said = rules_to_make(rules, config, columns, odd), property_of(odd)
        found, is_new = put_properties(
            objects, given.environment, str(uri), config, columns, exist_ok, layout, given.expiry_ms, kept, said
        )
        with deciding(is_made=is_new):
            session = Session(objects, given.environment, found, given.expiry_ms, str(uri))
            session.maintain, session.memory_limit = given.maintain, given.memory_limit
            start(session, None if is_new else CreateArguments.of(config, columns, layout, kept, odd))
            return cls._of(session, str(uri), objects if given.store is not None else None)

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
        partition_by: str | PartitionFunction | Sequence[str | PartitionFunction] = (),
        hive_style: bool = True,
        buckets: int = 4,
        merge: Merge | None = None,
        ttl: str | tuple[str, timedelta] | None = None,
        rules: Rules | None = None,
        compression: Literal["zstd", "lz4"] = "zstd",
        name: str | None = None,
        commit_info: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
        storage_options: Mapping[str, Any] | None = None,
        opening: Opening | None = None,
    ) -> Table:
        """Create a table with the rows of a source of any size: it appears with all rows, or not at all.

        Rows are sorted in the table's store, which takes their space twice, and become base files. A failed load leaves
        nothing; after a crash only invisible files are left, and the load can be repeated at once. Of several loads at
        an address one succeeds.

        Args:
            source: a path, pattern or list of paths, of Parquet or any format of `read_files`; a folder of Parquet
                files, with levels like `day=2026-01-31` as columns; a Delta table (folder or `DeltaTable`); an Iceberg
                table (folder, `Table` or scan); or data as in `upsert`. Readers, datasets and lazy frames are read in
                batches. `storage_options` also apply to these paths; for others, pass `read_files` or a `DeltaTable`.
            key: the columns that identify a row; a repeated key is an error.
            schema: column types, if other than the source's; each value must convert without loss.
            rename: new column names by source names; other arguments use the new names.
            on_progress: called with a `LoadProgress` every 100,000 rows or so; its exception stops the load.

        Other arguments are as in `create` and `upsert`.

        Raises:
            TableExistsError, InvalidInputError, SchemaMismatchError: as in `create`, or for unsuitable rows.
            UnsupportedFeatureError: a package for the format is missing; the message names it.
        """
        from crdt_mor.api import load
        from crdt_mor.api.files_places import Places, providers_of
        from crdt_mor.api.load_sources import open_source
        from crdt_mor.columns.renames import Renames
        from crdt_mor.store.options import shared

        given, options, here = opened_with(opening), storage_options, place_of(uri)
        if here is not None and options is not None:
            storage_options = shared(options, here.provider, providers_of(source))
        objects = store_at(uri, given.environment, storage_options, given.store)
        info = check_info(commit_info)
        key_spec = KeySpec(names_of(key), partition_by_of(partition_by), hive_style and bool(partition_by))
        warn_of_partitions(key_spec)
        config = engine.TableConfig(name or default_name(uri), key_spec, merge_spec(merge, ordering, ttl), buckets)
        load.require_free(objects, str(uri))
        if is_bucket(objects):
            objects.probe()
        refuse_another_format(objects, str(uri))
        refuse_nested(objects, str(uri))
        types = None if schema is None else read_schema(schema)
        rows = open_source(source, types, str(uri), Places(options, given.environment, uri), Renames.of(rename))
        layout = Layout.checked((), LINEAR, compression)
        config, layout, columns, odd = in_stored_names(config, layout, rows.schema if types is None else types)
        kept = rules_to_make(rules, config, columns, odd)
        names = property_of(odd)
        properties, config = new_properties(given.environment, str(uri), config, columns, layout, kept, names)
        limits = given.expiry_ms, given.memory_limit
        new = load.NewTable(str(uri), objects, given.environment, config, properties, *limits)
        load.load(new, map(Renames(odd).batch, rows.read()), rows.rows, info, on_progress)
        with deciding(is_made=True):
            return cls(uri, storage_options=storage_options, opening=opening)

    # --- description ----------------------------------------------------------------------------------------------

    @property
    def storage_options(self) -> dict[str, str]:
        """Options with which another process opens the table, and polars its files; {} outside object stores.

        Keys are neither shown nor pickled: other processes take them from their own environment.
        """
        store = self._session.store
        return store.options if is_bucket(store) else {}

    @property
    def schema(self) -> pa.Schema:
        """The current columns with their declared types."""
        value = self._session.views.sealed()
        return value.names.outward(TableSchema.from_json(value.schema)).declared

    @property
    def config(self) -> TableConfig:
        """Key, partitioning, buckets and merge, with current column names, as last seen."""
        return shown(shown_config(self._session.config, self._session.known_tail().names))

    @property
    def version(self) -> int:
        """The newest version of the timeline."""
        return self._session.views.sealed().version

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's current properties; see `set_properties`."""
        value = self._session.views.sealed()
        found = dict(value.properties)
        if layouts.CLUSTER_BY in found:
            found[layouts.CLUSTER_BY] = layouts.with_columns(found[layouts.CLUSTER_BY], value.names.shown)
        return MappingProxyType(found)

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Set properties of the table, `{"owner": "ops", "retired": None}`: None removes a property, others stay.

        If two processes set a name, the later event counts. Names with `crdt_mor.` belong to the engine; unknown ones
        are refused. Names have at most 256 characters; all properties at most 16 KiB, because every timeline version
        contains them.

        Raises:
            InvalidInputError: a name or value is invalid; nothing is set.
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
    def jobs(self) -> Jobs:
        """Writes of many processes, each a single commit."""
        from crdt_mor.api.job import Jobs

        return Jobs(self._session, self.uri, self._store)

    @property
    def maintenance(self) -> Maintenance:
        """Upkeep: everything that is due, or each service alone. Safe beside writers and readers."""
        from crdt_mor.api.maintenance import Maintenance

        return Maintenance(self._session)


# --- arguments --------------------------------------------------------------------------------------------------------


def _address(uri: str) -> str:
    """Return the address of a table of AWS Glue, `glue://database/table`, or any other address as it is."""
    if not uri.startswith("glue://"):
        return uri
    from crdt_mor.services.catalogs import located_in_glue

    return located_in_glue(uri)
