"""First loads: what is put for a table before it is there, and how the table appears with it in one step.

    a load      puts base files at their places, and everything else into a folder of its own, `loads/<table id>`
    appears     puts the settings at their place, if there are none: the one event, of which one load or create is first
    in place    a process that opens a table without a timeline copies what the load's folder holds, the timeline last

Loads do not wait for one another, nor for one that has died. Each of them has its folder, and the names of its base
files bear a token of its own, so that none of them meets what another one has put. Before there is a table nobody
removes what others have put: a load that has been silent for long may be the one that appears. From then on all other
loads have lost, alive or dead, and what they have put is removed (`clear`).
"""

from __future__ import annotations

import builtins  # inside the class, `list` is the store's
import hashlib
from collections.abc import Sequence

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.log.paths import HEARTBEATS, LOADS, PROPERTIES, STAGED, VERSIONS, is_own, outside_other_tables
from crdt_mor.log.steps import PUTS_MAX
from crdt_mor.log.tail import versions_in
from crdt_mor.model.names import BaseFileName, data_file_name, driver_token
from crdt_mor.store.protocol import Content, Durable, Stat, Store

_TOKENS = 1_000_000_000


def load_folder(table_id: str) -> str:
    """Where the load of a table puts everything but base files."""
    return f"{LOADS}/{table_id}"


def load_token(table_id: str) -> str:
    """The write token of the base files that the load of a table puts.

    It is of the kind that drivers of distributed writes have: a sweep removes such files where no commit names them.
    """
    digest = hashlib.sha256(table_id.encode()).digest()
    return driver_token(int.from_bytes(digest[:8], "big") % _TOKENS)


class LoadStore:
    """A table's store as its load sees it: with the load's own objects alone, which nobody else finds.

    Base files of the load's token are where they will stay. Every other path is one below the load's folder.
    """

    def __init__(self, store: Store, table_id: str) -> None:
        self._store = store
        self._folder = load_folder(table_id)
        self._token = load_token(table_id)

    def __repr__(self) -> str:
        return f"LoadStore({self._store!r}, {self._folder!r})"

    def read(self, path: str) -> bytes | None:
        """The whole object; None if there is none."""
        return self._store.read(self._at(path))

    def view(self, path: str) -> memoryview | None:
        """The whole object, uncopied where the store can; None if there is none."""
        return self._store.view(self._at(path))

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        """Create the object if there is none: True. False if there is one already."""
        return self._store.put(self._at(path), data, durable=durable, after=[self._at(earlier) for earlier in after])

    def copy(self, source: str, target: str) -> bool:
        """Create `target` with the content of `source`, if there is no `target`: True."""
        return self._store.copy(self._at(source), self._at(target))

    def stat(self, path: str) -> Stat | None:
        """Size and age of an object; None if there is none."""
        stat = self._store.stat(self._at(path))
        return None if stat is None else Stat(path, stat.size, stat.modified_ms)

    def list(self, folder: str) -> builtins.list[Stat]:
        """The objects directly in `folder`, by path."""
        return self._merged(self._store.list(self._below(folder)), self._store.list(folder))

    def walk(self, folder: str) -> builtins.list[Stat]:
        """The objects anywhere below `folder`, by path; `.hoodie` is left out unless `folder` is in it."""
        below = self._store.walk(self._below(folder))
        hudi = f"{self._folder}/.hoodie/"
        inside = folder.startswith(".hoodie")
        return self._merged(
            [stat for stat in below if inside or not stat.path.startswith(hudi)], self._store.walk(folder)
        )

    def delete(self, path: str) -> None:
        """Remove the object; removing what is not there is fine."""
        self._store.delete(self._at(path))

    def touch(self, path: str) -> None:
        """Set the modification time of an object to now, creating it empty if need be."""
        self._store.touch(self._at(path))

    def make_durable(self, path: str) -> None:
        """Make an object that another process put last through a power cut, if it is there."""
        self._store.make_durable(self._at(path))

    def now_ms(self) -> int:
        """The store's own clock."""
        return self._store.now_ms()

    def parquet(self, path: str) -> ParquetSource | None:
        """The Parquet file at a path; None if there is none."""
        return self._store.parquet(self._at(path))

    def _at(self, path: str) -> str:
        return path if _is_of(path, self._token) else self._below(path)

    def _below(self, path: str) -> str:
        return f"{self._folder}/{path}".removesuffix("/")

    def _merged(self, own: builtins.list[Stat], shared: builtins.list[Stat]) -> builtins.list[Stat]:
        start = len(self._folder) + 1
        found = [Stat(stat.path[start:], stat.size, stat.modified_ms) for stat in own]
        found += [stat for stat in shared if _is_of(stat.path, self._token)]
        return sorted(found, key=lambda stat: stat.path)


def put_in_place(store: Store, table_id: str | None) -> bool:
    """Give a table that has appeared with its first load its timeline, if it has none; returns whether it has one.

    Any process that finds no timeline does so, and all do the same: of the load's folder everything is copied
    that Hudi's readers look for, and then the newest version of the timeline.
    """
    if table_id is None or versions_in(store):
        return table_id is not None
    folder = load_folder(table_id)
    paths = [stat.path for stat in store.walk(folder)]
    versions = [path for path in paths if path.startswith(f"{folder}/{VERSIONS}/")]
    if not versions:
        return bool(versions_in(store))  # what was in the load's folder is gone once it is in its place
    store.make_durable(PROPERTIES)  # who has put them may have died before, and a power cut would take all with them
    passing = tuple(f"{folder}/{name}/" for name in (VERSIONS, HEARTBEATS, STAGED))
    others = [path for path in paths if not path.startswith(passing)]
    # Of Hudi's timeline a completed instant comes last, and all of it after the metadata of the partitions.
    for path in (*sorted(others, key=lambda path: (path.startswith(f"{folder}/.hoodie/"), path)), versions[-1]):
        if not _copied(store, path, path.removeprefix(f"{folder}/")):
            return bool(versions_in(store))
    remove(store, table_id, base_files=False)
    return True


def _copied(store: Store, source: str, target: str) -> bool:
    """Copy an object, unless it was there; False where the source is gone."""
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
    raise StorageUnavailableError(f"the store does not say whether it has copied an object. path={target}")


def is_under_way(store: Store, expiry_ms: int) -> bool:
    """Whether some load has put or touched anything lately. A word to people: nothing rests on it."""
    found = store.walk(LOADS)
    now_ms = store.now_ms() if found else 0
    return any(abs(now_ms - stat.modified_ms) < expiry_ms for stat in found)


def clear(store: Store, table_id: str | None) -> None:
    """Remove what loads have put that are not the one of the table which is there: none of them can appear any more."""
    others = {stat.path.removeprefix(f"{LOADS}/").partition("/")[0] for stat in store.walk(LOADS)}
    for other in sorted(other for other in others if is_own(load_folder(other))):
        remove(store, other, base_files=other != table_id)


def remove(store: Store, table_id: str, *, base_files: bool = True) -> None:
    """Remove what a load has put; its folder last, by which others know of the load. base_files: those as well."""
    token = load_token(table_id)
    for stat in outside_other_tables(store.walk("")) if base_files else ():
        if _is_of(stat.path, token):
            store.delete(stat.path)
    for stat in store.walk(load_folder(table_id)):
        store.delete(stat.path)


def _is_of(path: str, token: str) -> bool:
    """Whether a path is that of a base file with a token."""
    name = data_file_name(path)
    return isinstance(name, BaseFileName) and name.token == token
