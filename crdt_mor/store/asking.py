"""Send requests to an object store, and retry them with growing pauses until a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from obstore import exceptions

from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.ground.clock import Environment, monotonic_ms
from crdt_mor.ground.deadlines import FailedRequest, Request, current_operation
from crdt_mor.ground.forks import require_clients
from crdt_mor.ground.observing import emit
from crdt_mor.ground.observing_events import WaitEvent
from crdt_mor.store.addresses import Place
from crdt_mor.store.clients import Clients
from crdt_mor.store.credentials import Vending
from crdt_mor.store.failures import NOT_THE_STORE, Failure, Kind, failure_of, is_panic, misuse_of, refused, unavailable
from crdt_mor.store.options import RETRY_TIMEOUT, seconds
from crdt_mor.store.secrets import MissingSecrets, Secrets

T = TypeVar("T")

RETRY_TIMEOUT_S: Final = 60.0
"""Seconds for which a request is retried by default."""

UNREACHED_S: Final = 5.0
"""Seconds of retries before the first answer: the endpoint is then more often wrong than down."""

_RAISED: Final = (exceptions.BaseError, OSError, ValueError, RuntimeError)
"""Exceptions of the client library, except panics."""

_READS: Final = frozenset({"read", "stat", "list", "walk"})
"""Requests that change nothing."""

_PAGES: Final = (b"<!doctype html", b"<html")
"""Beginnings of HTML pages. No object of a table begins so."""

_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 5.0


class TruncatedError(Exception):
    """An answer contained fewer bytes than announced."""


class PageError(Exception):
    """An HTML page came instead of an object: the store has not answered."""

    def __init__(self) -> None:
        super().__init__(f"an HTML page came in place of the object{NOT_THE_STORE}")


def require_no_page(head: bytes, attributes: Mapping[str, str]) -> None:
    """Raise `PageError` if an answer is an HTML page. head: the first bytes of its body."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if attributes.get("Content-Type", "").lower().startswith("text/html") or start.startswith(_PAGES):
        raise PageError


class Tries:
    def __init__(self, request: Request, requests: Requests) -> None:
        self.request = request
        self.environment = requests.environment
        self._requests = requests
        self._operation = current_operation()
        self._patience = self._operation.patience(requests.bucket)
        self._answers = self._patience.answers
        self._began_ms = self._now_ms()
        self.count = 1

    @property
    def text(self) -> str:
        return f"{self.request.verb}={self.request.path} store={self._requests.uri}"

    @property
    def seconds(self) -> float:
        return (self._now_ms() - self._began_ms) / 1000

    def require_life(self) -> None:
        dead = self._patience.dead(self._began_ms)
        if dead is not None:
            raise unavailable(
                dead.text, Failure(Kind.BUSY, dead.cause), dead.tries, dead.seconds, changes=dead.request.changes
            )

    def note_answer(self) -> None:
        self._patience.note_answer(self.request)

    def note_stat(self) -> None:
        self._patience.note_answer(Request("stat", self.request.path, changes=False))

    def wait_to_retry(self, failure: Failure) -> bool:
        """Wait before the next try and return True. Return False at the deadline, or if the operation has waited long
        enough.
        """
        now_ms = self._now_ms()
        has_waited = self._patience.is_backing_off(self.request, now_ms)
        limit_s = self._requests.deadline_s
        if failure.unsent and not self._requests.reached:
            limit_s = min(limit_s, UNREACHED_S)
        pause_s = (0.5 + self.environment.jitter() / 2) * min(_PAUSE_MAX_S, _PAUSE_S * 2 ** min(self.count, 16))
        if has_waited or self.seconds + pause_s > limit_s:
            failed = FailedRequest(self.request, self.text, self.count, self._began_ms, now_ms, failure.cause)
            self._patience.note_failed(failed, self._answers)
            return False
        if self._operation.is_warning_due(self._began_ms, now_ms):
            emit(WaitEvent(
                uri=self._requests.uri, request=f"{self.request.verb}={self.request.path}", tries=self.count,
                waited_s=round(self.seconds, 1), deadline_s=limit_s, cause=failure.cause,
            ))  # fmt: skip
        self.environment.sleep(pause_s)
        self.count += 1
        return True

    def _now_ms(self) -> int:
        local_ms = monotonic_ms(self.environment)
        return self.environment.now_ms() if local_ms is None else local_ms


class Requests:
    """Requests to a bucket.

    reached: the store has answered. bucket_seen: the bucket exists. deadline_s: seconds of retries.
    """

    def __init__(self, place: Place, options: Mapping[str, str], secrets: Secrets, environment: Environment) -> None:
        self._place = place
        self._options = options
        self._secrets = secrets
        self.environment = environment
        self.uri = place.uri
        self.bucket = (place.provider, place.bucket, frozenset({**place.options, **options}.items()))
        self.deadline_s = seconds(options, RETRY_TIMEOUT, RETRY_TIMEOUT_S)
        self._lock = threading.Lock()
        self._clients: Clients | None = None
        self.reached = self.bucket_seen = False

    @property
    def clients(self) -> Clients:
        """The connections. Raises without credentials, or in a forked process."""
        require_clients(self._place.uri)
        with self._lock:
            if self._clients is None:
                if isinstance(self._secrets, MissingSecrets):
                    self._secrets = self._secrets.from_environment(self._place.provider, self._place.uri)
                self._clients = Clients(self._place, self._options, self._secrets, self.environment)
            return self._clients

    def prepare(self) -> None:
        try:
            self.clients.brief()
        except _RAISED as error:
            if isinstance(error, CrdtMorError):
                raise
            made = misuse_of(error, self._place, self._options, self._secrets)
        else:
            return
        raise refused(f"store={self._place.uri}", made, changes=False)

    @property
    def _vending(self) -> Vending | None:
        return None if self._clients is None else self._clients.vending

    def _keys(self) -> int:
        return 0 if self._vending is None else self._vending.number

    def _note_accepted(self, keys: int) -> None:
        if self._vending is not None:
            self._vending.note_accepted(keys)

    def _without_credentials(self, failure: Failure) -> Failure:
        return failure if self._vending is None else replace(failure, cause=self._vending.hide(failure.cause))

    def begin(self, verb: str, path: str) -> Tries:
        """Begin a request. Raises `StorageUnavailableError` if the operation has given the store up."""
        tries = Tries(Request(verb, path, verb not in _READS), self)
        tries.require_life()
        return tries

    def send_once(self, request: Callable[[], T]) -> T | Failure:
        keys = self._keys()
        try:
            result = request()
        except TruncatedError as error:
            return Failure(Kind.BUSY, f"the answer was cut off: {error}")
        except PageError as error:
            return Failure(Kind.BUSY, str(error), answered=False)
        except BaseException as error:
            if isinstance(error, CrdtMorError) or not (isinstance(error, _RAISED) or is_panic(error)):
                raise
            if str(error).startswith("Could not parse path"):
                failure = None
            else:
                failure = self._without_credentials(failure_of(error, self._place, self._secrets))
        else:
            self.reached = self.bucket_seen = True
            self._note_accepted(keys)
            return result
        if failure is None:
            raise InvalidInputError(
                "the store refuses names with control characters, and the parts '.' and '..'; use another name"
            )
        if failure.kind is Kind.REFUSED and failure.fleeting and self.reached:
            return Failure(Kind.BUSY, failure.cause, answered=False)
        if failure.of_keys and self._vending is not None and self._vending.renews(keys):
            return Failure(Kind.BUSY, failure.cause, unsent=True)  # the next credentials follow
        self.reached = self.reached or failure.answered
        if failure.kind in (Kind.ABSENT, Kind.TAKEN, Kind.RANGE):
            self._note_accepted(keys)
        self.bucket_seen = self.bucket_seen or (failure.kind is Kind.ABSENT and not failure.bodiless)
        return failure

    def send(
        self, verb: str, path: str, request: Callable[[], T], full: Callable[[], object] | None = None
    ) -> T | Failure:
        """Send a repeatable request and return its result, or a failure that is an answer (absent, taken, range).

        full: the same request with a body in its answer, to learn a refusal's reason.

        Raises:
            StorageRefusedError: Retries cannot help.
            StorageUnavailableError: The deadline passed.
        """
        tries = self.begin(verb, path)
        while True:
            keys = self._keys()
            result = self.send_once(request)
            if full is not None and isinstance(result, Failure) and result.bodiless and result.kind is Kind.REFUSED:
                answer = self.send_once(full)
                if isinstance(answer, Failure) and answer.kind in (Kind.REFUSED, Kind.BUSY):
                    result = answer
                elif keys != self._keys():
                    result = replace(result, kind=Kind.BUSY)  # its credentials were renewed meanwhile
            if not isinstance(result, Failure) or result.kind in (Kind.ABSENT, Kind.TAKEN, Kind.RANGE):
                tries.note_answer()
                return result
            if result.kind is Kind.REFUSED:
                raise refused(tries.text, result, changes=tries.request.changes)
            if not tries.wait_to_retry(result):
                raise unavailable(tries.text, result, tries.count, tries.seconds, changes=tries.request.changes)
