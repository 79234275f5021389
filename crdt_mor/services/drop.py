"""Drop a table: remove all its objects, in an order in which nobody ever reads a smaller table.

    last version ─► properties ─► data files, mirrors, the rest of .hoodie ─► versions, oldest first

The last version decides (`log.dropped`). Without properties Hudi's readers find no table. While the last version
stands, `Table.create` is refused, and a repeated drop finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from crdt_mor.errors import InvalidInputError, StorageUnavailableError, TableNotFoundError
from crdt_mor.events import load
from crdt_mor.ground.clock import Environment
from crdt_mor.log.dropped import put_last_version
from crdt_mor.log.paths import BACKUP, PROPERTIES, VERSIONS, outside_other_tables, version_path
from crdt_mor.log.steps import run
from crdt_mor.log.tail import versions_in
from crdt_mor.mirror.delta_log import LOG
from crdt_mor.mirror.delta_vectors import FOLDER as VECTORS
from crdt_mor.mirror.files import FOLDER as MIRROR
from crdt_mor.mirror.iceberg_metadata import FOLDER as METADATA
from crdt_mor.model.names import data_file_name
from crdt_mor.model.policies import plural, words_of_bytes
from crdt_mor.store.paths import one_of_each_folder
from crdt_mor.store.protocol import Stat, Store, side_by_side

_MIRRORS: Final = tuple(f"{folder}/" for folder in (MIRROR, VECTORS, LOG, METADATA))

_ROUNDS: Final = 10
"""A running writer ends at its next look at the timeline."""

_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of `drop_table`.

    Attributes:
        objects, bytes: the table's objects.
        left: number of other objects in the folder, which stay.
    """

    uri: str
    objects: int
    bytes: int
    left: int
    dry_run: bool = False

    def __str__(self) -> str:
        done = "would remove" if self.dry_run else "removed"
        left = f"; {plural(self.left, 'other object', ',')} in the folder stay" if self.left else ""
        return f"{self.uri}: {done} {plural(self.objects, 'object', ',')}, {words_of_bytes(self.bytes)}{left}"


def drop(store: Store, uri: str, environment: Environment, expiry_ms: int, *, dry_run: bool = False) -> Dropped:
    """expiry_ms: a first load silent this long is dead."""
    _require_table(store, uri, expiry_ms)
    found = _Found.of(store)
    result = Dropped(uri, len(found.own), sum(stat.size for stat in found.own), found.left, dry_run)
    if not dry_run:
        last = run(put_last_version(), store, environment)
        _remove(store, uri, last)
    return result


def _require_table(store: Store, uri: str, expiry_ms: int) -> None:
    if store.stat(PROPERTIES) is None and store.stat(BACKUP) is None:
        if load.is_under_way(store, expiry_ms):
            raise InvalidInputError(
                "Table.create_from is loading a table here: wait for its end, or stop the load and drop the table "
                f"after writer_expiry. path={uri}"
            )
        if not versions_in(store):
            store.make_durable(version_path(0))  # a process may have died after the last deletion
            raise TableNotFoundError(f"there is no table here, so nothing was removed. path={uri}")


@dataclass(frozen=True, slots=True)
class _Found:
    """data: includes mirrors. left: number of other objects."""

    data: Sequence[Stat]
    hoodie: Sequence[Stat]
    left: int

    @property
    def own(self) -> list[Stat]:
        return [*self.data, *self.hoodie]

    @classmethod
    def of(cls, store: Store) -> _Found:
        outside, hoodie = side_by_side(store, [partial(store.walk, ""), partial(store.walk, ".hoodie")])
        data = [stat for stat in outside_other_tables(outside) if _is_of_table(stat.path)]
        return cls(data, hoodie, len(outside) - len(data))


def _is_of_table(path: str) -> bool:
    name = path.rpartition("/")[2]
    return (
        path.startswith(_MIRRORS) or name.startswith(".hoodie_partition_metadata") or data_file_name(path) is not None
    )


def _remove(store: Store, uri: str, last: str) -> None:
    _delete_in_order(store, [BACKUP, PROPERTIES])
    for _ in range(_ROUNDS):
        found = _Found.of(store)
        rest = [stat.path for stat in found.hoodie if not stat.path.startswith(f"{VERSIONS}/")]
        if not found.data and not rest:
            break
        _delete(store, [stat.path for stat in found.data])
        _delete(store, rest)
    else:
        raise StorageUnavailableError(
            f"other processes keep writing here: stop them, then drop the table again. path={uri}"
        )
    versions = [stat.path for stat in store.list(VERSIONS) if stat.path != last]
    _delete_in_order(store, [*versions, last])
    if (remove_empty := getattr(store, "remove_empty_folders", None)) is not None:
        remove_empty()


def _delete_in_order(store: Store, paths: Sequence[str]) -> None:
    for path in paths:
        store.delete(path)
        store.make_durable(path)


def _delete(store: Store, paths: Sequence[str]) -> None:
    """Delete durably: an object of each folder goes last, so a repeated drop finds every folder."""
    lasts = one_of_each_folder(sorted(paths, key=_is_harmless))
    for some in ([*{*paths} - {*lasts}], lasts):
        for start in range(0, len(some), _AT_ONCE):
            calls: list[Callable[[], Any]] = [partial(store.delete, path) for path in some[start : start + _AT_ONCE]]
            side_by_side(store, calls)
        for path in lasts:
            store.make_durable(path)


def _is_harmless(path: str) -> bool:
    """Return True if the object means nothing to a later table, should a power cut undo its deletion."""
    name = path.rpartition("/")[2]
    return name.startswith(".hoodie_partition_metadata") or name == ".crdt_mor"
