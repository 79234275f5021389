"""A server on loopback that says what a test wants of each request, and notes who signed it, and for which region."""

from __future__ import annotations

import http.server
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.proxy import serving

Answer = tuple[int, bytes]
"""A status, and the body; the answer to a HEAD has none."""


def said(status: int, code: str, message: str = "So it is.") -> Answer:
    """An answer in which S3 refuses something."""
    return status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


@dataclass
class Listening:
    """A bucket at a port in which nothing is, unless `answer` says otherwise of a method and a key id."""

    answer: Callable[[str, str], Answer] = lambda method, key: said(404, "NoSuchKey")
    port: int = 0
    signed: list[tuple[str, str]] = field(default_factory=list)
    """The key id and the region of each request, in order."""

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` that lead here, without keys and without a region."""
        return {"aws_endpoint_url": f"http://127.0.0.1:{self.port}", "allow_http": "true", "retry_timeout": "1s"}

    @contextmanager
    def running(self) -> Iterator[Listening]:
        """Take requests until the block is left."""
        listening = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None: ...

            def _take(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                match = re.search(r"Credential=([^/]*)/\d+/([^/]*)/", self.headers.get("Authorization") or "")
                listening.signed.append((match[1], match[2]) if match else ("", ""))
                status, body = listening.answer(self.command, listening.signed[-1][0])
                self.send_response_only(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", '"1"')
                self.send_header("Last-Modified", "Fri, 21 Nov 2025 00:00:00 GMT")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_CONNECT = _take  # noqa: N815  the library's names

        with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as self.port:
            yield self
