"""Object stores on loopback, each a process of its own that the tests start when the first of them needs it.

    s3       moto, from PyPI (`pip install 'moto[s3]' flask flask-cors`)
    azure    Azurite, from npm: Node 18 or newer, and once `python -m tests.npm azurite`

A server ends with the process that started it, however that ends: it watches a pipe from it, and keeps objects in
memory. Tests without their package are skipped with the reason.
"""

from __future__ import annotations

import atexit
import base64
import email.utils
import hashlib
import hmac
import itertools
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.store.addresses import place_of
from crdt_mor.store.objects import ObjectStore, open_at
from tests.serving import AZURITE
from tests.waiting import PATIENCE_S, wait_for

ROOT: Final = Path(__file__).parent.parent

BUCKET: Final = "lake"
AWS_KEYS: Final = {"aws_access_key_id": "AKIATESTS", "aws_secret_access_key": "the-secret-of-the-tests"}
ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one that Azurite documents for everybody."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Server:
    """A running server. kind: "s3" or "azure". port: on loopback. options: `storage_options` that lead to it."""

    kind: str
    port: int
    options: Mapping[str, str]

    def through(self, port: int) -> Server:
        """The same server, reached through another port: that of a proxy."""
        options = {name: value.replace(f":{self.port}", f":{port}") for name, value in self.options.items()}
        return Server(self.kind, port, options)

    def address(self, name: str = "table") -> str:
        """An address that nobody else has."""
        scheme = {"s3": "s3", "azure": "az"}[self.kind]
        return f"{scheme}://{BUCKET}/{os.getpid()}-{next(_numbers)}/{name}"

    def store(self, address: str | None = None, **options: str) -> ObjectStore:
        """The store at an address, by default at a new one."""
        place = place_of(address or self.address())
        assert place is not None
        return open_at(place, {**self.options, **options}, SystemEnvironment())


@cache
def s3() -> Server:
    """The S3 of this test run; skips the test where moto is not installed."""
    if find_spec("moto") is None or find_spec("flask") is None:
        pytest.skip("no S3 here: pip install 'moto[s3]' flask flask-cors")
    port = _start("s3")
    endpoint = f"http://127.0.0.1:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=PATIENCE_S).close()
    options = {"aws_endpoint_url": endpoint, "aws_allow_http": "true", "aws_region": "us-east-1"}
    return Server("s3", port, {**options, **AWS_KEYS})


@cache
def azure() -> Server:
    """The Azure of this test run; skips the test where Azurite is not installed."""
    if shutil.which("node") is None or not AZURITE.exists():
        pytest.skip("no Azure here: install Node, then python -m tests.npm azurite")
    port = _start("azure")
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    _make_container(endpoint)
    options = {"azure_storage_account_name": ACCOUNT, "azure_storage_account_key": ACCOUNT_KEY}
    return Server("azure", port, {**options, "azure_storage_endpoint": endpoint, "allow_http": "true"})


SERVERS: Final = {"s3": s3, "azure": azure}


def _start(kind: str) -> int:
    """Start a server in a process that ends with this one; its port, which it takes requests at."""
    port = free_port()
    command = [sys.executable, "-m", "tests.serving", kind, str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    atexit.register(_end, process)

    def listens() -> bool:
        assert process.poll() is None, f"the server did not start: {' '.join(command)}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    wait_for(f"server at {port}", listens)
    return port


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port on loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _make_container(endpoint: str) -> None:
    """Make the container with a request that is signed by hand, as the client library makes none."""
    date = email.utils.formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    text = f"PUT{chr(10) * 12}{headers}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    signed = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(f"{endpoint}/{BUCKET}?restype=container", method="PUT")
    for name, value in (("x-ms-date", date), ("x-ms-version", "2021-08-06"), ("Content-Length", "0"),
                        ("Authorization", f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}")):  # fmt: skip
        request.add_header(name, value)
    urllib.request.urlopen(request, timeout=PATIENCE_S).close()
