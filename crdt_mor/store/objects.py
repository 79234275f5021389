"""A store in a bucket: Amazon S3 and what speaks its protocol, Azure, Google Cloud Storage.

`put` is the provider's own conditional put (`store.puts`).

Requests are repeated here alone, with growing pauses, until a deadline (`retry_timeout`); the client below repeats
none. What cannot get better, such as a missing bucket or expired credentials, is a `StorageRefusedError` at once.

Times of objects are whole seconds on these stores, and so is the clock that they are compared with.
"""

from __future__ import annotations

import builtins  # inside the class, `list` is the store's
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import obstore

from crdt_mor.errors import FormatError, InvalidInputError, StorageUnavailableError
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.parquet import ParquetSource, RangeReader
from crdt_mor.store.addresses import Place
from crdt_mor.store.asking import Asking, TruncatedError, monotonic_ms, require_no_page
from crdt_mor.store.at_once import AtOnce, T
from crdt_mor.store.clients import Clients
from crdt_mor.store.failures import Failure, Kind
from crdt_mor.store.options import Options, read_options
from crdt_mor.store.paths import CLOCKS, folder_path, in_hoodie, object_path
from crdt_mor.store.protocol import Bucket, Content, Durable, Stat
from crdt_mor.store.puts import Puts
from crdt_mor.store.racing import KEYS_OF_A_PROBE, race, require_safe
from crdt_mor.store.ranges import Files, Range
from crdt_mor.store.secrets import Secrets

COPIED_HERE_MAX: Final = 4 << 20
"""A copy of a smaller object goes through this process: two requests, and a lost reply can be told from a lost race."""

CLOCK_KEPT_MS: Final = 60_000
_CLOCK_TRIES: Final = 3
_PAGE_HEAD: Final = 64
"""How many bytes of an object are looked at to tell it from a page of HTML."""
_EMPTIES_NOTED: Final = 256


class ObjectStore:
    """Objects below an address of a bucket. Safe to share between threads; a forked process makes its own.

    options: as `storage_options`, where they are no secrets. secrets: the others, which are never pickled or shown.
    """

    def __init__(
        self,
        place: Place,
        options: Mapping[str, str],
        secrets: Secrets,
        environment: Environment | None = None,
    ) -> None:
        self._place = place
        self._options = dict(options)
        self._secrets = secrets
        self.environment = environment or SystemEnvironment()
        self._asking = Asking(place, options, secrets, self.environment)
        self._puts = Puts(place, self._asking, self.key, self.read)
        self._lock = threading.Lock()
        self._empties: dict[str, None] = {}
        self._at_once = AtOnce()
        self._anchor: tuple[int, int] | None = None  # a time of the store's clock, and ours just after it
        self._newest_ms = 0
        self._clock = ""
        self._files = Files()

    @classmethod
    def at(cls, place: Place, options: Options, environment: Environment) -> ObjectStore:
        """The store at a place. Nothing is asked of it yet."""
        store = cls(place, options.public, options.secret, environment)
        store._asking.prepare()
        return store

    def __repr__(self) -> str:
        return f"ObjectStore({self._place.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled by its address, the options that are no secrets, and the name of those that are."""
        return _unpickled, (self._place, self._options, self._secrets)

    @property
    def options(self) -> Options:
        """The `storage_options` that lead here."""
        return Options(self._options, self._secrets)

    def texts(self) -> dict[str, str]:
        """The options as texts, with the keys as they are now, for a library that has a client of its own."""
        return self._clients.texts()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        """The whole object; None if there is none."""
        view = self.view(path)
        return None if view is None else bytes(view)

    def view(self, path: str) -> memoryview | None:
        """The whole object, as it came; None if there is none."""
        key = self.key(path)

        def get() -> memoryview:
            got = obstore.get(self._clients.reading(), key)
            data = memoryview(got.bytes())
            if len(data) != got.meta["size"]:
                raise TruncatedError(f"{len(data)} of {got.meta['size']} bytes came")
            require_no_page(bytes(data[:_PAGE_HEAD]), got.attributes)
            self._note_time(_modified_ms(got.meta))
            return data

        found = self._asking.ask("read", path, get)
        return None if isinstance(found, Failure) else found

    def stat(self, path: str) -> Stat | None:
        """Size and age of an object; None if there is none."""
        found = self._head("stat", path)
        return None if found is None else self._stat(path, found.meta)

    def list(self, folder: str) -> builtins.list[Stat]:
        """The objects directly in `folder`, by path; empty if there is no such folder."""
        prefix = self._place.key(folder_path(folder)) or None
        found = self._asking.ask(
            "list", folder, lambda: obstore.list_with_delimiter(self._clients.brief(), prefix)["objects"]
        )
        return self._stats([] if isinstance(found, Failure) else found)

    def walk(self, folder: str) -> builtins.list[Stat]:
        """The objects anywhere below `folder`, by path; `.hoodie` is left out unless `folder` is in it."""
        folder = folder_path(folder)
        prefix = self._place.key(folder) or None

        def pages() -> builtins.list[Any]:
            return [meta for page in obstore.list(self._clients.brief(), prefix, chunk_size=1000) for meta in page]

        found = self._asking.ask("walk", folder, pages)
        stats = self._stats([] if isinstance(found, Failure) else found)
        return stats if in_hoodie(folder) else [stat for stat in stats if not in_hoodie(stat.path)]

    def parquet(self, path: str) -> ParquetSource | None:
        """The Parquet file at a path, of which polars and Arrow read the parts they need; None if there is none."""
        found = self.stat(path)
        return None if found is None else ParquetSource(path, ranges=self.ranges_of(path, found.size))

    def ranges_of(self, path: str, size: int) -> RangeReader:
        """An object that never changes, of which the size is known, to read parts of; that it is there is not asked."""
        return self._files.file(path, size, lambda some: self._ranges(path, size, some))

    def _ranges(self, path: str, size: int, ranges: Sequence[Range]) -> builtins.list[bytes]:
        """The bytes at some places of an object of that size, side by side."""
        key = self.key(path)
        starts, lengths = zip(*ranges, strict=True)

        def get() -> builtins.list[bytes] | None:
            # They are as far apart as they are to be, so that the client joins none of them.
            found = obstore.get_ranges(self._clients.reading(), key, starts=starts, lengths=lengths, coalesce=0)
            data = [bytes(part) for part in found]
            if all(len(part) == length for part, length in zip(data, lengths, strict=True)):
                return data
            if self._is_of_size(path, size):
                raise TruncatedError(f"{sum(map(len, data))} of {sum(lengths)} bytes came")
            return None

        found = self._asking.ask("read", path, get)
        if isinstance(found, Failure) and found.kind is Kind.ABSENT:
            raise FileNotFoundError(f"the object is gone. file={path}")
        if found is None or isinstance(found, Failure):
            raise FormatError(
                "a file is not as long as its commit says: restore it from a backup. "
                f"file={path} size={size} store={self._place.uri}"
            )
        return found

    def _is_of_size(self, path: str, size: int) -> bool:
        found = self.stat(path)
        return found is None or found.size == size

    def _head(self, what: str, path: str) -> Any:
        key = self.key(path)

        def head() -> Any:
            got = obstore.get(self._clients.brief(), key, options={"head": True})
            require_no_page(b"", got.attributes)
            return got

        def words() -> object:
            return obstore.get(self._clients.reading(), key)

        found = self._asking.ask(what, path, head, words)
        if not isinstance(found, Failure):
            return found
        if found.bodiless and not self._asking.bucket_seen:
            # Only an answer with words says whether it is the object that is missing or its bucket.
            self._asking.ask(what, path, words)
        return None

    # --- changing -----------------------------------------------------------------------------------------------------

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:  # noqa: ARG002  always durable
        """Create the object, whole and durably, if there is none: True. False if there is one already.

        Chunks are joined first: at most 5 GiB on S3, 5,000 MiB on Azure.
        """
        content = data if isinstance(data, bytes) else bytes(data) if isinstance(data, memoryview) else b"".join(data)
        made = self._puts.put(path, content)
        if made:
            self._forget_empty(path)
        return made

    def copy(self, source: str, target: str) -> bool:
        """Create `target` with the content of `source`, if there is no `target`: True. Else False.

        Large objects stay in the store, where the provider can copy them.
        """
        found = self._head("copy", source)
        if found is None:
            raise StorageUnavailableError(f"there is nothing to copy. copy={source} to={target}")
        if found.meta["size"] > COPIED_HERE_MAX:
            copied = self._puts.copy(self.key(source), target)
            if copied is not None:
                return copied
        data = self.view(source)
        if data is None:
            raise StorageUnavailableError(f"there is nothing to copy. copy={source} to={target}")
        return self.put(target, data)

    def copy_from(self, source: Bucket, path: str, size: int) -> bool | None:
        """As `copy`, of the object at the same path in another store, which has that size.

        None where its bytes have to come here: it is small, in another bucket, or the provider copies none.
        """
        if not isinstance(source, ObjectStore) or size <= COPIED_HERE_MAX or not self._is_beside(source):
            return None
        return self._puts.copy(source.key(path), path)

    def _is_beside(self, other: ObjectStore) -> bool:
        """Whether another store is in the same bucket, and is reached in the same way."""
        here, there = self._place, other._place
        same = (here.provider, here.bucket) == (there.provider, there.bucket)
        return same and self._options == other._options and self.texts() == other.texts()

    def delete(self, path: str) -> None:
        """Remove the object; removing what is not there is fine."""
        key = self.key(path)
        self._forget_empty(path)
        self._files.forget(path)
        self._asking.ask("delete", path, lambda: obstore.delete(self._clients.brief(), key))

    def touch(self, path: str) -> None:
        """Set the modification time of an empty object to now, creating it if need be; what has content stays."""
        key = self.key(path)
        if path not in self._empties:
            made = self._asking.ask("touch", path, lambda: self._puts.create(key, b"", self.environment.nonce()))
            if not isinstance(made, Failure):
                self._note_empty(path)
                return
            found = self._head("touch", path)
            if found is not None and found.meta["size"]:
                return
        self._asking.ask("touch", path, lambda: obstore.put(self._clients.brief(), key, b"", use_multipart=False))
        self._note_empty(path)

    def make_durable(self, path: str) -> None:
        """Nothing to do: what these stores have acknowledged lasts."""
        object_path(path)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> builtins.list[T]:
        """The results of several calls, which ask this store for something at once."""
        return self._at_once.side_by_side(calls)

    def afterwards(self, call: Callable[[], None]) -> None:
        """Begin with a call and do not wait for it; the process does, before it ends."""
        self._at_once.afterwards(call)

    def probe(self) -> None:
        """Raise `UnsupportedFeatureError` unless of many puts of one object, made at once, one alone makes it."""
        require_safe(race(self, self._place.uri, self.environment.nonce(), KEYS_OF_A_PROBE))

    # --- time ---------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The store's own clock: a whole second that it has reached, and not long ago.

        It is what the store noted of an object that was just put. The object is this process's own, as stores limit how
        often one name may be put. For a minute it is carried on by this machine's
        monotonic clock, which no setting of the clock moves. So it is behind the store's true time by the fraction of a
        second, and by what the put took: ages that are computed with it are too small by that, never too large.
        """
        with self._lock:
            local_ms = monotonic_ms(self.environment)
            if self._anchor is None or local_ms is None or local_ms - self._anchor[1] > CLOCK_KEPT_MS:
                self._anchor = self._asked_time(), monotonic_ms(self.environment) or 0
                local_ms = self._anchor[1]
            reached_ms = self._anchor[0] + max(0, local_ms - self._anchor[1])
            return max(reached_ms // 1000 * 1000, self._newest_ms)

    def _asked_time(self) -> int:
        path = self._clock = self._clock or f"{CLOCKS}-{self.environment.nonce()}"
        key = self.key(path)
        for _ in range(_CLOCK_TRIES):
            self._asking.ask("clock", path, lambda: obstore.put(self._clients.brief(), key, b"", use_multipart=False))
            found = self._head("clock", path)
            if found is not None:  # a sweep may have taken it for one of a dead process
                return _modified_ms(found.meta)
        raise StorageUnavailableError(f"the object was removed that tells the store's clock: try again. path={path}")

    def _note_time(self, modified_ms: int) -> None:
        """The store's clock has reached this time."""
        self._newest_ms = max(self._newest_ms, modified_ms)

    # --- small steps --------------------------------------------------------------------------------------------------

    @property
    def _clients(self) -> Clients:
        return self._asking.clients

    def key(self, path: str) -> str:
        """The name in the bucket of the object at a path."""
        if self._place.provider == "azure" and "\\" in path:
            raise InvalidInputError(f"Azure takes '\\' for '/', so no path of a table can have it. path={path!r}")
        return self._place.key(object_path(path))

    def _stat(self, path: str, meta: Any) -> Stat:
        modified_ms = _modified_ms(meta)
        self._note_time(modified_ms)
        return Stat(path, meta["size"], modified_ms)

    def _stats(self, metas: Sequence[Any]) -> builtins.list[Stat]:
        start = len(self._place.root) + 1 if self._place.root else 0
        return sorted((self._stat(meta["path"][start:], meta) for meta in metas), key=lambda stat: stat.path)

    def _note_empty(self, path: str) -> None:
        with self._lock:
            self._empties[path] = None
            while len(self._empties) > _EMPTIES_NOTED:
                del self._empties[next(iter(self._empties))]

    def _forget_empty(self, path: str) -> None:
        with self._lock:
            self._empties.pop(path, None)


def open_at(place: Place, storage_options: object, environment: Environment) -> ObjectStore:
    """The store at a place. Nothing is asked of it yet."""
    return ObjectStore.at(place, read_options(storage_options, place.provider), environment)


def _unpickled(place: Place, options: Mapping[str, str], secrets: Secrets) -> ObjectStore:
    return ObjectStore(place, options, secrets)


def _modified_ms(meta: Any) -> int:
    """When an object was put, in whole seconds: some answers of one store have more digits than others."""
    modified: datetime = meta["last_modified"]
    return int(modified.timestamp()) * 1000
