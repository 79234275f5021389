"""Entries of Iceberg catalogs that show a table's mirror, and the doors of entries of the Hudi table.

The entry is loaded before the mirror is refreshed, and changed only if it is as loaded (docs/design/catalogs.md).
Trino deletes the folder of an entry that it drops, except in REST catalogs. So entries elsewhere have their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.log.steps import Put, put_surely
from crdt_mor.mirror.catalog_steps import ROW_IDS, number_of, requirements, updates
from crdt_mor.mirror.iceberg_metadata import FOLDER, NUMBER
from crdt_mor.mirror.refresh import VERSION
from crdt_mor.services.catalog_calls import GLUE, answers, catalog_of
from crdt_mor.services.hudi_entries import Action, hudi_entry_lags, located_hudi, register_hudi
from crdt_mor.services.mirror import mirror, shows_newest

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as Entry

FORMATS: Final = ("iceberg", "hudi")
_METADATA: Final = f"/{FOLDER}/"
_OWN: Final = f"{FOLDER}/entry"
_IS_NESSIE: Final = "nessie.is-nessie-catalog"
"""Nessie refuses to remove snapshots: an entry shows the newest alone."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The result of a registration.

    Attributes:
        action: `registered` for a new entry, `moved`, or `unchanged`.
        version: The version of the table that the entry shows.
        uri: The address in the entry: of the metadata file, or of the table for Hudi.
        replaced: The snapshot that another engine wrote and this call replaced; None without one.
    """

    name: str
    action: Literal["registered", "moved", "unchanged"]
    version: int
    uri: str
    replaced: int | None = None

    def __str__(self) -> str:
        lost = "" if self.replaced is None else f"; replaced snapshot {self.replaced}, which another engine wrote"
        return f"{self.name} {self.action}: the catalog shows version {self.version}{lost}. uri={self.uri}"


def register(session: Session, catalog: Catalog, name: str, format: str) -> Registered:
    """See `Maintenance.register`."""
    identifier = _identifier(catalog, name)
    if format not in FORMATS:
        raise InvalidInputError(f"register takes {' or '.join(map(repr, FORMATS))}. format={format!r:.100}")
    if format == "hudi":
        return Registered(".".join(identifier), *register_hudi(session, catalog, identifier))
    while True:
        entry = _loaded(catalog, identifier)
        uri = mirror(session, "iceberg").uri
        with answers(catalog.name):
            done = _pointed(session, catalog, identifier, entry, uri)
        if done is not None:
            return done


def lags(session: Session, catalog: Catalog, name: str, format: str) -> bool:
    """Return True if the entry is older than the table."""
    identifier = _identifier(catalog, name)
    if format == "hudi":
        return hudi_entry_lags(session, catalog, identifier)
    entry = _loaded(catalog, identifier)
    if entry is None or not shows_newest(session, "iceberg"):
        return True
    return int(entry.properties.get(VERSION, "-1")) < session.known_tail().version


def located(catalog: Catalog, name: str) -> str:
    identifier = _identifier(catalog, name)
    if hudi := located_hudi(catalog, identifier):
        return hudi
    entry = _loaded(catalog, identifier)
    if entry is None:
        raise InvalidInputError(f"the catalog has no table of this name: check `name`. name={name!r}")
    if NUMBER not in entry.properties:
        raise InvalidInputError(
            f"the catalog's table is no mirror of crdt_mor: open it with pyiceberg. name={name!r} "
            f"location={entry.location()}"
        )
    return str(entry.location()).rstrip("/").removesuffix(f"/{_OWN}")


def located_in_glue(uri: str) -> str:
    """Return the address of a table `glue://database/table`."""
    database, _, name = uri.removeprefix(f"{GLUE}://").strip("/").partition("/")
    if not database or not name or "/" in name:
        raise InvalidInputError(f"an address in Glue is glue://database/table. uri={uri!r}")
    return located(catalog_of(GLUE), f"{database}.{name}")


def _identifier(catalog: Catalog, name: str) -> tuple[str, ...]:
    if not callable(getattr(catalog, "identifier_to_tuple", None)):
        raise InvalidInputError(
            f"pass as `catalog` a catalog of pyiceberg, as its load_catalog returns. type={type(catalog).__name__}"
        )
    identifier = catalog.identifier_to_tuple(name)
    if len(identifier) < 2 or not all(identifier):
        raise InvalidInputError(f"`name` needs a namespace and a table, such as 'lake.events'. name={name!r}")
    return identifier


def _loaded(catalog: Catalog, identifier: tuple[str, ...]) -> Entry | None:
    from pyiceberg.exceptions import (
        NoSuchIcebergTableError,
        NoSuchNamespaceError,
        NoSuchPropertyException,
        NoSuchTableError,
    )

    with answers(catalog.name):
        try:
            return catalog.load_table(identifier)
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            raise InvalidInputError(
                "the catalog's table of this name is no Iceberg table: choose another `name`. "
                f"name={'.'.join(identifier)!r}"
            ) from error
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def _pointed(
    session: Session, catalog: Catalog, identifier: tuple[str, ...], entry: Entry | None, uri: str
) -> Registered | None:
    """Make the entry show a metadata file; None if another process changed the entry first."""
    if entry is None:
        new = _registered(session, catalog, identifier, uri)
        return None if new is None else _told(new, "registered")
    ours = _metadata_at(entry, uri, _location(session, catalog, uri))
    missing = updates(entry.metadata, ours, keeps_history=_IS_NESSIE not in catalog.properties)
    if not missing:
        return _told(entry, "unchanged")
    try:
        is_first = _committed(catalog, entry, missing)
    except (NotImplementedError, ValueError) as error:
        if ours.format_version < ROW_IDS:
            raise
        raise UnsupportedFeatureError(
            "the mirror has Iceberg's format version 3, for which pyiceberg moves entries only in REST catalogs: "
            f"register there. catalog={catalog.name} name={_name(entry)!r} cause={error}"
        ) from error
    return _told(catalog.load_table(identifier), "moved", _foreign(entry)) if is_first else None


def _location(session: Session, catalog: Catalog, uri: str) -> str:
    from pyiceberg.catalog.rest import RestCatalog

    key, root = session.config.key, uri.rpartition(_METADATA)[0]
    # Trino's remove_orphan_files looks below `data`, which may be such a table's partition.
    has_plain_partitions = bool(key.partition_fields) and not key.hive_style
    return root if isinstance(catalog, RestCatalog) and not has_plain_partitions else f"{root}/{_OWN}"


def _entry_file(session: Session, uri: str, location: str) -> str | None:
    """Put the mirror's metadata with another location, and return its address; None if it has expired."""
    root, _, name = uri.rpartition(_METADATA)
    data = session.store.read(f"{FOLDER}/{name}")
    if data is None:
        return None
    path = f"{location}/metadata/00000-{session.environment.nonce()}.metadata.json"
    content = json.dumps({**json.loads(data), "location": location}).encode()
    session.run(put_surely(Put(path.removeprefix(f"{root}/"), content)))
    return path


def _registered(session: Session, catalog: Catalog, identifier: tuple[str, ...], uri: str) -> Entry | None:
    """Return the new entry; None if another process was first."""
    from pyiceberg.exceptions import TableAlreadyExistsError

    _make_namespace(catalog, identifier[:-1])
    location = _location(session, catalog, uri)
    file = _entry_file(session, uri, location) if location.endswith(_OWN) else uri
    if file is None:
        return None
    try:
        return catalog.register_table(identifier, file)
    except TableAlreadyExistsError:
        catalog.load_table(identifier)  # raises if the name belongs to a view, for example
        return None


def _make_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    if _has_namespace(catalog, namespace):
        return
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except Exception:  # of the database of a SQL catalog, if another process was first
        if not _has_namespace(catalog, namespace):
            raise


def _has_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> bool:
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        catalog.load_namespace_properties(namespace)
    except NoSuchNamespaceError:
        return False
    return True


def _metadata_at(entry: Entry, uri: str, location: str) -> Any:
    """Read the mirror's metadata through the catalog; refuse an entry of another table."""
    from pyiceberg.serializers import FromInputFile

    root = uri.rpartition(_METADATA)[0]
    if entry.location().rstrip("/").removesuffix(f"/{_OWN}") != root:
        raise _another(entry, root)
    ours = FromInputFile.table_metadata(entry.io.new_input(uri))
    if entry.metadata.table_uuid != ours.table_uuid:
        raise _another(entry, root)
    if number_of(entry.metadata) > number_of(ours):
        raise InvalidInputError(
            "the catalog's entry is newer than the table's mirror, as after a restore from a backup: drop the entry "
            f"without its files, then register again. name={_name(entry)!r} entry={number_of(entry.metadata)} "
            f"mirror={number_of(ours)}"
        )
    return ours.model_copy(update={"location": location})


def _another(entry: Entry, root: str) -> InvalidInputError:
    return InvalidInputError(
        "the catalog's table of this name is another table: choose another `name`, or drop the entry without its "
        f"files. name={_name(entry)!r} uuid={entry.metadata.table_uuid} location={entry.location()} table={root}"
    )


def _committed(catalog: Catalog, entry: Entry, missing: tuple[Any, ...]) -> bool:
    """Return False if another process changed the entry first."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    try:
        catalog.commit_table(entry, requirements(entry.metadata, missing), missing)
    except (CommitFailedException, CommitStateUnknownException):
        now = catalog.load_table(entry.name())
        if now.metadata_location == entry.metadata_location:
            raise
        return False
    return True


def _told(entry: Entry, action: Action, replaced: int | None = None) -> Registered:
    return Registered(_name(entry), action, int(entry.properties[VERSION]), entry.metadata_location, replaced)


def _foreign(entry: Entry) -> int | None:
    """Return the current snapshot if another engine wrote it."""
    current = entry.current_snapshot()
    is_ours = current is None or (current.summary is not None and VERSION in current.summary.additional_properties)
    return None if current is None or is_ours else current.snapshot_id


def _name(entry: Entry) -> str:
    return ".".join(entry.name())
