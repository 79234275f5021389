"""Entries of the Hudi table itself: create an entry, and give it later columns and partitions.

An entry is loaded before the look at the table, and again after each write, until nothing differs
(docs/design/catalogs.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.hudi.catalog_entry import PROVIDER, HudiEntry, entry_of, plain
from crdt_mor.services.catalog_calls import answers
from crdt_mor.services.metastores import Metastore, metastore_of
from crdt_mor.store.open import address_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

Action = Literal["registered", "moved", "unchanged"]

_ROUNDS: Final = 20
"""Writes before a call gives up: a catalog may store other values than it was given."""


def register_hudi(session: Session, catalog: Catalog, identifier: tuple[str, ...]) -> tuple[Action, int, str]:
    """Write the entry; return the action, the version and the entry's address."""
    metastore = _metastore(catalog, identifier)
    action: Action = "unchanged"
    for _ in range(_ROUNDS):
        with answers(catalog.name):
            found = _found(metastore)
        version, needed = _needed(session, metastore)
        with answers(catalog.name):
            if found is None:
                metastore.create(needed)
                action = "registered"
            elif _written(metastore, _checked(found, needed, identifier), needed):
                action = action if action == "registered" else "moved"
            else:
                return action, version, found.location
    raise StorageUnavailableError(
        f"the catalog's entry still differs from the table after {_ROUNDS} changes: look at the entry, or try again. "
        f"name={'.'.join(identifier)!r} catalog={catalog.name}"
    )


def hudi_entry_lags(session: Session, catalog: Catalog, identifier: tuple[str, ...]) -> bool:
    metastore = _metastore(catalog, identifier)
    with answers(catalog.name):
        found = _found(metastore)
    _, needed = _needed(session, metastore)
    return found is None or _differs(_checked(found, needed, identifier), needed)


def located_hudi(catalog: Catalog, identifier: tuple[str, ...]) -> str | None:
    """Return the address in an entry of ours or Hudi's; None without one."""
    try:
        metastore = _metastore(catalog, identifier)
    except UnsupportedFeatureError:
        return None
    with answers(catalog.name):
        found = metastore.table()
    return found.location if found is not None and found.parameters.get(PROVIDER) == "hudi" else None


def _metastore(catalog: Catalog, identifier: tuple[str, ...]) -> Metastore:
    database, name = ".".join(identifier[:-1]), identifier[-1]
    return metastore_of(catalog, database, name)


def _found(metastore: Metastore) -> HudiEntry | None:
    table = metastore.table()
    return table and (replace(table, partitions=metastore.partitions()) if table.partition_columns else table)


def _needed(session: Session, metastore: Metastore) -> tuple[int, HudiEntry]:
    if session.config.table_type != "MERGE_ON_READ":
        raise UnsupportedFeatureError(
            f"this is a copy-on-write table of Hudi's: register it with Hudi's HiveSyncTool. uri={session.uri}"
        )
    value = session.views.sealed(decided=True)
    location = metastore.spelled(address_of(session.store, session.uri))
    partitions = {one.partition for one in session.views.slices(value)}
    stored = TableSchema.from_json(value.schema).stored
    return value.version, entry_of(location, stored, session.config.key, sorted(partitions))


def _checked(found: HudiEntry, needed: HudiEntry, identifier: tuple[str, ...]) -> HudiEntry:
    """Return the entry as `plain`; raise if it is another table's."""
    ours, its = plain(needed), plain(found)
    same = (its.location, its.partition_columns) == (ours.location, ours.partition_columns)
    if not same or found.parameters.get(PROVIDER) != "hudi":
        raise InvalidInputError(
            "the catalog's table of this name is another table, or no Hudi table: choose another `name`, or drop the "
            f"entry without its files. name={'.'.join(identifier)!r} location={found.location} "
            f"table={needed.location} provider={found.parameters.get(PROVIDER)} partitions={found.partition_columns}"
        )
    return its


def _differs(found: HudiEntry, needed: HudiEntry) -> bool:
    needed = plain(needed)
    return not found.has_table_of(needed) or found.partitions != needed.partitions


def _written(metastore: Metastore, found: HudiEntry, needed: HudiEntry) -> bool:
    """Write the differences; return False if there are none."""
    if not _differs(found, needed):
        return False
    wanted = plain(needed)
    if not found.has_table_of(wanted):
        metastore.alter(needed)
    metastore.add(needed, found.missing(wanted))
    metastore.change(needed, found.changed(wanted))
    metastore.drop(wanted.missing(found))
    return True
