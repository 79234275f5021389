"""First loads: fill a table before it exists, and let it appear with its rows in one step.

    a load      puts base files at their final paths, and everything else into its own folder, `loads/<table id>`
    appears     puts the properties if there are none: the event, which only the first load or create wins
    in place    a process that opens a table without a timeline copies the load's folder, the timeline last

Before the table exists, nobody removes files of others, as a silent load may be the first to appear. Afterwards all
other loads have lost, and `clear` removes their files.
"""

from __future__ import annotations

import builtins  # inside the class, `list` is a method
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.ground.parquet import ParquetSource, RangeReader
from crdt_mor.log.paths import HEARTBEATS, LOADS, PROPERTIES, STAGED, VERSIONS, is_own, outside_other_tables
from crdt_mor.log.steps import PUTS_MAX
from crdt_mor.log.tail import versions_in
from crdt_mor.model.names import BaseFileName, data_file_name, driver_token, timeline_file_name
from crdt_mor.store.paths import in_hoodie
from crdt_mor.store.protocol import Bucket, Content, Durable, Stat, Store, is_bucket, side_by_side

T = TypeVar("T")

_TOKENS = 1_000_000_000


def load_folder(table_id: str) -> str:
    return f"{LOADS}/{table_id}"


def load_token(table_id: str) -> str:
    """Return the write token of a load's base files: a driver's token, so a sweep removes files that no commit
    names.
    """
    digest = hashlib.sha256(table_id.encode()).digest()
    return driver_token(int.from_bytes(digest[:8], "big") % _TOKENS)


def load_store(store: Store, table_id: str) -> LoadStore:
    return LoadBucket(store, table_id) if is_bucket(store) else LoadStore(store, table_id)


class LoadStore:
    """Base files with the load's token at their final paths, all other objects in the load's folder."""

    def __init__(self, store: Store, table_id: str) -> None:
        self._store = store
        self._folder = load_folder(table_id)
        self._token = load_token(table_id)

    def __repr__(self) -> str:
        return f"LoadStore({self._store!r}, {self._folder!r})"

    def read(self, path: str) -> bytes | None:
        return self._store.read(self._at(path))

    def view(self, path: str) -> memoryview | None:
        return self._store.view(self._at(path))

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        return self._store.put(self._at(path), data, durable=durable, after=[self._at(earlier) for earlier in after])

    def copy(self, source: str, target: str) -> bool:
        return self._store.copy(self._at(source), self._at(target))

    def stat(self, path: str) -> Stat | None:
        stat = self._store.stat(self._at(path))
        return None if stat is None else Stat(path, stat.size, stat.modified_ms)

    def list(self, folder: str) -> builtins.list[Stat]:
        return self._merged(self._store.list(self._below(folder)), self._shared(self._store.list, folder))

    def walk(self, folder: str) -> builtins.list[Stat]:
        """List all objects below `folder`, without `.hoodie` unless `folder` is inside."""
        below = self._store.walk(self._below(folder))
        hudi = f"{self._folder}/.hoodie/"
        own = [stat for stat in below if in_hoodie(folder) or not stat.path.startswith(hudi)]
        return self._merged(own, self._shared(self._store.walk, folder))

    def delete(self, path: str) -> None:
        self._store.delete(self._at(path))

    def touch(self, path: str) -> None:
        self._store.touch(self._at(path))

    def make_durable(self, path: str) -> None:
        self._store.make_durable(self._at(path))

    def now_ms(self) -> int:
        return self._store.now_ms()

    def parquet(self, path: str) -> ParquetSource | None:
        return self._store.parquet(self._at(path))

    def _at(self, path: str) -> str:
        return path if _is_of(path, self._token) else self._below(path)

    def _below(self, path: str) -> str:
        return f"{self._folder}/{path}".removesuffix("/")

    def _shared(self, look: Callable[[str], builtins.list[Stat]], folder: str) -> builtins.list[Stat]:
        return [] if in_hoodie(folder) else look(folder)  # base files are outside

    def _merged(self, own: builtins.list[Stat], shared: builtins.list[Stat]) -> builtins.list[Stat]:
        start = len(self._folder) + 1
        found = [Stat(stat.path[start:], stat.size, stat.modified_ms) for stat in own]
        found += [stat for stat in shared if _is_of(stat.path, self._token)]
        return sorted(found, key=lambda stat: stat.path)


class LoadBucket(LoadStore):
    _store: Bucket

    @property
    def options(self) -> dict[str, str]:
        return self._store.options

    def texts(self) -> dict[str, str]:
        return self._store.texts()

    def ranges_of(self, path: str, size: int) -> RangeReader:
        return self._store.ranges_of(self._at(path), size)

    def copy_from(self, source: Bucket, path: str, size: int) -> bool | None:  # noqa: ARG002
        return None

    def is_in_bucket_of(self, other: Store) -> bool:
        return self._store.is_in_bucket_of(other)

    def numbered(self, folder: str) -> builtins.list[Stat]:
        return self._merged(self._store.numbered(self._below(folder)), self._shared(self._store.numbered, folder))

    def probe(self) -> None:
        self._store.probe()

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> builtins.list[T]:
        return self._store.side_by_side(calls)

    def afterwards(self, call: Callable[[], None]) -> None:
        self._store.afterwards(call)


def put_in_place(store: Store, table_id: str | None) -> bool:
    """Copy the timeline of a first load into place if missing. Returns True if the table has a timeline.

    Hudi's readers see the table already. So each completed file follows all other objects, and the version comes last.
    """
    if table_id is None or versions_in(store):
        return table_id is not None
    folder = load_folder(table_id)
    paths = [stat.path for stat in store.walk(folder)]
    versions = [path for path in paths if path.startswith(f"{folder}/{VERSIONS}/")]
    if not versions:
        return bool(versions_in(store))  # the load's folder is deleted once everything is in place
    store.make_durable(PROPERTIES)  # their writer may have died, and a power cut would lose the table
    passing = tuple(f"{folder}/{name}/" for name in (VERSIONS, HEARTBEATS, STAGED))
    others = [path for path in paths if not path.startswith(passing)]
    ended = [path for path in others if (name := timeline_file_name(path)) is not None and name.state == "completed"]
    for together in ([path for path in others if path not in ended], *([path] for path in (*ended, versions[-1]))):
        copies = [partial(_copied, store, path, path.removeprefix(f"{folder}/")) for path in together]
        if not all(side_by_side(store, copies)):
            return bool(versions_in(store))
    remove(store, table_id, base_files=False)
    return True


def _copied(store: Store, source: str, target: str) -> bool:
    for _ in range(PUTS_MAX):
        try:
            if not store.copy(source, target):
                store.make_durable(target)
        except CommitUnknownError:
            continue
        except StorageUnavailableError:
            if store.stat(source) is not None:
                raise
            return False
        return True
    raise StorageUnavailableError(f"the store did not confirm the copy of an object. Try again. path={target}")


def is_under_way(store: Store, expiry_ms: int) -> bool:
    """Return True if some load was active lately. Only for messages: no decision depends on this."""
    found = store.walk(LOADS)
    now_ms = store.now_ms() if found else 0
    return any(abs(now_ms - stat.modified_ms) < expiry_ms for stat in found)


def clear(store: Store, table_id: str | None) -> None:
    """Remove the files of all other loads: they can no longer appear."""
    others = {stat.path.removeprefix(f"{LOADS}/").partition("/")[0] for stat in store.walk(LOADS)}
    for other in sorted(other for other in others if is_own(load_folder(other))):
        remove(store, other, base_files=other != table_id)


def remove(store: Store, table_id: str, *, base_files: bool = True) -> None:
    """Remove the files of a load, its newest version last: others find the load, and its timeline, by this version."""
    token = load_token(table_id)
    found = outside_other_tables(store.walk("")) if base_files else []
    _delete(store, [stat.path for stat in found if _is_of(stat.path, token)])
    folder = load_folder(table_id)
    paths = [stat.path for stat in store.walk(folder)]
    newest = [path for path in paths if path.startswith(f"{folder}/{VERSIONS}/")][-1:]
    _delete(store, [path for path in paths if path not in newest])
    _delete(store, newest)


def _delete(store: Store, paths: Sequence[str]) -> None:
    side_by_side(store, [partial(store.delete, path) for path in paths])


def _is_of(path: str, token: str) -> bool:
    name = data_file_name(path)
    return isinstance(name, BaseFileName) and name.token == token
