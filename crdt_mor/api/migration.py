"""A migration as users ask for it: a table with other settings, or at another address, beside running writers.

The settings that are not given are those of the table that moves. `services.migration` copies and follows; here the new
table is made, or found again, and what a call has done is put into words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from crdt_mor.api.create import Merge, merge_spec, names_of, put_properties
from crdt_mor.api.create_again import require_layout
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import (
    CheckpointExpiredError,
    InvalidInputError,
    PayloadError,
    SchemaMismatchError,
    SnapshotExpiredError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from crdt_mor.events.session import Session, read_config
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import to_ms
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.layout import LINEAR, Layout
from crdt_mor.model.migration import Moving, Origin, require_arrived, require_not_moved
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.erasure import open_erasures
from crdt_mor.services.migration import Migration, MigrationProgress, PendingPolicy, begin, cancel
from crdt_mor.services.migration_cargo import Loader, is_moved, keeps_partitions_apart, refuse_twins
from crdt_mor.store.addresses import place_of
from crdt_mor.store.open import absolute, are_nested, store_at
from crdt_mor.store.protocol import Store, is_bucket
from crdt_mor.write.named import called_config, renamed_config
from crdt_mor.write.refusals import require_own_groups, require_writable

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed

OnProgress = Callable[[MigrationProgress], None]

_CANNOT_GO_ON: Final = (
    InvalidInputError,
    SchemaMismatchError,
    PayloadError,
    CheckpointExpiredError,
    SnapshotExpiredError,
)
"""Errors that a migration meets again whenever it goes on: it is given up, so that the old table takes writes."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """A migration that is over.

    uri: the new address. rows: how many rows the table has there.
    copied_rows, commits: what this call has written there, rows that were changed meanwhile among them more than once.
    turned_away: from when the old table was closed until the new one was opened.
    """

    uri: str
    rows: int
    copied_rows: int
    commits: int
    turned_away: timedelta

    def __str__(self) -> str:
        seconds = self.turned_away / timedelta(seconds=1)
        return (
            f"moved to {self.uri}: {self.rows} rows, in {self.commits} commits; writers were turned away for "
            f"{seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user asks of the new table; None: as it is in the old one."""

    buckets: int | None = None
    partition_by: str | Sequence[str] | None = None
    hive_style: bool | None = None
    merge: Merge | None = None
    ordering: str | None = None
    cluster_by: str | Sequence[str] | None = None
    cluster_order: str | None = None
    name: str | None = None

    def config(self, old: TableConfig) -> TableConfig:
        """The settings of the new table, in the names that people see, as those of the old one."""
        merge = old.merge if self.merge is None and self.ordering is None else merge_spec(self.merge, self.ordering)
        partitions = old.key.partition_fields if self.partition_by is None else names_of(self.partition_by)
        hive_style = self.hive_style
        if hive_style is None:
            hive_style = old.key.hive_style if old.key.partition_fields else True
        key = KeySpec(old.key.fields, partitions, hive_style and bool(partitions))
        return TableConfig(self.name or old.name, key, merge, old.buckets if self.buckets is None else self.buckets)

    def layout(self, old: Layout, stored: Mapping[str, str]) -> Layout:
        """The layout of the new table, which begins with that of the old one unless another order is asked for.

        stored: the stored names of the columns, by those that people see.
        """
        if self.cluster_by is None and self.cluster_order is None:
            return old
        asked = () if self.cluster_by is None else names_of(self.cluster_by)
        columns = old.columns if self.cluster_by is None else tuple(stored.get(name, name) for name in asked)
        return Layout.asked(columns, self.cluster_order or LINEAR, old.compression)


def migrate(
    session: Session,
    to_uri: str | os.PathLike[str],
    wanted: Wanted,
    pending: PendingPolicy,
    on_progress: OnProgress | None,
    storage_options: Mapping[str, Any] | None,
    store: Store | None,
) -> Migrated:
    """See `Maintenance.migrate`."""
    if pending not in ("wait", "roll_back"):
        raise InvalidInputError(f'what is pending is waited for, "wait", or rolled back, "roll_back". got={pending!r}')
    address = absolute(to_uri) if store is None else str(to_uri)
    objects = store_beside(session, to_uri, storage_options, store)
    _require_movable(session)
    source = session.views.sealed(decided=True)
    if source.moving is None:
        require_arrived(source.origin)
        if store is None:
            require_beside(session, address, "moved")
    target = _target(session, source, address, wanted, objects)
    assert session.config.table_id is not None
    assert target.config.table_id is not None
    origin = Origin(session.config.table_id, session.uri if session.uri == "" else _address(session))
    begin(session, target, address, origin)
    migration = Migration(session, target, on_progress or (lambda _: None))
    try:
        opened = migration.run(pending)
    except _CANNOT_GO_ON:
        with suppress(InvalidInputError):  # another process has opened the new table meanwhile
            cancel(session, target)
        raise
    return _report(session, target, opened, address, migration)


def cancel_migration(
    session: Session, storage_options: Mapping[str, Any] | None, store: Store | None, removed: bool
) -> bool:
    """See `Maintenance.cancel_migration`."""
    value = session.remember(session.tail())
    if value.moving is None:
        return False
    found = _opened(session, value.moving.uri, storage_options, store)
    target = found if found is not None and found.config.table_id == value.moving.table_id else None
    if target is None and not removed:
        there = "nothing" if found is None else f"another table, {found.config.table_id}"
        raise InvalidInputError(
            "the new table is not found from here, so that it cannot be told whether writers are at it already: if it "
            "was removed, call cancel_migration(removed=True); else call where it is found, or give its store. "
            f"uri={value.moving.uri} table_id={value.moving.table_id} found={there}"
        )
    return cancel(session, target)


def _opened(
    session: Session, uri: str, storage_options: Mapping[str, str] | None, store: Store | None
) -> Session | None:
    """The table at the new address; None where there is none."""
    try:
        objects = store_beside(session, uri, storage_options, store)
        return Session.open(uri, session.environment, session.expiry_ms, objects)
    except TableNotFoundError:
        return None


def _require_movable(session: Session) -> None:
    require_writable(session)
    if not session.config.ours or session.config.table_id is None:
        raise UnsupportedFeatureError(
            "this table was not made by a present release of crdt_mor, so that its writers would not learn that it "
            "moves: stop them, and copy it, Table.create(...).append(Table.open(...).scan())."
        )
    session.adopt()
    tail = session.tail()
    require_own_groups(tail)
    erasures = open_erasures(session) if tail.moving is None else ()
    if erasures:
        raise InvalidInputError(
            "rows are being erased from this table, and a copy would keep them in its history: finish the erasure, "
            f"calling it again, and then migrate. erasure={erasures[0].requested}"
        )


def _address(session: Session) -> str:
    """The address of the table that moves, for messages."""
    return address_of(session) or session.uri


def address_of(session: Session) -> str | None:
    """The address of a table; None where it is only a name, as its store was given."""
    try:
        return absolute(session.uri)
    except (InvalidInputError, UnsupportedFeatureError):
        return None


def require_beside(session: Session, address: str, verb: str) -> None:
    """Raise where an address is in the folder of a session's table, or around it. verb: what would be done."""
    own = address_of(session)
    if own is not None and are_nested(address, own):
        raise InvalidInputError(
            f"a table is not {verb} to an address in its own folder, nor to one around it, as Hudi's readers would "
            f"take the files of one for the other's: give an address beside it. path={address} table={own}"
        )


def store_beside(
    session: Session,
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    store: Store | Handed | None,
) -> Store:
    """The store at another address; where nothing is said of how to reach it, as that of this table is reached."""
    if storage_options is None and store is None and is_bucket(session.store) and _same_kind(session, uri):
        storage_options = session.store.options
    return store_at(uri, session.environment, storage_options, store)


def _same_kind(session: Session, uri: str | os.PathLike[str]) -> bool:
    """Whether the new table is to be at the same provider as the old one."""
    here, there = place_of(session.uri), place_of(uri)
    return here is not None and there is not None and here.provider == there.provider


def _target(session: Session, value: Timeline, address: str, wanted: Wanted, objects: Store) -> Session:
    """The table to move to, which is made unless it is there: with the very settings, and for this migration."""
    environment = session.environment
    by_shown = value.names.by_shown(TableSchema.from_json(value.schema).declared.names)
    config = renamed_config(wanted.config(called_config(session.config, value.names)), by_shown)
    layout = wanted.layout(Layout.of(value.properties), by_shown)
    if objects.stat(PROPERTIES) is None:
        _refuse_to_make_another(value.moving, address)
        _refuse_beforehand(session, value, config)
        columns = _first_schema(session, value, config, layout)
        made, _ = put_properties(objects, environment, address, config, columns, True, layout, session.expiry_ms)
    else:
        made = read_config(objects, address)
    _require_same(config, made, address)
    if made.table_id == session.config.table_id:
        raise InvalidInputError(f"a table moves to another address than its own. uri={address}")
    target = Session(objects, environment, made, session.expiry_ms, address)
    target.inline = False
    target.start()
    if wanted.cluster_by is not None:
        require_layout(target, layout)
    return target


def _refuse_to_make_another(announced: Moving | None, address: str) -> None:
    """Raise where the table moves to one that is made already, and not found at this address."""
    require_not_moved(announced)
    if announced is None:
        return
    removed = "the table that this one moves to is not there any more: cancel_migration(removed=True) gives that up"
    elsewhere = (
        "another migration of this table is under way: call migrate with its address, which goes on with it, or give "
        "it up with cancel_migration()"
    )
    raise InvalidInputError(
        f"{removed if announced.uri == address else elsewhere}, and then a new migration can begin. "
        f"moves_to={announced.uri} table_id={announced.table_id} asked={address}"
    )


def _require_same(wanted: TableConfig, found: TableConfig, address: str) -> None:
    pairs = {
        "key": (wanted.key, found.key),
        "merge": (wanted.merge, found.merge),
        "buckets": (wanted.buckets, found.buckets),
    }
    for name, (asked, there) in pairs.items():
        if asked != there:
            raise TableExistsError(
                f"there is a table already at the address to move to, with another {name}: to go on with a migration, "
                f"call it with what it was begun with. path={address} asked={asked} found={there}"
            )


def _refuse_beforehand(session: Session, value: Timeline, config: TableConfig) -> None:
    """Raise before anything is made where the rows as they are now cannot be rows of the new table."""
    if not keeps_partitions_apart(session.config.key, config.key):
        config.key.check_types(TableSchema.from_json(value.schema))
        refuse_twins(Loader(session, value, config), Cut.latest(value, "completed"))


def _first_schema(session: Session, value: Timeline, config: TableConfig, layout: Layout) -> TableSchema:
    """The columns that the new table is created with, which every row must have.

    Those that the old table was created with, as writers go on leaving out what was added later. But where the settings
    differ they may need columns that were added: then all that there are now.
    """
    created, now = session.config.created_schema(), TableSchema.from_json(value.schema)
    same = (config.key.partition_fields, config.merge) == (session.config.key.partition_fields, session.config.merge)
    enough = created is not None and same and set(layout.columns) <= set(created.stored.names)
    chosen = created if created is not None and enough else now
    return chosen.select(name for name in chosen.declared.names if is_moved(name, value.names, config))


def _report(session: Session, target: Session, opened: Timeline, address: str, migration: Migration) -> Migrated:
    assert opened.origin is not None
    moved = session.tail().moving
    closed_ms = to_ms(moved.closed) if moved is not None else to_ms(opened.origin.opened)
    turned_away = timedelta(milliseconds=max(0, to_ms(opened.origin.opened) - closed_ms))
    rows = Snapshot.seal(target, opened).count()
    return Migrated(address, rows, migration.rows, migration.commits, turned_away)
