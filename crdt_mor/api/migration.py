"""Migrations: settings of the new table, its creation or reopening, and the summary of a call.

Settings not given are those of the old table. `services.migration` copies rows and follows the writers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from crdt_mor.api.create import Merge, merge_spec, put_properties, with_function_columns
from crdt_mor.api.create_again import require_layout
from crdt_mor.api.statements import names_of
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
from crdt_mor.events.handle import read_config
from crdt_mor.events.session import Session
from crdt_mor.log.deciding import deciding
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import to_ms
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.layout import LINEAR, Layout
from crdt_mor.model.migration import Moving, Origin, require_arrived, require_not_moved
from crdt_mor.model.partition_functions import PartitionFunction, partition_by_of
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
"""Permanent errors: the migration is given up, so that the old table accepts writes."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """A completed migration.

    Attributes:
        uri: the new address.
        rows: number of rows in the new table.
        copied_rows, commits: written by this call; rows changed meanwhile count repeatedly.
        turned_away: time between closing the old table and opening the new table.
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
class NewSettings:
    """Requested settings of the new table; None means the old table's."""

    buckets: int | None = None
    partition_by: str | PartitionFunction | Sequence[str | PartitionFunction] | None = None
    hive_style: bool | None = None
    merge: Merge | None = None
    ordering: str | None = None
    cluster_by: str | Sequence[str] | None = None
    cluster_order: str | None = None
    name: str | None = None

    def config(self, old: TableConfig) -> TableConfig:
        merge = old.merge
        if self.merge is not None or self.ordering is not None:
            merge = merge_spec(self.merge, self.ordering, old.merge.ttl)
        partitions = old.key.partition_by if self.partition_by is None else partition_by_of(self.partition_by)
        hive_style = self.hive_style
        if hive_style is None:
            hive_style = old.key.hive_style if old.key.partition_by else True
        key = KeySpec(old.key.fields, partitions, hive_style and bool(partitions))
        return TableConfig(self.name or old.name, key, merge, old.buckets if self.buckets is None else self.buckets)

    def layout(self, old: Layout, stored: Mapping[str, str]) -> Layout:
        """Return the new table's layout. `stored` maps user-visible column names to stored names."""
        if self.cluster_by is None and self.cluster_order is None:
            return old
        asked = () if self.cluster_by is None else names_of(self.cluster_by)
        columns = old.columns if self.cluster_by is None else tuple(stored.get(name, name) for name in asked)
        return Layout.checked(columns, self.cluster_order or LINEAR, old.compression)


def migrate(
    session: Session,
    to_uri: str | os.PathLike[str],
    settings: NewSettings,
    pending: PendingPolicy,
    on_progress: OnProgress | None,
    storage_options: Mapping[str, Any] | None,
    store: Store | None,
) -> Migrated:
    if pending not in ("wait", "roll_back"):
        raise InvalidInputError(f'pending must be "wait" or "roll_back". got={pending!r}')
    address = absolute(to_uri) if store is None else str(to_uri)
    objects = store_beside(session, to_uri, storage_options, store)
    _require_movable(session)
    source = session.views.sealed(decided=True)
    if source.moving is None:
        require_arrived(source.origin)
        if store is None:
            require_beside(session, address, "moved")
    target = _target(session, source, address, settings, objects)
    assert session.config.table_id is not None
    assert target.config.table_id is not None
    origin = Origin(session.config.table_id, session.uri if session.uri == "" else _address(session))
    begin(session, target, address, origin)
    migration = Migration(session, target, on_progress or (lambda _: None))
    try:
        opened = migration.run(pending)
    except _CANNOT_GO_ON:
        with suppress(InvalidInputError):  # another process may have opened the new table
            cancel(session, target)
        raise
    with deciding(is_made=True):
        return _report(session, target, opened, address, migration)


def cancel_migration(
    session: Session, storage_options: Mapping[str, Any] | None, store: Store | None, removed: bool
) -> bool:
    value = session.remember(session.tail())
    if value.moving is None:
        return False
    found = _opened(session, value.moving.uri, storage_options, store)
    target = found if found is not None and found.config.table_id == value.moving.table_id else None
    if target is None and not removed:
        there = "nothing" if found is None else f"another table, {found.config.table_id}"
        raise InvalidInputError(
            "the new table is not found from here, so it may already have writers: if it was removed, call "
            "cancel_migration(removed=True), otherwise pass its store or call from a machine that reaches the table. "
            f"uri={value.moving.uri} table_id={value.moving.table_id} found={there}"
        )
    return cancel(session, target)


def _opened(
    session: Session, uri: str, storage_options: Mapping[str, str] | None, store: Store | None
) -> Session | None:
    try:
        objects = store_beside(session, uri, storage_options, store)
        return session.open_another(uri, objects)
    except TableNotFoundError:
        return None


def _require_movable(session: Session) -> None:
    require_writable(session)
    if not session.config.ours or session.config.table_id is None:
        raise UnsupportedFeatureError(
            "this table was not made by a current release of crdt_mor, and its writers would not notice the move: "
            "stop them, then copy it, Table.create(...).append(Table(...).scan())."
        )
    if session.config.merge.partial and session.config.merge.ordering is not None:
        raise UnsupportedFeatureError(
            "a table with partial updates under an ordering column cannot be moved, because its rows note the ordering "
            "value of each column: stop its writers, then copy it, Table.create(...).append(Table(...).scan()). "
            f"ordering={session.config.merge.ordering!r}"
        )
    session.adopt()
    tail = session.tail()
    require_own_groups(tail)
    erasures = open_erasures(session) if tail.moving is None else ()
    if erasures:
        raise InvalidInputError(
            "an erasure of this table is unfinished, and a copy would keep the rows in its history: repeat the "
            f"erasure until it finishes, then migrate. erasure={erasures[0].requested}"
        )


def _address(session: Session) -> str:
    return address_of(session) or session.uri


def address_of(session: Session) -> str | None:
    """Return a table's address, or None if its store was passed and it only has a name."""
    try:
        return absolute(session.uri)
    except (InvalidInputError, UnsupportedFeatureError):
        return None


def require_beside(session: Session, address: str, verb: str) -> None:
    own = address_of(session)
    if own is not None and are_nested(address, own):
        raise InvalidInputError(
            f"a table cannot be {verb} to an address inside or around its own folder, because Hudi's readers would "
            f"mix the files of both: pass an address beside it. path={address} table={own}"
        )


def store_beside(
    session: Session,
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    store: Store | Handed | None,
) -> Store:
    """Return the store at another address; without options, use this table's."""
    if storage_options is None and store is None and is_bucket(session.store) and _same_kind(session, uri):
        storage_options = session.store.options
    return store_at(uri, session.environment, storage_options, store)


def _same_kind(session: Session, uri: str | os.PathLike[str]) -> bool:
    here, there = place_of(session.uri), place_of(uri)
    return here is not None and there is not None and here.provider == there.provider


def _target(session: Session, value: Timeline, address: str, settings: NewSettings, objects: Store) -> Session:
    environment = session.environment
    by_shown = value.names.by_shown(TableSchema.from_json(value.schema).declared.names)
    config = renamed_config(settings.config(called_config(session.config, value.names)), by_shown)
    config = with_function_columns(config, TableSchema.from_json(value.schema))
    layout = settings.layout(Layout.of(value.properties), by_shown)
    if objects.stat(PROPERTIES) is None:
        _refuse_to_make_another(value.moving, address)
        _refuse_beforehand(session, value, config)
        columns = _first_schema(session, value, config, layout)
        made, _ = put_properties(objects, environment, address, config, columns, True, layout, session.expiry_ms)
    else:
        made = read_config(objects, address)
    _require_same(config, made, address)
    if made.table_id == session.config.table_id:
        raise InvalidInputError(f"a table cannot move to its own address: pass another one. uri={address}")
    target = Session(objects, environment, made, session.expiry_ms, address)
    target.maintain, target.memory_limit = "off", session.memory_limit
    target.start()
    if settings.cluster_by is not None:
        require_layout(target, layout)
    return target


def _refuse_to_make_another(announced: Moving | None, address: str) -> None:
    require_not_moved(announced)
    if announced is None:
        return
    removed = "the migration's new table is gone: give the migration up with cancel_migration(removed=True)"
    elsewhere = (
        "another migration of this table is in progress: continue it by calling migrate with its address, or give it "
        "up with cancel_migration()"
    )
    raise InvalidInputError(
        f"{removed if announced.uri == address else elsewhere}, then start the new migration. "
        f"moves_to={announced.uri} table_id={announced.table_id} asked={address}"
    )


def _require_same(settings: TableConfig, found: TableConfig, address: str) -> None:
    pairs = {
        "key": (settings.key, found.key),
        "merge": (settings.merge, found.merge),
        "buckets": (settings.buckets, found.buckets),
    }
    for name, (asked, there) in pairs.items():
        if asked != there:
            raise TableExistsError(
                f"the new address contains a table with another {name}: to continue a migration, repeat its "
                f"arguments. path={address} asked={asked} found={there}"
            )


def _refuse_beforehand(session: Session, value: Timeline, config: TableConfig) -> None:
    if not keeps_partitions_apart(session.config.key, config.key):
        config.key.check_types(TableSchema.from_json(value.schema))
        refuse_twins(Loader(session, value, config), Cut.latest(value, "completed"))


def _first_schema(session: Session, value: Timeline, config: TableConfig, layout: Layout) -> TableSchema:
    """Return the new table's initial columns, which every row must have.

    These are the old table's initial columns, because writers may omit columns added later, and the columns that the
    new settings name.
    """
    created, now = session.config.created_schema(), TableSchema.from_json(value.schema)
    needed = {*config.key.partition_fields, *config.merge.names, *config.merge.expiry_columns, *layout.columns}
    if created is None:
        chosen = now
    elif needed <= set(created.declared.names):
        chosen = created
    else:
        chosen = now.select(name for name in now.declared.names if name in needed.union(created.declared.names))
    moved = chosen.select(name for name in chosen.declared.names if is_moved(name, value.names, config))
    return TableSchema(pa.schema([*moved.declared, *config.key.function_fields(moved.stored)]))


def _report(session: Session, target: Session, opened: Timeline, address: str, migration: Migration) -> Migrated:
    assert opened.origin is not None
    moved = session.tail().moving
    closed_ms = to_ms(moved.closed) if moved is not None else to_ms(opened.origin.opened)
    turned_away = timedelta(milliseconds=max(0, to_ms(opened.origin.opened) - closed_ms))
    rows = Snapshot.seal(target, opened).count()
    return Migrated(address, rows, migration.rows, migration.commits, turned_away)
