"""The page on 127.0.0.1: made anew whenever a browser loads it, and the lives of rows that it asks for.

    GET /                                  the page
    GET /why?key=K[&column=C][&as_of=T]    the life of a row as JSON, or `{"error": …}`

There is nothing else, and nothing that writes. Only programs of this machine reach the server. It answers browsers that
ask for it by its own name alone, so that a page of the Internet whose name leads here (DNS rebinding) reads nothing.
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
from crdt_mor.cli.ui.page import html
from crdt_mor.cli.ui.report import life_of_text, report_of

HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Served:
    """A table that is shown. One request at a time reads it."""

    table: mor.Table
    uri: str
    lock: Lock = field(default_factory=Lock)

    def page(self) -> str:
        """The page as the table is now."""
        with self.lock:
            return html({**report_of(self.table, self.uri), "live": True, "lives": []})

    def why(self, asked: dict[str, str]) -> str:
        """The life of a row, or what is wrong with the question."""
        try:
            with self.lock:
                said: dict[str, Any] = life_of_text(
                    self.table, asked.get("key", ""), asked.get("column") or None, asked.get("as_of") or None
                )
        except mor.CrdtMorError as error:
            said = {"error": str(error)}
        return render.as_json(said)


def server(served: Served, port: int) -> ThreadingHTTPServer:
    """A server that listens and does not answer yet; port 0 takes a free one."""
    made = ThreadingHTTPServer((HOST, port), _handler(served))
    made.daemon_threads = True
    return made


def _handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            answers: dict[str, tuple[str, Callable[[], str]]] = {
                "/": ("text/html", served.page),
                "/why": ("application/json", lambda: served.why(_asked(address.query))),
            }
            if not self._is_asked_by_name():
                self.send_error(HTTPStatus.FORBIDDEN, "the page is at http://127.0.0.1 alone")
            elif address.path not in answers:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._answer(*answers[address.path])

        def _is_asked_by_name(self) -> bool:
            assert isinstance(self.server, ThreadingHTTPServer)
            return self.headers.get("Host") in {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}

        def _answer(self, kind: str, make: Callable[[], str]) -> None:
            try:
                body, status = make().encode(), HTTPStatus.OK
            except (mor.CrdtMorError, OSError) as error:
                body, kind, status = str(error).encode(), "text/plain", HTTPStatus.SERVICE_UNAVAILABLE
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what a browser asks for is no news."""

    return Handler


def _asked(query: str) -> dict[str, str]:
    """The parameters of an address, each once."""
    return {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
