"""A bucket in memory whose requests fail as a test says, with a clock that only passes where somebody sleeps.

The product's own store of buckets runs unchanged, above the client library's functions, which stand over a bucket in
memory. A rule sees each request before it is carried out, and names what goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Self
from unittest.mock import patch

import obstore
from obstore import exceptions
from obstore.store import MemoryStore

from crdt_mor.store.addresses import place_of
from crdt_mor.store.objects import ObjectStore
from crdt_mor.store.secrets import Secrets
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.counting import POOLS, Clients

URI: Final = "s3://failing/table"


@dataclass(frozen=True)
class Request:
    """A request. what: PUT, GET, HEAD, LIST, DELETE or COPY. conditional: it is to make the object if there is none."""

    what: str
    key: str
    conditional: bool = False


def answered(status: int, code: str = "SlowDown", said: str = "Please wait.") -> Exception:
    """What the client library raises for an answer of the store."""
    text = (
        f"Generic S3 error: Error performing PUT: status code: {status} No: "
        f"<Error><Code>{code}</Code><Message>{said}</Message></Error>"
    )
    return exceptions.PreconditionError(text) if status in (304, 412) else exceptions.GenericError(text)


class LostError(exceptions.GenericError):
    """A put that is not answered. lands: whether it makes its object, and when: now, or when it is let."""

    lands: Literal["now", "late"]

    @classmethod
    def of(cls, lands: Literal["now", "late"]) -> LostError:
        error = cls(str(answered(503)))
        error.lands = lands
        return error


@dataclass
class FailingBucket:
    """A bucket whose requests fail as `rule` says, which is given each of them and how many came before it.

    late: puts that nobody has got an answer to, and that make their objects when they are called.
    """

    objects: MemoryStore = field(default_factory=MemoryStore)
    environment: SimulatedEnvironment = field(default_factory=SimulatedEnvironment)
    rule: Callable[[Request, int], Exception | None] = lambda request, number: None
    asked: list[Request] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)

    def store(self, **options: str) -> ObjectStore:
        """A store at the one address that the bucket has, as another process would open it."""
        place = place_of(URI)
        assert place is not None
        store = ObjectStore(place, options, Secrets({}), self.environment)
        store._requests._clients = Clients(self.objects)  # type: ignore[assignment]
        store._requests.reached = store._requests.bucket_seen = True
        return store

    @contextmanager
    def running(self) -> Iterator[FailingBucket]:
        """Let the product's requests be this bucket's until the block is left."""
        with ExitStack() as stack:
            library = _Library(self)
            for module in ("objects", "puts"):
                stack.enter_context(patch(f"crdt_mor.store.{module}.obstore", library))
            for pool in POOLS:
                stack.enter_context(patch(pool, partial(_AtOnce, self.environment)))
            yield self

    @contextmanager
    def at_its_address(self) -> Iterator[None]:
        """Let what opens tables by their address, as the command line does, find the bucket, until the block is left.

        Its time is the bucket's as well.
        """
        with ExitStack() as stack:
            stack.enter_context(patch("crdt_mor.store.objects.open_at", lambda *_: self.store()))
            stack.enter_context(patch("crdt_mor.api.opening.SystemEnvironment", lambda: self.environment))
            yield

    def fail(self, rule: Callable[[Request, int], Exception | None]) -> None:
        """Fail by a rule from now on."""
        self.asked, self.rule = [], rule

    def mend(self) -> None:
        """Fail no more."""
        self.fail(lambda request, number: None)

    def die_after(self, requests: int) -> None:
        """Answer so many requests more, and from then on each with 503."""
        self.fail(lambda request, number: answered(503) if number >= requests else None)

    def before(self, request: Request) -> None:
        """Note a request; raises what goes wrong with it."""
        number = len(self.asked)
        self.asked.append(request)
        if (error := self.rule(request, number)) is not None:
            raise error


class _AtOnce:
    """A pool whose work is done when it is given, in the context of a thread that has just begun.

    Waits of work side by side thus come one after another. Of work that nobody waits for, no time passes.
    """

    def __init__(self, environment: SimulatedEnvironment, threads: int, thread_name_prefix: str = "") -> None:
        self._environment = environment
        self._aside = thread_name_prefix == "afterwards"

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        began_ms = self._environment.now_ms()
        future: Future[Any] = Future()
        try:
            future.set_result(Context().run(work, *arguments))
        except Exception as error:  # noqa: BLE001  the caller that takes the result meets it
            future.set_exception(error)
        if self._aside:
            self._environment._now_ms = began_ms
        return future

    def shutdown(self, **how: bool) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None: ...


class _Library:
    """The functions of obstore that the store calls, each behind the bucket's rule."""

    def __init__(self, bucket: FailingBucket) -> None:
        self._before, self._late = bucket.before, bucket.late

    def get(self, client: MemoryStore, key: str, *, options: Any = None) -> Any:
        self._before(Request("HEAD" if options and options.get("head") else "GET", key))
        return obstore.get(client, key, options=options)

    def get_ranges(self, client: MemoryStore, key: str, *, starts: Any, lengths: Any, coalesce: int) -> Any:
        self._before(Request("GET", key))
        return obstore.get_ranges(client, key, starts=starts, lengths=lengths)

    def put(self, client: MemoryStore, key: str, content: bytes, **how: Any) -> Any:
        put = partial(obstore.put, client, key, content, **how)
        try:
            self._before(Request("PUT", key, how.get("mode") == "create"))
        except LostError as lost:
            if lost.lands == "late":
                self._late.append(put)
            else:
                with suppress(exceptions.AlreadyExistsError):
                    put()
            raise
        return put()

    def delete(self, client: MemoryStore, key: str) -> None:
        self._before(Request("DELETE", key))
        obstore.delete(client, key)

    def copy(self, client: MemoryStore, source: str, target: str, *, overwrite: bool) -> None:
        self._before(Request("COPY", target, not overwrite))
        obstore.copy(client, source, target, overwrite=overwrite)

    def list_with_delimiter(self, client: MemoryStore, prefix: str | None) -> Any:
        self._before(Request("LIST", prefix or ""))
        return obstore.list_with_delimiter(client, prefix)

    def list(
        self, client: MemoryStore, prefix: str | None, *, chunk_size: int, offset: str | None = None
    ) -> Iterator[Any]:
        self._before(Request("LIST", prefix or ""))
        yield from obstore.list(client, prefix, chunk_size=chunk_size, offset=offset)
