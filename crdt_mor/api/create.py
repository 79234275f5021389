"""`Table.create`: convert the arguments to properties of a new table."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from crdt_mor.api.statements import names_of
from crdt_mor.columns.markers import is_marker
from crdt_mor.columns.names import created
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, PartitionNotInKeyWarning, TableExistsError
from crdt_mor.events import load
from crdt_mor.events.handle import read_config
from crdt_mor.format import properties
from crdt_mor.ground.clock import Environment
from crdt_mor.ground.forks import require_threads
from crdt_mor.laws.merging import check_columns
from crdt_mor.laws.resolve import payload_of, reference, resolve
from crdt_mor.log.deciding import put_deciding
from crdt_mor.log.opening import has_lost_properties
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.merge.payload import PartialUpdate, Payload
from crdt_mor.model import partition_functions
from crdt_mor.model.alteration import created_with
from crdt_mor.model.alteration import names_of as names_after
from crdt_mor.model.config import TableConfig
from crdt_mor.model.config_properties import OUR_NAMES, OUR_RULES
from crdt_mor.model.expiry import Expiry, Ttl
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.layout import BY_KEY, Layout
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec, PayloadRef, Unavailable
from crdt_mor.model.rules import Rules, rules_text
from crdt_mor.store.lakes import lake_in
from crdt_mor.store.local import LocalStore
from crdt_mor.store.protocol import Store, is_bucket
from crdt_mor.write.named import called_config, renamed_config

Merge = Mapping[Any, Payload | str] | PartialUpdate | str
"""How the rows of a key are merged: payloads by column, partial updates, or a merge rule as text.

A column is a string, or a tuple for a payload of several columns. `Any` lets callers pass a dict of either key type.
"""


def new_properties(
    environment: Environment,
    uri: str,
    requested: TableConfig,
    columns: TableSchema,
    layout: Layout = BY_KEY,
    rules: Rules = (),
    names: str = "",
) -> tuple[bytes, TableConfig]:
    """Return the properties of a new table, and its settings as later processes read them.

    names: the visible column names, as a property; other arguments use stored names.
    """
    if names:
        seen = names_after(created_with({OUR_NAMES: names}))
        _require_fitting(called_config(requested, seen), seen.outward(columns), layout.renamed(seen.shown))
    _require_fitting(requested, columns, layout)
    made_with = {OUR_RULES: rules_text(rules)} if rules else {}
    own = requested.to_properties(columns, environment.nonce(), names)
    table_properties = {**own, **layout.properties, **made_with}
    comments = [f"Properties saved on {datetime.fromtimestamp(environment.now_ms() / 1000, UTC).isoformat()}"]
    return properties.encode_table(table_properties, comments), TableConfig.from_properties(table_properties, uri)


def _require_fitting(config: TableConfig, columns: TableSchema, layout: Layout) -> None:
    """Raise if settings and columns do not fit. Visible names are checked first, so the error contains them."""
    config.check_new(columns)
    layout.require_columns(columns)
    check_columns(config, columns)


def put_properties(
    store: Store,
    environment: Environment,
    uri: str,
    requested: TableConfig,
    columns: TableSchema,
    exist_ok: bool,
    layout: Layout,
    expiry_ms: int,
    rules: Rules = (),
    names: str = "",
) -> tuple[TableConfig, bool]:
    """Put the properties of a new table; return its settings and True.

    If a table exists and `exist_ok`, return its settings and False, see `create_again`.

    layout, rules: the initial ones, which Hudi's file of settings keeps. expiry_ms: a first load silent this long is
    ignored.
    """
    require_threads(uri)
    absent = store.stat(PROPERTIES) is None
    if not absent and exist_ok:
        for column in requested.merge.columns:
            resolve(column.payload)  # raises if the payload is not allowed
        return _durable(store, uri), False
    content, config = new_properties(environment, uri, requested, columns, layout, rules, names)
    refuse_another_format(store, uri)
    if absent:
        refuse_nested(store, uri)
        require_no_timeline(store, uri)
        _require_no_load(store, uri, expiry_ms)
        if is_bucket(store):
            store.probe()
    if put_deciding(store, PROPERTIES, content):
        with suppress(Exception):  # leftovers of a load are invisible
            load.clear(store, config.table_id)
        return config, True
    if not exist_ok:
        read_config(store, uri)
        raise TableExistsError(f"there is a table already; open it, or pass exist_ok=True. path={uri}")
    return _durable(store, uri), False


def require_no_timeline(store: Store, uri: str) -> None:
    if has_lost_properties(store):
        raise TableExistsError(
            "this table lacks its properties: restore the file from a backup. If a copy to this address is running, "
            "wait or run the copy again; else choose another address. "
            f"path={uri} file={PROPERTIES}"
        )


def _require_no_load(store: Store, uri: str, expiry_ms: int) -> None:
    if load.is_under_way(store, expiry_ms) and store.stat(PROPERTIES) is None:
        raise TableExistsError(
            "Table.create_from is loading a table here: wait for its end. If the load died, run it again, or pass "
            f"opening=Opening(writer_expiry=...) with a shorter time. path={uri}"
        )


def _durable(store: Store, uri: str) -> TableConfig:
    """Return an existing table's settings, after making them safe from power cuts."""
    config = read_config(store, uri)
    store.make_durable(PROPERTIES)
    return config


def payloads_there(store: Store, uri: str) -> list[PayloadRef]:
    if store.stat(PROPERTIES) is None:
        return []
    return [column.payload for column in read_config(store, uri).merge.columns]


def warn_of_partitions(key: KeySpec) -> None:
    """Warn if the key does not determine the partition."""
    beside = [name for name in key.partition_fields if name not in key.fields]
    if beside:
        warnings.warn(
            "the key does not determine the partition, so an upsert with another partition leaves the old row. Add the "
            "column to the key, change partition_by, or move rows with move(...). Ignore this if "
            "the value never changes, such as the day of an event. "
            f"columns={beside} key={list(key.fields)}",
            PartitionNotInKeyWarning,
            stacklevel=4,
        )


def refuse_another_format(store: Store, uri: str) -> None:
    """Refuse another engine's table folder, unless it also contains a Hudi table."""
    lake = lake_in(store)
    if lake is not None and store.stat(PROPERTIES) is None:
        raise TableExistsError(f"there is a table of {lake.name} here: {lake.advice(uri)}. path={uri}")


def refuse_nested(store: Store, uri: str) -> None:
    """Refuse a folder in a table's folder, or right above one. Buckets are not checked: users may lack access there."""
    if not isinstance(store, LocalStore) or store.stat(PROPERTIES) is not None:
        return
    around = store.nearest_above(PROPERTIES)
    if around is not None:
        raise InvalidInputError(
            "cannot create a table in another table's folder, as Hudi's readers would mix their files: pass an address "
            f"outside. path={uri} table={around}"
        )
    below = store.first_below(PROPERTIES)
    if below is not None:
        raise InvalidInputError(
            "cannot create a table in a folder that contains tables, as crdt-mor list would not find them: pass the "
            f"address of a new folder. path={uri} table={below}"
        )


def in_stored_names(
    config: TableConfig, layout: Layout, shown: pa.Schema
) -> tuple[TableConfig, Layout, TableSchema, dict[str, str]]:
    """Convert the settings of a new table to stored names.

    The last result maps visible names to stored names, where they differ.
    """
    stored, by_shown = created(shown)
    if config.key.functions:
        config.key.check_types(shown)  # so that messages contain the user's names
    odd = {name: own for name, own in by_shown.items() if name != own}
    if odd:
        config = renamed_config(config, odd)
        layout = layout.renamed(lambda name: odd.get(name, name))
    columns = TableSchema.of(stored)
    if config.key.functions:
        config = with_function_columns(config, columns)
        columns = TableSchema.of(pa.schema([*columns.declared, *config.key.function_fields(columns.stored)]))
    return config, layout, columns, odd


def with_function_columns(config: TableConfig, columns: TableSchema) -> TableConfig:
    """Name the stored columns of a new table's partition functions. columns: all stored columns ever."""
    partition_by = partition_functions.with_columns(config.key.partition_by, columns.stored)
    return replace(config, key=replace(config.key, partition_by=partition_by))


def default_name(uri: str | os.PathLike[str]) -> str:
    base = os.path.basename(str(uri).rstrip("/")) or "table"
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in base)
    return f"_{name}" if name[0].isdigit() else name


def merge_spec(
    merge: Merge | None, ordering: str | None, ttl: Ttl | None = None, kept: Collection[PayloadRef] = ()
) -> MergeSpec:
    """Return a table's merge from the arguments. kept: as in `reference`."""
    spec = _rule_of(merge, ordering, kept)
    if spec.expiry is not None:
        raise InvalidInputError(f"pass the expiry as ttl=, not in merge. merge={merge!r}")
    return spec if ttl is None else replace(spec, expiry=Expiry.of(ttl))


def _rule_of(merge: Merge | None, ordering: str | None, kept: Collection[PayloadRef]) -> MergeSpec:
    if ordering is not None and not isinstance(ordering, str):
        raise InvalidInputError(f"ordering is the name of one column. ordering={ordering!r}")
    if ordering and merge is not None and not isinstance(merge, PartialUpdate):
        raise InvalidInputError(
            "an ordering column goes with merge=PartialUpdate(), or without merge. To order single columns by another "
            f"column, use merge={{(…): LatestBy(…)}}. merge={merge!r} ordering={ordering!r}"
        )
    match merge:
        case None:
            return MergeSpec("ordering", ordering) if ordering else MergeSpec()
        case str():
            return MergeSpec.parse(merge)
        case PartialUpdate() if merge.nulls not in ("value", "keep"):
            raise InvalidInputError(
                "nulls of PartialUpdate must be 'value' or 'keep'; pass payloads as columns: "
                f"PartialUpdate(columns={{'views': Counter()}}). nulls={merge.nulls!r}"
            )
        case PartialUpdate():
            columns, unavailable = _members(merge.columns, kept), _markers(merge.unavailable)
            return MergeSpec("partial", ordering or None, merge.nulls, columns, unavailable=unavailable)
        case Mapping():
            return MergeSpec(columns=_members(merge, kept))
    raise InvalidInputError(
        f"merge must be payloads by column, like {{'views': Counter()}}, or PartialUpdate(). got={merge!r}"
    )


def _markers(given: Any) -> Unavailable:
    markers = {} if given is None else given if isinstance(given, Mapping) else {None: given}
    if not all(map(is_marker, markers.values())):
        raise InvalidInputError(
            "unavailable must be a text, bytes or a number that stands for missing values, or a dict of them "
            f"by column. unavailable={given!r}"
        )
    return tuple(sorted(markers.items(), key=lambda item: str(item[0])))


def _members(columns: Mapping[Any, Payload | str], kept: Collection[PayloadRef]) -> tuple[ColumnMerge, ...]:
    """Return the payloads to store; raise if a law is broken."""
    members = [ColumnMerge(names_of(n), reference(payload_of(payload), kept)) for n, payload in columns.items()]
    return tuple(sorted(members, key=lambda member: member.columns))
