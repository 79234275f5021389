"""A proxy on loopback between a client of an object store and the store, which lets requests fail by chance.

    lost reply    the store does it, and the connection breaks before a byte of the answer comes
    broken        the connection breaks before the store has heard of it
    refused       503 SlowDown, 500 or 409 instead of the store's answer; the store has not heard of it
    wrong answer  500 or 503 though the store did it
    cut off       the connection breaks in the middle of the answer's body
    delayed       all of it comes, but late

The n-th request of a method for a path has one fate for each seed, whatever other requests there are. Requests are
noted as they come, so that tests can count them.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from crdt_mor.ground.clock import SystemEnvironment
from tests.waiting import let_run

FATES: Final = ("lost reply", "broken", "refused", "wrong answer", "cut off", "delayed")
ANSWERS: Final = {
    503: ("SlowDown", "Please reduce your request rate."),
    500: ("InternalError", "We encountered an internal error."),
    409: ("ConditionalRequestConflict", "A conflicting operation occurred during this request."),
}


class Hurried(SystemEnvironment):
    """Pauses between tries are a fiftieth of what they are."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / 50)


@dataclass
class Proxy:
    """A proxy to a server at a port. share: of requests that fail, 0 to 1. only: which may, by method and path.

    delay_ms: what each request takes at least, as if the store were far away. unheard: names of headers, in lower case,
    that the store never hears, as one that does not know them. requests: those that came, as (method, path, fate),
    where the fate of one that was left alone is "".
    """

    upstream: int
    seed: int = 0
    share: float = 0.0
    fates: tuple[str, ...] = FATES
    only: Callable[[str, str], bool] = lambda method, path: True
    delay_ms: int = 0
    unheard: frozenset[str] = frozenset()
    port: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fate(self, method: str, path: str) -> tuple[str, int]:
        """What becomes of a request, and a number by lot for what is left to chance in it."""
        with self._lock:
            self._seen[method, path] += 1
            number = self._seen[method, path]
        digest = hashlib.sha256(repr((self.seed, method, path, number)).encode()).digest()
        fails = int.from_bytes(digest[:6], "big") / 2**48 < self.share and self.only(method, path)
        fate = self.fates[digest[6] % len(self.fates)] if fails else ""
        with self._lock:
            self.requests.append((method, path, fate))
        return fate, digest[7]

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        """Take requests until the block is left."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.proxy = self
        with serving(server) as self.port:
            yield self


@contextmanager
def serving(server: http.server.ThreadingHTTPServer) -> Iterator[int]:
    """A server that answers in threads until the block is left; what it gives is its port."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    proxy: Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is none of our affair."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None: ...

    def _carry(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fate, lot = proxy.fate(self.command, self.path)
        pause_ms = proxy.delay_ms + (20 + lot % 30 if fate == "delayed" else 0)
        if pause_ms:
            let_run(pause_ms / 1000)
        if fate == "broken":
            self._break()
        elif fate == "refused":
            self._answer(lot)
        else:
            status, headers, data = self._ask(body)
            if fate == "lost reply":
                self._break()
            elif fate == "wrong answer":
                self._answer(lot, (500, 503))
            else:
                self._send(status, headers, data, cut=lot if fate == "cut off" and data else None)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _carry  # noqa: N815  the names that the library looks for

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.proxy.upstream, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"connection", *self.server.proxy.unheard}:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, cut: int | None = None) -> None:
        self.send_response_only(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # of a HEAD it is the object's
            elif name.lower() not in ("connection", "transfer-encoding", "keep-alive"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if cut is None:
            self.wfile.write(data)
        else:
            self.wfile.write(data[: len(data) * cut // 256])
            self._break()

    def _answer(self, lot: int, statuses: tuple[int, ...] = tuple(ANSWERS)) -> None:
        allowed = [status for status in statuses if status != 409 or self.command == "PUT"]
        status = allowed[lot % len(allowed)]
        code, said = ANSWERS[status]
        data = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>".encode()
        self._send(status, [("Content-Type", "application/xml")], b"" if self.command == "HEAD" else data)

    def _break(self) -> None:
        """Reset the connection, rather than end it in order."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
