"""What a table is created with, from the arguments of `Table.create` to the properties that say it for ever."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from crdt_mor.columns.names import created
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import (
    InvalidInputError,
    PartitionNotInKeyWarning,
    TableExistsError,
)
from crdt_mor.events import load
from crdt_mor.events.session import read_config
from crdt_mor.format import properties
from crdt_mor.ground.clock import Environment
from crdt_mor.ground.forks import require_threads
from crdt_mor.laws.merging import check_columns
from crdt_mor.laws.resolve import payload_of, reference, resolve
from crdt_mor.log.deciding import put_deciding
from crdt_mor.log.opening import has_lost_properties
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.merge.payload import PartialUpdate, Payload
from crdt_mor.model.alteration import created_with
from crdt_mor.model.alteration import names_of as names_after
from crdt_mor.model.config import TableConfig
from crdt_mor.model.config_properties import OUR_NAMES, OUR_RULES
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.layout import BY_KEY, Layout
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec, PayloadRef
from crdt_mor.model.rules import Rules, rules_text
from crdt_mor.store.lakes import lake_in
from crdt_mor.store.local import LocalStore
from crdt_mor.store.protocol import Store, is_bucket
from crdt_mor.write.named import called_config, renamed_config

Merge = Mapping[Any, Payload | str] | PartialUpdate | str
"""What happens when two writers meet on a key: payloads by column, partial updates, or what `str` made of them.

Columns are texts, or tuples of them that decide together. The type of a mapping's keys has to fit exactly, so that a
narrower one than `Any` would refuse a dictionary of texts alone, or of tuples alone.
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
    """The properties of a new table, and its settings as every later process reads them there.

    names: what people call the columns, as the property says it; all else is in stored names.
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
    """Raise where settings and columns do not fit; asked under the names that people see first, which it then says."""
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
    """Put the properties of a new table; returns its settings as every later process reads them, and True.

    Where there is a table already, returns the settings of that one and False if `exist_ok`: see `create_again`.

    layout, rules: those that the table begins with. They may be changed later; Hudi's file of settings, in which they
        stand then, never is.
    expiry_ms: how long a first load must have been silent here, so that nothing is said of it.
    names: as of `new_properties`.
    """
    require_threads(uri)
    absent = store.stat(PROPERTIES) is None
    if not absent and exist_ok:
        for column in requested.merge.columns:
            resolve(column.payload)  # which the program may not be allowed to use
        return _durable(store, uri), False
    content, config = new_properties(environment, uri, requested, columns, layout, rules, names)
    refuse_another_format(store, uri)
    if absent:
        refuse_inside_a_table(store, uri)
        require_no_timeline(store, uri)
        _require_no_load(store, uri, expiry_ms)
        if is_bucket(store):
            store.probe()
    if put_deciding(store, PROPERTIES, content):
        with suppress(Exception):  # the table is there, and nobody sees what they have left
            load.clear(store, config.table_id)
        return config, True
    if not exist_ok:
        read_config(store, uri)
        raise TableExistsError(f"there is a table already; open it, or pass exist_ok=True. path={uri}")
    return _durable(store, uri), False


def require_no_timeline(store: Store, uri: str) -> None:
    """Raise `TableExistsError` where a timeline is without properties: those of a new table would not be its own."""
    if has_lost_properties(store):
        raise TableExistsError(
            "a table is here without its file of properties: restore that file from a backup; or, where a copy of a "
            "table is on its way here, wait for it, or run it again if it was stopped; or choose another address. "
            f"path={uri} file={PROPERTIES}"
        )


def _require_no_load(store: Store, uri: str, expiry_ms: int) -> None:
    if load.is_under_way(store, expiry_ms) and store.stat(PROPERTIES) is None:
        raise TableExistsError(
            "Table.create_from loads a table here: wait for it. If it has died, run it again, or create the table with "
            f"a shorter writer_expiry, within which a load must have been silent. path={uri}"
        )


def _durable(store: Store, uri: str) -> TableConfig:
    """The settings of a table that is there, which no power cut takes away from here on."""
    config = read_config(store, uri)
    store.make_durable(PROPERTIES)
    return config


def payloads_there(store: Store, uri: str) -> list[PayloadRef]:
    """The payloads of the table that a store holds already; none where it holds none."""
    if store.stat(PROPERTIES) is None:
        return []
    return [column.payload for column in read_config(store, uri).merge.columns]


def warn_of_partitions(key: KeySpec) -> None:
    """Warn where a table is made whose key does not name its partition, of what happens to a row that changes it."""
    beside = [name for name in key.partition_fields if name not in key.fields]
    if beside:
        warnings.warn(
            "the key does not name the partition, so a row whose partition changes lives twice: an upsert leaves the "
            "old one where it is. Make the column a part of the key, or leave it out of partition_by; or move rows, "
            "merge(...) or move(...). Where it never changes, such as the day of an event, pass this warning over. "
            f"columns={beside} key={list(key.fields)}",
            PartitionNotInKeyWarning,
            stacklevel=4,
        )


def refuse_another_format(store: Store, uri: str) -> None:
    """Refuse a folder in which another engine keeps a table, unless there is one of Hudi's beside it already."""
    lake = lake_in(store)
    if lake is not None and store.stat(PROPERTIES) is None:
        raise TableExistsError(
            f"there is a table of {lake.name} here, and files of ours do not belong into it: {lake.advice(uri)}. "
            f"path={uri}"
        )


def refuse_inside_a_table(store: Store, uri: str) -> None:
    """Refuse a new table in the folder of another one on a disk. Of a bucket no folder around the table is asked for,
    where its user may see nothing."""
    if not isinstance(store, LocalStore) or store.stat(PROPERTIES) is not None:
        return
    around = store.nearest_above(PROPERTIES)
    if around is not None:
        raise InvalidInputError(
            "a table is not made in another table's folder, as Hudi's readers would take its files for those of that "
            f"table: give an address beside it. path={uri} table={around}"
        )


def in_stored_names(
    config: TableConfig, layout: Layout, shown: pa.Schema
) -> tuple[TableConfig, Layout, TableSchema, dict[str, str]]:
    """What a table is to be created with under the names of its files.

    The last are the stored names of columns that people call otherwise, by what they call them.
    """
    stored, by_shown = created(shown)
    odd = {name: own for name, own in by_shown.items() if name != own}
    if odd:
        config = renamed_config(config, odd)
        layout = layout.renamed(lambda name: odd.get(name, name))
    return config, layout, TableSchema.of(stored), odd


def names_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of columns, also where one is passed by itself."""
    found = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if not all(isinstance(name, str) for name in found):
        raise InvalidInputError(f"columns are named by texts, one or a list of them. got={names!r}")
    return found


def default_name(uri: str | os.PathLike[str]) -> str:
    """A name that Hudi allows, after the table's folder."""
    base = os.path.basename(str(uri).rstrip("/")) or "table"
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in base)
    return f"_{name}" if name[0].isdigit() else name


def merge_spec(merge: Merge | None, ordering: str | None, kept: Collection[PayloadRef] = ()) -> MergeSpec:
    """The merge that a table will have, from the arguments `merge` and `ordering`. kept: as for `reference`."""
    if ordering and merge is not None:
        raise InvalidInputError(
            "merge says itself how versions are ordered: give merge or ordering, not both. Where the greatest value of "
            "a column decides some columns, merge={(…): LatestBy(…)}"
        )
    match merge:
        case None:
            return MergeSpec("ordering", ordering) if ordering else MergeSpec()
        case str():
            return MergeSpec.parse(merge)
        case PartialUpdate() if merge.nulls not in ("value", "keep"):
            raise InvalidInputError(
                "nulls of PartialUpdate is 'value' or 'keep', and payloads are given by the word columns: "
                f"PartialUpdate(columns={{'views': Counter()}}). nulls={merge.nulls!r}"
            )
        case PartialUpdate():
            return MergeSpec("partial", nulls=merge.nulls, columns=_members(merge.columns, kept))
        case Mapping():
            return MergeSpec(columns=_members(merge, kept))
    raise InvalidInputError(
        f"merge takes payloads by column, like {{'views': Counter()}}, or PartialUpdate(). got={merge!r}"
    )


def _members(columns: Mapping[Any, Payload | str], kept: Collection[PayloadRef]) -> tuple[ColumnMerge, ...]:
    """What the table will store of its payloads; each keeps its laws, or is refused here."""
    members = [ColumnMerge(names_of(n), reference(payload_of(payload), kept)) for n, payload in columns.items()]
    return tuple(sorted(members, key=lambda member: member.columns))
