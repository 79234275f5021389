"""One object store on loopback, as a process: `python -m tests.serving s3|azure PORT`, which `tests.servers` starts.

It ends when its standard input does, and so with the process that started it, however that ends.
`python -m tests.npm azurite` fetches Azurite.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from tests.npm import folder

_UNTIDY: Final = Path(__file__).with_name("azurite.js")

AZURITE: Final = folder("azurite").parent / ".bin" / "azurite-blob"


def _serve_s3(port: int) -> None:
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None: ...

    app = OneAtATime(create_backend_app("s3"))  # moto's dispatcher lists the folders of all services at each request
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)


class OneAtATime:
    """A WSGI application that answers one request after the other.

    moto looks whether an object is there and makes it in two steps, so that of two threads both may make it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        # A slow body keeps nobody waiting. Arrow's client sends it in chunks, of which the end is known as it comes.
        chunked = environ.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
        body = environ["wsgi.input"].read(*[] if chunked else [int(environ.get("CONTENT_LENGTH") or 0)])
        whole = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        whole.pop("HTTP_TRANSFER_ENCODING", None)
        with self._lock:
            return [b"".join(self._app(whole, start_response))]


def _serve_azure(port: int) -> None:
    command = [str(AZURITE), "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence", "--silent",
               "--blobHost", "127.0.0.1", "--blobPort", str(port)]  # fmt: skip
    untidy = {**os.environ, "NODE_OPTIONS": f'--require="{_UNTIDY}"'}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=untidy)
    threading.Thread(target=lambda: (process.wait(), os._exit(1)), daemon=True).start()
    sys.stdin.buffer.read()
    process.kill()
    os._exit(0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["s3", port]:
            _serve_s3(int(port))
        case ["azure", port]:
            _serve_azure(int(port))
        case _:
            sys.exit(__doc__)
