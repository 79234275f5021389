"""What a store must offer: whole objects at paths, and put-if-absent.

A store knows bytes and paths, nothing of Hudi. Paths are relative to the table's root and use `/`. The one primitive
that the protocol rests on is `put`: it creates the object whole or not at all, and of several puts of one path exactly
one creates it. Losing that race is a value (`False`), not an error. A store that cannot tell whether its put landed
(a lost reply) raises `CommitUnknownError`; the protocol then reads back.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeGuard, TypeVar

from crdt_mor.ground.parquet import ParquetSource, RangeReader

T = TypeVar("T")

Chunks: TypeAlias = Iterable[bytes | memoryview]
"""What an object holds, chunk by chunk; later ones may be made while earlier ones are put. What goes wrong in making
them is raised by the put as it is, and nothing is created."""

Content: TypeAlias = bytes | memoryview | Chunks
"""What an object holds: its bytes, whole or in chunks."""


Durable: TypeAlias = bool | Literal["content"]
"""Whether an object outlasts a power cut once it is put. False: it may be lost or empty, which is for hints. "content":
it may be lost, but is never empty. `make_durable`, called for an object in its folder, makes its name last."""


@dataclass(frozen=True, slots=True)
class Stat:
    """Size in bytes and modification time, in milliseconds of the store's own clock."""

    path: str
    size: int
    modified_ms: int


class Store(Protocol):
    """Objects by path. Every method raises `StorageUnavailableError` when the store fails."""

    def read(self, path: str) -> bytes | None:
        """The whole object; None if there is none."""
        ...

    def view(self, path: str) -> memoryview | None:
        """The whole object, uncopied where the store can: for objects that never change, of which parts are used."""
        ...

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        """Create the object, durably and whole, if there is none: True. False if there is one already.

        It is whole for every reader, also where it is not to be durable.

        after: paths of objects that last before this one gets its name, as if `make_durable` had been called for each,
            which takes a disk with a journal longer.
        """
        ...

    def copy(self, source: str, target: str) -> bool:
        """Create `target`, durably and whole, with the content of `source`, if there is no `target`: True. Else False.

        The bytes stay where they are as far as the store can. Raises `StorageUnavailableError` if there is no `source`.
        """
        ...

    def stat(self, path: str) -> Stat | None:
        """Size and age of an object; None if there is none."""
        ...

    def list(self, folder: str) -> list[Stat]:
        """The objects directly in `folder`, by path; empty if there is no such folder."""
        ...

    def walk(self, folder: str) -> builtins.list[Stat]:
        """The objects anywhere below `folder` ("" for all), by path. `.hoodie` is left out unless `folder` is in it."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object; removing what is not there is fine. It may be back after a power cut: `make_durable`."""
        ...

    def touch(self, path: str) -> None:
        """Set the modification time of an empty object to now, creating it if need be. Not durable: for heartbeats."""
        ...

    def make_durable(self, path: str) -> None:
        """Make an object that another process put last through a power cut, if it is there, and its neighbours' names.

        `put` does this for its own object, but its process may have died before it could, or the put failed half way:
        a process that builds on an object which was there already, or was read back, makes it durable first. An object
        that is not there, as it was deleted, will not be back, nor what else was deleted in its folder.
        """
        ...

    def now_ms(self) -> int:
        """The store's own clock, the one that `modified_ms` is read from."""
        ...

    def parquet(self, path: str) -> ParquetSource | None:
        """The Parquet file at a path, for polars and Arrow to read as much of as they need; None if there is none."""
        ...


class Bucket(Store, Protocol):
    """A store in a bucket: requests lead there, which take options, may hold secrets, and may fail."""

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` with which others reach it. Pickled without the keys among them."""
        ...

    def texts(self) -> dict[str, str]:
        """The options as texts, with the keys as they are now, for a library that has a client of its own."""
        ...

    def ranges_of(self, path: str, size: int) -> RangeReader:
        """An object that never changes, of which the size is known, to read parts of; that it is there is not asked.

        What was read of it may be kept. Reading raises `FileNotFoundError` where there is none.
        """
        ...

    def copy_from(self, source: Bucket, path: str, size: int) -> bool | None:
        """Create the object at a path with that of another bucket, which has that size, if there is none, as `copy`.

        None where its bytes have to come here.
        """
        ...

    def probe(self) -> None:
        """Raise `UnsupportedFeatureError` unless of many puts of one object, made at once, one alone makes it.

        Other stores are known to do so.
        """
        ...

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> builtins.list[T]:
        """The results of several calls, which ask this store at the same time; raises the first error, at the end."""
        ...

    def afterwards(self, call: Callable[[], None]) -> None:
        """Begin with a call, which raises nothing, and do not wait for it; the process does, before it ends."""
        ...


def is_bucket(store: Store) -> TypeGuard[Bucket]:
    """Whether a store is one in a bucket, which its class shows.

    Every step of a protocol asks for it: `isinstance` of a protocol would take a twentieth of a small commit.
    """
    return hasattr(type(store), "side_by_side")


def side_by_side(store: Store, calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of several calls to a store, in their order.

    In a bucket a request is a round trip, and they are made at once; elsewhere it is done sooner than a thread begins.
    """
    return store.side_by_side(calls) if is_bucket(store) else [call() for call in calls]


def afterwards(store: Store, call: Callable[[], None]) -> None:
    """Make a call, which raises nothing: in a bucket without waiting for it, but before the process ends."""
    if is_bucket(store):
        store.afterwards(call)
    else:
        call()
