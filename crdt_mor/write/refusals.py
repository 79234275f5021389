"""Tables that cannot be written, each with the way out."""

from __future__ import annotations

from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import require_payloads
from crdt_mor.model.config import TableConfig
from crdt_mor.model.handover import handed_over_error, is_plain
from crdt_mor.model.timeline import Timeline


def require_writable(session: Session, *, as_read: bool = False) -> None:
    """Raise for tables that cannot be written, or whose payloads cannot be found here. as_read: see `settings`."""
    config = session.settings(as_read=as_read)
    if as_read and is_plain(config.properties):
        config = session.settings()  # the table may have been taken back since
    require_bucketed(config)
    require_payloads(session.config)


def require_bucketed_now(session: Session) -> None:
    """As `require_bucketed`; where the properties forbade it as the table was opened, by what they say now."""
    try:
        require_bucketed(session.config)
    except InvalidInputError:
        require_bucketed(session.settings())


def require_bucketed(config: TableConfig) -> None:
    """Raise for tables that cannot be written, or whose keys cannot be mapped to file groups."""
    require_written_format(config)
    if config.buckets is None:
        raise InvalidInputError(
            "this table does not say how many buckets its index has, so a new key could be put where no other writer "
            "looks. If Hudi writes it with a simple bucket index, add hoodie.bucket.index.num.buckets=<n> to its "
            "hoodie.properties; otherwise copy it: Table.create(...).append(Table.open(...).scan())"
        )
    config.key.refuse_foreign_generator()


def require_written_format(config: TableConfig) -> None:
    """Raise for tables in which nothing is written, neither rows nor the outputs of a service."""
    config.require_written_version()
    require_no_metadata_table(config)
    if config.ours and is_plain(config.properties):
        raise handed_over_error(f"table={config.name}")
    if config.table_type != "MERGE_ON_READ":
        raise InvalidInputError(f"only merge-on-read tables can be written. table_type={config.table_type}")
    if config.virtual_keys:
        raise InvalidInputError(
            "this table has no meta columns (hoodie.populate.meta.fields=false); it can be read, not written: let Hudi "
            f"write it, or copy it, Table.create(...).append(Table.open(...).scan()). table={config.name}"
        )
    if config.unset_values:
        raise InvalidInputError(
            "this table has a partial update mode of Hudi's, in which such values leave a column as it is; it can be "
            "read, not written: let Hudi write it, or copy it into a table of ours with PartialUpdate, "
            f"Table.create(...).append(Table.open(...).scan()). values={list(config.unset_values)}"
        )


def require_no_metadata_table(config: TableConfig) -> None:
    """Raise where Hudi's readers would find neither a commit of ours nor a compaction."""
    if config.metadata_partitions:
        raise InvalidInputError(
            "Hudi keeps a metadata table here, and its readers would not see files that are not listed there. Tell its "
            "writers hoodie.metadata.enable=false, and remove it: table.maintenance.drop_metadata_table(), or with "
            "Hudi, call delete_metadata_table(table => ...). "
            f"metadata={list(config.metadata_partitions)}"
        )


def require_own_groups(value: Timeline) -> None:
    """Raise for a table in which keys may live outside of the bucket index."""
    if value.foreign_group is not None:
        raise InvalidInputError(
            "another engine wrote to file groups that this table's bucket index did not make, so a key could live "
            "twice. Tell that writer hoodie.index.type=BUCKET with this table's bucket count, and copy the rows to a "
            "new table: Table.create(...).append(Table.open(...).scan()). "
            f"file_id={value.foreign_group}"
        )
