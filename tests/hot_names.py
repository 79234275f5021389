"""A bucket that allows one change of a name in a second, and processes that use it at once, in virtual time.

The product's store of buckets runs unchanged, each process in a thread. One thread runs at a time: where it sends a
request or sleeps, the thread runs whose time comes next. So a run is the same each time, and takes no time of a clock.
"""

from __future__ import annotations

import builtins
import heapq
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any, Final, Self
from unittest.mock import patch

from obstore import exceptions

from crdt_mor.ground.clock import Process
from crdt_mor.store.addresses import place_of
from crdt_mor.store.objects import ObjectStore
from crdt_mor.store.secrets import Secrets
from tests.counting import POOLS

START_MS: Final = 1_700_000_000_000
REQUEST_MS: Final = 30
LIMIT_MS: Final = 1000
PAGE: Final = b"<html>log in</html>"


class VirtualTime:
    """Threads that take turns, in the order of the times at which they go on."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, threading.Event]] = []
        self._order = count()
        self._own = threading.local()

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Run all of these, each as a process of its own, which begins now."""
        threads = []
        for work in works:
            turn = threading.Event()
            heapq.heappush(self._due, (self.now, next(self._order), turn))
            threads.append(threading.Thread(target=self._live, args=(turn, work), daemon=True))
        for thread in threads:
            thread.start()
        self._wake_next()
        for thread in threads:
            thread.join()

    def pass_ms(self, milliseconds: float) -> None:
        """Let others run until this much time has passed."""
        turn = getattr(self._own, "turn", None)
        if turn is None:  # nobody runs beside this thread
            self.now += milliseconds
            return
        turn.clear()
        heapq.heappush(self._due, (self.now + milliseconds, next(self._order), turn))
        self._wake_next()
        turn.wait()

    def _live(self, turn: threading.Event, work: Callable[[], None]) -> None:
        self._own.turn = turn
        turn.wait()
        try:
            work()
        finally:
            self._wake_next()

    def _wake_next(self) -> None:
        if self._due:
            self.now, _, turn = heapq.heappop(self._due)
            turn.set()


class VirtualEnvironment:
    """The environment of one process."""

    def __init__(self, time: VirtualTime, name: str) -> None:
        self.time, self.name = time, name
        self._chance = random.Random(name)

    def now_ms(self) -> int:
        return START_MS + int(self.time.now)

    monotonic_ms = now_ms

    def nonce(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"

    def sleep(self, seconds: float) -> None:
        self.time.pass_ms(seconds * 1000)

    @contextmanager
    def every(self, seconds: float, work: Callable[[], None], name: str) -> Iterator[None]:
        yield

    def jitter(self) -> float:
        return self._chance.random()

    def process(self) -> Process:
        return Process("hot", self.name, 1)


@dataclass(frozen=True)
class _Object:
    data: bytes
    modified_ms: int
    attributes: dict[str, str]

    def meta(self, key: str) -> Any:
        modified = datetime.fromtimestamp(self.modified_ms / 1000, UTC)
        return {"path": key, "size": len(self.data), "last_modified": modified}

    def answer(self, key: str) -> Any:
        return SimpleNamespace(meta=self.meta(key), attributes=self.attributes, bytes=lambda: self.data)


class HotBucket:
    """A bucket. changed: by which processes each name was put. refused: how often the limit was met, by name.

    is_captive: a login page answers in its place, with status 200 and HTML, whatever is asked. requests: how many came.
    """

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.is_captive = False
        self.requests = 0
        self.changed: dict[str, set[str]] = {}
        self.refused: dict[str, int] = {}
        self._objects: dict[str, _Object] = {}
        self._last: dict[str, float] = {}

    def store(self, environment: VirtualEnvironment) -> ObjectStore:
        """A store of the one address in the bucket, as one process has it."""
        place = place_of("s3://hot/table")
        assert place is not None
        store = ObjectStore(place, {}, Secrets({}), environment)
        clients: Any = SimpleNamespace(vending=None)
        clients.brief = clients.reading = lambda: environment.name
        clients.putting = lambda size: environment.name
        store._requests._clients = clients
        return store

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Let the product's requests be this bucket's, made by the thread that needs them."""
        with ExitStack() as stack:
            for module in ("objects", "puts"):
                stack.enter_context(patch(f"crdt_mor.store.{module}.obstore", self))
            for pool in POOLS:
                stack.enter_context(patch(pool, _AtOnce))
            yield

    # what the client library has:

    def get(self, client: str, key: str, *, options: Any = None) -> Any:
        if self._is_page():
            return _Object(PAGE, START_MS + int(self.time.now), {}).answer(key)
        found = self._objects.get(key)
        if found is None:
            raise FileNotFoundError("status code: 404 Not Found: <Code>NoSuchKey</Code>")
        return found.answer(key)

    def get_ranges(self, client: str, key: str, *, starts: Sequence[int], lengths: Sequence[int], **_: Any) -> Any:
        if self._is_page():
            raise exceptions.GenericError("Received non-partial response when range requested")
        data = self.get(client, key).bytes()
        return [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]

    def put(self, client: str, key: str, content: bytes, *, mode: str = "overwrite", **how: Any) -> None:
        if self._is_page():
            return
        self.changed.setdefault(key, set()).add(client)
        self._require_cool(key)
        if mode == "create" and key in self._objects:
            raise exceptions.AlreadyExistsError("status code: 412 Precondition Failed: <Code>PreconditionFailed</Code>")
        self._last[key] = self.time.now
        now_ms = START_MS + int(self.time.now) // 1000 * 1000
        self._objects[key] = _Object(bytes(content), now_ms, how.get("attributes") or {})

    def delete(self, client: str, key: str) -> None:
        if not self._is_page():
            self._objects.pop(key, None)

    def list_with_delimiter(self, client: str, prefix: str | None) -> Any:
        if self._is_page():
            return {"objects": [], "common_prefixes": []}  # so the client library reads a page
        start = f"{prefix}/"
        return {"objects": [self._meta(key) for key in self._below(start) if "/" not in key.removeprefix(start)]}

    def list(self, client: str, prefix: str | None, *, chunk_size: int, offset: str = "") -> Iterator[Any]:
        yield [] if self._is_page() else [self._meta(key) for key in self._below(f"{prefix}/") if key > offset]

    def _is_page(self) -> bool:
        """Let the time of a request pass; whether a login page answers it."""
        self.requests += 1
        self.time.pass_ms(REQUEST_MS)
        return self.is_captive

    def _below(self, start: str) -> builtins.list[str]:
        return sorted(key for key in self._objects if key.startswith(start))

    def _meta(self, key: str) -> Any:
        return self._objects[key].meta(key)

    def _require_cool(self, key: str) -> None:
        """Refuse a change of a name that was changed less than a second ago, whatever its condition says."""
        if self.time.now - self._last.get(key, -LIMIT_MS) < LIMIT_MS:
            self.refused[key] = self.refused.get(key, 0) + 1
            raise exceptions.GenericError("status code: 429 Too Many Requests: <Code>SlowDown</Code>")


class _AtOnce:
    """A pool that does its work in the thread that gives it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  whoever takes the result is told
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., Any], *args: Any) -> Iterator[Any]:
        return map(fn, *args)

    def shutdown(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
