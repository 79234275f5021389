"""The interface of stores: whole objects at paths, and put-if-absent.

Paths are relative to the table's root and use `/`. The protocol rests on `put`: it creates the object whole or not at
all, and a single put of several wins. A lost race returns `False`. If a store cannot tell whether its put landed (a
lost reply), it raises `CommitUnknownError`, and the protocol reads back.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeGuard, TypeVar

from crdt_mor.ground.parquet import ParquetSource, RangeReader

T = TypeVar("T")

Chunks: TypeAlias = Iterable[bytes | memoryview]
"""Content in chunks, which may be made during the put. If making them fails, the error is raised unchanged and nothing
is created.
"""

Content: TypeAlias = bytes | memoryview | Chunks


Durable: TypeAlias = bool | Literal["content"]
"""True: the object survives a power cut. False: it may be lost or empty (hints). "content": it may be lost, but never
empty; `make_durable` for an object of its folder makes its name last."""


@dataclass(frozen=True, slots=True)
class Stat:
    """Size in bytes and modification time in milliseconds of the store's own clock."""

    path: str
    size: int
    modified_ms: int


class Store(Protocol):
    """Objects by path. Every method raises `StorageUnavailableError` if the store fails."""

    def read(self, path: str) -> bytes | None:
        """Return the whole object; None if there is none."""
        ...

    def view(self, path: str) -> memoryview | None:
        """Return the whole object, uncopied if possible; None if there is none. Only for objects that never change."""
        ...

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        """Create the object, whole for every reader and durably. Return True, or False if it exists.

        Args:
            path: The object's path.
            data: Its content.
            durable: See `Durable`.
            after: Paths of objects that become durable before this object gets its name, as by `make_durable`.
        """
        ...

    def copy(self, source: str, target: str) -> bool:
        """Create `target`, whole and durably, with the content of `source`. Return True, or False if it exists.

        The bytes stay in the store if possible.

        Raises:
            StorageUnavailableError: There is no `source`.
        """
        ...

    def stat(self, path: str) -> Stat | None:
        """Return size and age of an object; None if there is none."""
        ...

    def list(self, folder: str) -> list[Stat]:
        """Return the objects directly in `folder`, by path; empty if there is no such folder."""
        ...

    def walk(self, folder: str) -> builtins.list[Stat]:
        """Return all objects below `folder` ("" for all), by path, without `.hoodie` unless `folder` is in it."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object if it exists. A power cut may bring it back: see `make_durable`."""
        ...

    def touch(self, path: str) -> None:
        """Set an empty object's modification time to now; create it if needed. Not durable: for heartbeats."""
        ...

    def make_durable(self, path: str) -> None:
        """Make another process's object, and its neighbours' names, survive a power cut.

        Call this before building on an existing object: its process may have died before. If the object is absent,
        deletions in its folder become durable.
        """
        ...

    def now_ms(self) -> int:
        """Return the store's own clock, the source of `modified_ms`."""
        ...

    def parquet(self, path: str) -> ParquetSource | None:
        """Return the Parquet file at a path for polars and Arrow; None if there is none."""
        ...


class Bucket(Store, Protocol):
    """A store in a bucket, with options and perhaps secrets."""

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` to reach it; pickled without keys."""
        ...

    def texts(self) -> dict[str, str]:
        """Return the options with the current keys, for libraries with their own client."""
        ...

    def ranges_of(self, path: str, size: int) -> RangeReader:
        """Return an object of known size for reading in parts, without a request.

        Parts may be cached. Reading raises `FileNotFoundError` if the object is gone.
        """
        ...

    def forget(self, path: str) -> None:
        """Drop the cached parts of an object, so that the next read gets the stored bytes."""
        ...

    def copy_from(self, source: Bucket, path: str, size: int) -> bool | None:
        """Copy the object at a path from another bucket, as `copy`; None if the bytes must pass through here."""
        ...

    def is_in_bucket_of(self, other: Store) -> bool:
        """Return True for the same bucket and options."""
        ...

    def numbered(self, folder: str) -> builtins.list[Stat]:
        """Return the objects directly in `folder` with names that begin with a digit, by path."""
        ...

    def probe(self) -> None:
        """Raise `UnsupportedFeatureError` unless exactly one of many simultaneous puts succeeds."""
        ...

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> builtins.list[T]:
        """Return the results of simultaneous calls; raise the first error at the end."""
        ...

    def afterwards(self, call: Callable[[], None]) -> None:
        """Start a call that raises nothing, without waiting; the process waits for the call before exit."""
        ...


def is_bucket(store: Store) -> TypeGuard[Bucket]:
    """Return True for a store in a bucket. `isinstance` of a protocol would take a twentieth of a small commit."""
    return hasattr(type(store), "side_by_side")


def forget(store: Store, path: str) -> None:
    """Drop the cached parts of an object in a bucket, also below other stores."""
    if (dropped := getattr(store, "forget", None)) is not None:
        dropped(path)


def side_by_side(store: Store, calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls to a store: at once in a bucket, sequentially elsewhere.

    On a disk a call ends sooner than a thread begins.
    """
    return store.side_by_side(calls) if is_bucket(store) else [call() for call in calls]


def numbered(store: Store, folder: str) -> list[Stat]:
    """Return objects directly in `folder` with names that begin with a digit. Others cost a bucket at most a page."""
    if is_bucket(store):
        return store.numbered(folder)
    return [stat for stat in store.list(folder) if is_numbered(stat.path.rpartition("/")[2])]


def is_numbered(name: str) -> bool:
    return "0" <= name < ":"


def afterwards(store: Store, call: Callable[[], None]) -> None:
    """Run a call that raises nothing. In a bucket, run it in the background, and finish it before the process ends."""
    if is_bucket(store):
        store.afterwards(call)
    else:
        call()
