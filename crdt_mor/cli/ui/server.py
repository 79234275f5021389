"""The server of the page on 127.0.0.1.

    GET /                                  the page, rebuilt at each load
    GET /why?key=K[&column=C][&as_of=T]    the history of a row as JSON, or `{"error": …}`
    GET /diff?before=T&after=T             the rows that differ between two moments, the same way

No request changes rows or files. A request must use the server's own name, which stops pages of other names that
resolve here (DNS rebinding), and requests made by other sites are refused (Fetch Metadata, W3C). A question as of a new
moment decides the moment by a timeline event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.ui.differences import differences_of
from crdt_mor.cli.ui.page import html
from crdt_mor.cli.ui.report import life_of_text, report_of

HOST: Final = "127.0.0.1"

HTTP_PORT: Final = 80
"""Browsers omit this port in names."""

SILENT_S: Final = 60
"""Seconds until a silent connection is closed."""


@dataclass(frozen=True)
class ServedTable:
    """The shown table. Requests read it one at a time."""

    table: mor.Table
    uri: str
    lock: Lock = field(default_factory=Lock)

    def page(self) -> str:
        with self.lock:
            return html({**report_of(self.table, self.uri), "live": True, "lives": []})

    def why(self, query: dict[str, str]) -> str:
        column, as_of = query.get("column") or None, query.get("as_of") or None
        return self._answer(lambda: life_of_text(self.table, query.get("key", ""), column, as_of))

    def diff(self, query: dict[str, str]) -> str:
        return self._answer(lambda: differences_of(self.table, query.get("before", ""), query.get("after", "")))

    def _answer(self, read: Callable[[], dict[str, Any]]) -> str:
        try:
            with self.lock:
                found = read()
        except mor.CrdtMorError as error:
            found = {"error": str(error)}
        return render.as_json(found)


def server(served: ServedTable, port: int) -> ThreadingHTTPServer:
    return _Server((HOST, port), _handler(served))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: browsers disconnect, and errors of the table are answered."""


def _handler(served: ServedTable) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_S

        def do_GET(self) -> None:
            try:
                address = urlsplit(self.path)
            except ValueError:
                self.send_error(HTTPStatus.BAD_REQUEST)
                return
            answers: dict[str, tuple[str, Callable[[], str]]] = {
                "/": ("text/html", served.page),
                "/why": ("application/json", lambda: served.why(_asked(address.query))),
                "/diff": ("application/json", lambda: served.diff(_asked(address.query))),
            }
            if not self._is_asked_by_name():
                self.send_error(HTTPStatus.FORBIDDEN, "the page is only at http://127.0.0.1")
            elif address.path not in answers:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._answer(*answers[address.path])

        def _is_asked_by_name(self) -> bool:
            assert isinstance(self.server, ThreadingHTTPServer)
            port = self.server.server_port
            names = {f"{name}:{port}" for name in (HOST, "localhost")} | (
                {HOST, "localhost"} if port == HTTP_PORT else set()
            )
            is_of_another_site = self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
            return self.headers.get("Host") in names and not is_of_another_site

        def _answer(self, kind: str, make: Callable[[], str]) -> None:
            try:
                body, status = make().encode("utf-8", "replace"), HTTPStatus.OK
            except Exception as error:  # noqa: BLE001  the browser is told, whatever it is
                body, kind, status = f"{error}".encode("utf-8", "replace"), "text/plain", HTTPStatus.SERVICE_UNAVAILABLE
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler


def _asked(query: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
