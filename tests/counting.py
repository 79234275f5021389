"""A bucket in memory that counts what it is asked: requests, round trips one after another, and bytes.

The product's own store of buckets runs unchanged. Below it, the client library's functions stand over a bucket in
memory, and each call is a request. Time is virtual: a request takes one round trip of the thread that makes it, work
that a pool is given begins when it was given and a thread of the pool is free, and the thread that takes its result
goes on from there. So the counts are exact, and the same on every machine.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from unittest.mock import patch

import obstore
import pyarrow.parquet as pq
from obstore.store import MemoryStore

from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.store.addresses import place_of
from crdt_mor.store.objects import ObjectStore
from crdt_mor.store.ranges import AT_ONCE
from crdt_mor.store.secrets import Secrets

PAGE: Final = 1000
"""How many objects one request of a listing gives."""

POOLS: Final = (
    "crdt_mor.ground.threads.ThreadPoolExecutor",
    "crdt_mor.merge.visible.ThreadPoolExecutor",
    "crdt_mor.store.at_once.ThreadPoolExecutor",
)
"""Where the product makes pools of threads."""


@dataclass(frozen=True)
class Count:
    """What an operation took. trips: the most requests of it that came one after another before it returned."""

    requests: int
    trips: int
    bytes: int
    asked: tuple[str, ...] = ()

    def fetched(self, path: str) -> int:
        """The bytes of one object that came."""
        return sum(int(line.rpartition("  ")[2].replace(",", "")) for line in self.asked if path in line)

    def __str__(self) -> str:
        totals = f"{self.requests} requests, {self.trips} round trips, {self.bytes:,} bytes:"
        return "\n  ".join((totals, *self.asked))


class _Clock(threading.local):
    """How many round trips a thread has waited for, those of its forerunners included. aside: nobody waits for it."""

    now = 0
    aside = False


@dataclass
class Bucket:
    """A bucket in memory that counts the requests to it. Make stores in it, and count, inside `counting`."""

    objects: MemoryStore = field(default_factory=MemoryStore)
    _clock: _Clock = field(default_factory=_Clock)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked: list[tuple[int, str, int]] = field(default_factory=list)
    _pools: list[_Pool] = field(default_factory=list)

    def store(self, environment: Environment | None = None, folder: str = "table") -> ObjectStore:
        """A store at an address in the bucket, as another process would open it."""
        place = place_of(f"s3://counted/{folder}")
        assert place is not None
        store = ObjectStore(place, {}, Secrets({}), environment or SystemEnvironment())
        store._requests._clients = Clients(self.objects)  # type: ignore[assignment]
        return store

    def base_file(self) -> tuple[str, pq.FileMetaData]:
        """The path of the only base file in the bucket, and its footer."""
        store = self.store()
        (path,) = (stat.path for stat in store.walk("") if stat.path.endswith(".parquet"))
        base = store.parquet(path)
        assert base is not None
        return path, base.metadata()

    @contextmanager
    def counting(self) -> Iterator[Bucket]:
        """Let the product's requests, and its pools of threads, be this bucket's until the block is left."""
        with ExitStack() as stack:
            library = _Library(self)
            for module in ("objects", "puts"):
                stack.enter_context(patch(f"crdt_mor.store.{module}.obstore", library))
            for pool in POOLS:
                stack.enter_context(patch(pool, self._pool))
            yield self

    def count(self, operation: Callable[[], object]) -> Count:
        """What an operation asks."""
        self._clock.now = 0
        for pool in self._pools:
            pool.wind_back()
        with self._lock:
            self._asked.clear()
        operation()
        with self._lock:
            asked = sorted(self._asked)
        said = tuple(f"{trip or '':>3}  {what}  {size:,}" for trip, what, size in asked)
        return Count(len(asked), max((trip for trip, _, _ in asked), default=0), sum(s for _, _, s in asked), said)

    def note(self, *requests: tuple[str, int]) -> None:
        """Requests that this thread makes side by side, each with its bytes."""
        self._clock.now += 1
        with self._lock:
            trip = 0 if self._clock.aside else self._clock.now
            self._asked += [(trip, what, size) for what, size in requests]

    def _pool(self, threads: int, thread_name_prefix: str = "") -> _Pool:
        pool = _Pool(self._clock, threads, thread_name_prefix)
        self._pools.append(pool)
        return pool


class Clients:
    """What the store takes for its connections: a bucket in memory."""

    vending = None

    def __init__(self, objects: MemoryStore) -> None:
        self._objects = objects

    def brief(self) -> MemoryStore:
        return self._objects

    reading = brief

    def putting(self, size: int) -> MemoryStore:
        return self._objects

    def texts(self) -> dict[str, str]:
        return {}


class _Library:
    """The functions of obstore that the store calls, counted."""

    def __init__(self, bucket: Bucket) -> None:
        self._note = bucket.note

    def get(self, client: MemoryStore, key: str, *, options: Any = None) -> Any:
        head = bool(options and options.get("head"))
        what, size = f"{'HEAD' if head else 'GET '} {key}", 0
        try:
            found = obstore.get(client, key, options=options)
            first, end = found.range
            size = 0 if head else end - first
            return found
        finally:
            self._note((what, size))

    def get_ranges(
        self, client: MemoryStore, key: str, *, starts: Sequence[int], lengths: Sequence[int], coalesce: int
    ) -> Any:
        assert coalesce == 0, "what is asked for together is decided before"
        asked = [(f"GET  {key} [{start}+{size}]", size) for start, size in zip(starts, lengths, strict=True)]
        rest = iter(asked)
        while wave := list(islice(rest, AT_ONCE)):
            self._note(*wave)
        return obstore.get_ranges(client, key, starts=starts, lengths=lengths)

    def put(self, client: MemoryStore, key: str, content: bytes, **how: Any) -> Any:
        self._note((f"PUT  {key}", len(content)))
        return obstore.put(client, key, content, **how)

    def delete(self, client: MemoryStore, key: str) -> None:
        self._note((f"DEL  {key}", 0))
        obstore.delete(client, key)

    def copy(self, client: MemoryStore, source: str, target: str, *, overwrite: bool) -> None:
        self._note((f"COPY {source} {target}", 0))
        obstore.copy(client, source, target, overwrite=overwrite)

    def list_with_delimiter(self, client: MemoryStore, prefix: str | None) -> Any:
        found = obstore.list_with_delimiter(client, prefix)
        self._note_pages(prefix, len(found["objects"]) + len(found["common_prefixes"]))
        return found

    def list(
        self, client: MemoryStore, prefix: str | None, *, chunk_size: int, offset: str | None = None
    ) -> Iterator[Any]:
        pages = list(obstore.list(client, prefix, chunk_size=chunk_size, offset=offset))
        for page in pages or [[]]:
            self._note_pages(prefix, len(page))
            yield page

    def _note_pages(self, prefix: str | None, found: int) -> None:
        for _ in range(max(1, -(-found // PAGE))):
            self._note((f"LIST {prefix}", 0))


class _Pool(ThreadPoolExecutor):
    """A pool of threads that carries virtual time to its work, and from there to the thread that takes the result.

    Work that nobody waits for is done when it is given, in no virtual time: what it finds, and so what it asks, would
    else hang on how fast this machine is.
    """

    def __init__(self, clock: _Clock, threads: int, thread_name_prefix: str) -> None:
        super().__init__(threads, thread_name_prefix)
        self._clock = clock
        self._aside = thread_name_prefix == "afterwards"
        self._free = [0] * threads
        self._taking = threading.Lock()

    def wind_back(self) -> None:
        """All threads have been free since time began."""
        self._free = [0] * len(self._free)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        given = self._clock.now

        def work() -> tuple[Any, int]:
            self._clock.aside = self._aside
            with self._taking:
                self._clock.now = max(given, heapq.heappop(self._free))
            try:
                return fn(*args, **kwargs), self._clock.now
            finally:
                with self._taking:
                    heapq.heappush(self._free, self._clock.now)

        future = super().submit(work)
        if self._aside:
            future.result()
        return _Joined(future, self._clock)


class _Joined:
    """The result of some work; who takes it has waited for it."""

    def __init__(self, future: Any, clock: _Clock) -> None:
        self._future = future
        self._clock = clock

    def result(self) -> Any:
        result, ended = self._future.result()
        self._clock.now = max(self._clock.now, ended)
        return result
