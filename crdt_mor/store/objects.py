"""A store in a bucket: Amazon S3 and compatible stores, Azure, Google Cloud Storage.

`put` is the provider's conditional put (`store.puts`). Permanent failures, such as a missing bucket, raise
`StorageRefusedError` at once; others are retried until `retry_timeout`. Times are whole seconds.
"""

from __future__ import annotations

import builtins  # inside the class, `list` is the store's
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import obstore

from crdt_mor.errors import FormatError, InvalidInputError, StorageUnavailableError
from crdt_mor.ground.clock import Environment, SystemEnvironment, monotonic_ms
from crdt_mor.ground.parquet import ParquetSource, RangeReader
from crdt_mor.store.addresses import Place
from crdt_mor.store.asking import Requests, TruncatedError, require_no_page
from crdt_mor.store.at_once import AtOnce, T
from crdt_mor.store.clients import Clients
from crdt_mor.store.failures import Failure, Kind
from crdt_mor.store.options import Options, read_options
from crdt_mor.store.paths import CLOCKS, folder_path, in_hoodie, object_path
from crdt_mor.store.protocol import Bucket, Content, Durable, Stat, Store, is_numbered
from crdt_mor.store.puts import Puts
from crdt_mor.store.racing import KEYS_OF_A_PROBE, race, require_safe
from crdt_mor.store.ranges import Files, Range
from crdt_mor.store.secrets import Secrets

PAGE: Final = 1_000
"""Objects that a provider lists in one answer."""

COPIED_HERE_MAX: Final = 4 << 20
"""Bytes up to which a copy goes through this process: a lost reply then differs from a lost race."""

CLOCK_KEPT_MS: Final = 60_000
_CLOCK_TRIES: Final = 3
_PAGE_HEAD: Final = 64
"""Bytes of an object that tell it from an HTML page."""
_EMPTIES_NOTED: Final = 256


class ObjectStore:
    """Objects below an address of a bucket. Thread-safe; a forked process makes its own connections.

    secrets: never pickled or shown.
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
        self._requests = Requests(place, options, secrets, self.environment)
        self._puts = Puts(place, self._requests, self.key, self.read)
        self._lock = threading.Lock()
        self._empties: dict[str, None] = {}
        self._at_once = AtOnce()
        self._anchor: tuple[int, int] | None = None  # the store's clock, and our monotonic clock just after it
        self._newest_ms = 0
        self._clock = ""
        self._files = Files()

    @classmethod
    def at(cls, place: Place, options: Options, environment: Environment) -> ObjectStore:
        store = cls(place, options.public, options.secret, environment)
        store._requests.prepare()
        return store

    def __repr__(self) -> str:
        return f"ObjectStore({self._place.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self._place, self._options, self._secrets)

    @property
    def options(self) -> Options:
        return Options(self._options, self._secrets)

    @property
    def address(self) -> str:
        """The address by which other engines open the folder: on Azure with the account, if the options name it."""
        account = self._options.get("azure_storage_account_name")
        if account is None or not self._place.uri.startswith("az://"):
            return self._place.uri
        return f"abfss://{self._place.bucket}@{account}.dfs.core.windows.net/{self._place.root}".rstrip("/")

    def texts(self) -> dict[str, str]:
        return self._clients.texts()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        view = self.view(path)
        return None if view is None else bytes(view)

    def view(self, path: str) -> memoryview | None:
        key = self.key(path)

        def get() -> memoryview:
            got = obstore.get(self._clients.reading(), key)
            data = memoryview(got.bytes())
            if len(data) != got.meta["size"]:
                raise TruncatedError(f"{len(data)} of {got.meta['size']} bytes came")
            require_no_page(bytes(data[:_PAGE_HEAD]), got.attributes)
            self._note_time(_modified_ms(got.meta))
            return data

        found = self._requests.send("read", path, get)
        return None if isinstance(found, Failure) else found

    def stat(self, path: str) -> Stat | None:
        found = self._head("stat", path)
        return None if found is None else self._stat(path, found.meta)

    def list(self, folder: str) -> builtins.list[Stat]:
        prefix = self._place.key(folder_path(folder)) or None
        found = self._requests.send(
            "list", folder, lambda: obstore.list_with_delimiter(self._clients.brief(), prefix)["objects"]
        )
        return self._stats([] if isinstance(found, Failure) else found)

    def folders(self, folder: str) -> builtins.list[str]:
        prefix = self._place.key(folder_path(folder)) or None
        found = self._requests.send(
            "list", folder, lambda: obstore.list_with_delimiter(self._clients.brief(), prefix)["common_prefixes"]
        )
        start = len(self._place.root) + 1 if self._place.root else 0
        return sorted(path.strip("/")[start:] for path in ([] if isinstance(found, Failure) else found))

    def numbered(self, folder: str) -> builtins.list[Stat]:
        """Read no page after the digits. S3 Express lists in no order and is read to the end."""
        start = f"{self._place.key(folder_path(folder))}/"
        is_ordered = "aws_s3_express" not in self._options

        def pages() -> builtins.list[Any]:
            found: builtins.list[Any] = []
            for page in obstore.list(self._clients.brief(), start[:-1], offset=f"{start}0", chunk_size=PAGE):
                found += page
                paths = [meta["path"] for meta in found]
                if paths and is_ordered and paths[-1] >= f"{start}:" and paths == sorted(paths):
                    break
            names = ((meta["path"].removeprefix(start), meta) for meta in found)
            return [meta for name, meta in names if is_numbered(name) and "/" not in name]

        found = self._requests.send("list", folder, pages)
        return self._stats([] if isinstance(found, Failure) else found)

    def walk(self, folder: str) -> builtins.list[Stat]:
        folder = folder_path(folder)
        prefix = self._place.key(folder) or None

        def pages() -> builtins.list[Any]:
            return [meta for page in obstore.list(self._clients.brief(), prefix, chunk_size=PAGE) for meta in page]

        found = self._requests.send("walk", folder, pages)
        stats = self._stats([] if isinstance(found, Failure) else found)
        return stats if in_hoodie(folder) else [stat for stat in stats if not in_hoodie(stat.path)]

    def parquet(self, path: str) -> ParquetSource | None:
        found = self.stat(path)
        return None if found is None else ParquetSource(path, ranges=self.ranges_of(path, found.size))

    def ranges_of(self, path: str, size: int) -> RangeReader:
        return self._files.file(path, size, lambda some: self._ranges(path, size, some))

    def forget(self, path: str) -> None:
        self._files.forget(path)

    def _ranges(self, path: str, size: int, ranges: Sequence[Range]) -> builtins.list[bytes]:
        key = self.key(path)
        starts, lengths = zip(*ranges, strict=True)

        def get() -> builtins.list[bytes] | None:
            # The caller has joined near ranges, so the client joins none.
            found = obstore.get_ranges(self._clients.reading(), key, starts=starts, lengths=lengths, coalesce=0)
            data = [bytes(part) for part in found]
            if all(len(part) == length for part, length in zip(data, lengths, strict=True)):
                return data
            if self._is_of_size(path, size):
                raise TruncatedError(f"{sum(map(len, data))} of {sum(lengths)} bytes came")
            return None

        found = self._requests.send("read", path, get)
        if isinstance(found, Failure) and found.kind is Kind.ABSENT:
            raise FileNotFoundError(f"the object is gone. file={path}")
        if found is None or isinstance(found, Failure):
            raise FormatError(
                "a file is shorter than its commit records: restore it from a backup. "
                f"file={path} size={size} store={self._place.uri}"
            )
        return found

    def _is_of_size(self, path: str, size: int) -> bool:
        found = self.stat(path)
        return found is None or found.size == size

    def _head(self, verb: str, path: str) -> Any:
        key = self.key(path)

        def head() -> Any:
            got = obstore.get(self._clients.brief(), key, options={"head": True})
            require_no_page(b"", got.attributes)
            return got

        def with_body() -> object:
            return obstore.get(self._clients.reading(), key)

        found = self._requests.send(verb, path, head, with_body)
        if not isinstance(found, Failure):
            return found
        if found.bodiless and not self._requests.bucket_seen:
            # Only an answer with a body tells a missing object from a missing bucket.
            self._requests.send(verb, path, with_body)
        return None

    # --- changing -----------------------------------------------------------------------------------------------------

    def put(self, path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:  # noqa: ARG002  always durable
        """Create the object; chunks are joined first, at most 5 GiB on S3 and 5,000 MiB on Azure."""
        content = data if isinstance(data, bytes) else bytes(data) if isinstance(data, memoryview) else b"".join(data)
        made = self._puts.put(path, content)
        if made:
            self._forget_empty(path)
        return made

    def copy(self, source: str, target: str) -> bool:
        """Create `target` from `source`; large objects stay in the store if the provider copies them."""
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
        """Copy within the bucket; None if the object is small, in another bucket, or cannot be copied there."""
        if not isinstance(source, ObjectStore) or size <= COPIED_HERE_MAX or not self._is_beside(source):
            return None
        return self._puts.copy(source.key(path), path)

    def is_in_bucket_of(self, other: Store) -> bool:
        return isinstance(other, ObjectStore) and self._is_beside(other)

    def _is_beside(self, other: ObjectStore) -> bool:
        here, there = self._place, other._place
        same = (here.provider, here.bucket) == (there.provider, there.bucket)
        return same and self._options == other._options and self.texts() == other.texts()

    def delete(self, path: str) -> None:
        key = self.key(path)
        self._forget_empty(path)
        self._files.forget(path)
        self._requests.send("delete", path, lambda: obstore.delete(self._clients.brief(), key))

    def touch(self, path: str) -> None:
        """Set the modification time of an empty object; an object with content stays as it is."""
        key = self.key(path)
        if path not in self._empties:
            made = self._requests.send("touch", path, lambda: self._puts.create(key, b"", self.environment.nonce()))
            if not isinstance(made, Failure):
                self._note_empty(path)
                return
            found = self._head("touch", path)
            if found is not None and found.meta["size"]:
                return
        self._requests.send("touch", path, lambda: obstore.put(self._clients.brief(), key, b"", use_multipart=False))
        self._note_empty(path)

    def make_durable(self, path: str) -> None:
        """Do nothing: acknowledged objects last."""
        object_path(path)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> builtins.list[T]:
        return self._at_once.side_by_side(calls)

    def afterwards(self, call: Callable[[], None]) -> None:
        self._at_once.afterwards(call)

    def probe(self) -> None:
        require_safe(race(self, self._place.uri, self.environment.nonce(), KEYS_OF_A_PROBE))

    # --- time ---------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the store's own clock, in whole seconds.

        The time of an object of this process (stores limit puts per name), continued for a minute by the monotonic
        clock. It is never ahead of the true time, so ages are never too large.
        """
        with self._lock:
            local_ms = monotonic_ms(self.environment)
            if self._anchor is None or local_ms is None or local_ms - self._anchor[1] > CLOCK_KEPT_MS:
                self._anchor = self._requested_time(), monotonic_ms(self.environment) or 0
                local_ms = self._anchor[1]
            reached_ms = self._anchor[0] + max(0, local_ms - self._anchor[1])
            return max(reached_ms // 1000 * 1000, self._newest_ms)

    def _requested_time(self) -> int:
        path = self._clock = self._clock or f"{CLOCKS}-{self.environment.nonce()}"
        key = self.key(path)
        for _ in range(_CLOCK_TRIES):
            self._requests.send(
                "clock", path, lambda: obstore.put(self._clients.brief(), key, b"", use_multipart=False)
            )
            found = self._head("clock", path)
            if found is not None:  # a sweep may have removed it as a dead process's
                return _modified_ms(found.meta)
        raise StorageUnavailableError(f"another process removed this process's clock object: try again. path={path}")

    def _note_time(self, modified_ms: int) -> None:
        self._newest_ms = max(self._newest_ms, modified_ms)

    # --- small steps --------------------------------------------------------------------------------------------------

    @property
    def _clients(self) -> Clients:
        return self._requests.clients

    def key(self, path: str) -> str:
        if self._place.provider == "azure" and "\\" in path:
            raise InvalidInputError(f"Azure reads '\\' as '/': use a path without it. path={path!r}")
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
    return ObjectStore.at(place, read_options(storage_options, place.provider), environment)


def _unpickled(place: Place, options: Mapping[str, str], secrets: Secrets) -> ObjectStore:
    return ObjectStore(place, options, secrets)


def _modified_ms(meta: Any) -> int:
    """Return an object's time in whole seconds: a store's answers differ in their digits."""
    modified: datetime = meta["last_modified"]
    return int(modified.timestamp()) * 1000
