"""Refuse tables that cannot be written, with the remedy."""

from __future__ import annotations

from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import require_payloads
from crdt_mor.model.config import TableConfig
from crdt_mor.model.handover import handed_over_error, is_plain
from crdt_mor.model.timeline import Timeline


def require_writable(session: Session, *, as_read: bool = False) -> None:
    """Raise for tables that cannot be written, or with unknown payloads. as_read: see `settings`."""
    config = session.settings(as_read=as_read)
    if as_read and is_plain(config.properties):
        config = session.settings()  # a takeback changes them
    require_bucketed(config)
    require_payloads(session.config)


def require_bucketed_now(session: Session) -> None:
    """Like `require_bucketed`, with the current properties if those at the opening forbade it."""
    try:
        require_bucketed(session.config)
    except InvalidInputError:
        require_bucketed(session.settings())


def require_bucketed(config: TableConfig) -> None:
    """Raise for tables that cannot be written, or without a mapping from keys to file groups."""
    require_written_format(config)
    if config.buckets is None:
        raise InvalidInputError(
            "the number of buckets of this table is unknown, so a key could be stored twice. If Hudi writes the table "
            "with a simple bucket index, add hoodie.bucket.index.num.buckets=<n> to hoodie.properties; "
            "otherwise copy it: Table.create(...).append(Table(...).scan())"
        )
    config.key.refuse_foreign_generator()


def require_written_format(config: TableConfig) -> None:
    config.require_written_version()
    require_no_metadata_table(config)
    if config.ours and is_plain(config.properties):
        raise handed_over_error(f"table={config.name}")
    if config.table_type != "MERGE_ON_READ":
        raise InvalidInputError(f"only merge-on-read tables can be written. table_type={config.table_type}")
    if config.virtual_keys:
        raise InvalidInputError(
            "this table has no meta columns (hoodie.populate.meta.fields=false); it can be read, not written: let Hudi "
            f"write it, or copy it, Table.create(...).append(Table(...).scan()). table={config.name}"
        )
    if config.unset_values:
        raise InvalidInputError(
            "this table uses Hudi's partial update mode, in which these values keep a column; it can be read, not "
            "written: let Hudi write it, or copy it into a table with PartialUpdate, "
            f"Table.create(...).append(Table(...).scan()). values={list(config.unset_values)}"
        )


def require_no_metadata_table(config: TableConfig) -> None:
    if config.metadata_partitions:
        raise InvalidInputError(
            "Hudi keeps a metadata table here, and its readers would miss our files. Set hoodie.metadata.enable=false "
            "for its writers, and remove it: table.maintenance.drop_metadata_table(), or with Hudi, call "
            "delete_metadata_table(table => ...). "
            f"metadata={list(config.metadata_partitions)}"
        )


def require_own_groups(value: Timeline) -> None:
    if value.foreign_group is not None:
        raise InvalidInputError(
            "another engine wrote to file groups outside this table's bucket index, so a key could live twice. Set "
            "hoodie.index.type=BUCKET and the bucket count for that writer, and copy the rows to a new table: "
            "Table.create(...).append(Table(...).scan()). "
            f"file_id={value.foreign_group}"
        )
