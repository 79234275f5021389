"""A bucket on loopback that is some milliseconds away, for benches: `benches/s3.py` in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import obstore
from obstore.store import S3Store

from benches import s3

BUCKET = "lake"
SPAWN = multiprocessing.get_context("spawn")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def bucket(*delays_ms: int) -> Iterator[list[int]]:
    """The ports of an empty bucket: through each of them it is so many milliseconds away."""
    ports = {free_port(): delay_ms for delay_ms in delays_ms}
    process = SPAWN.Process(target=s3.serve, args=(ports,), daemon=True)
    process.start()
    try:
        for port in ports:
            wait_for(port)
        yield list(ports)
    finally:
        process.kill()
        process.join()


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"nobody listens. port={port}")


def asked(port: int) -> dict[str, float]:
    """How many requests the bucket has answered, and its processor time in seconds."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{s3.FIGURES}") as answer:
        found: dict[str, float] = json.load(answer)
    return found


def options(port: int) -> dict[str, str]:
    """What leads to the bucket, by the names that all engines know."""
    return {
        "aws_endpoint_url": f"http://127.0.0.1:{port}",
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_region": "us-east-1",
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "aws_allow_http": "true",
    }


def store(port: int) -> S3Store:
    """A client of the bucket that knows of no tables."""
    config: Any = {n: v for n, v in options(port).items() if n not in ("aws_endpoint_url", "aws_allow_http")}
    return S3Store(BUCKET, config=config, client_options={"allow_http": True})


def put_if_absent(client: S3Store, path: str) -> None:
    obstore.put(client, path, b"x" * 1000, mode="create", use_multipart=False)


def ceiling(port: int, seconds: float) -> dict[str, float]:
    """Small puts and gets a second of the bucket itself, by eight threads that do nothing else."""
    client = store(port)
    obstore.put(client, "ceiling/get", b"x" * 1000)
    names = f"ceiling/{time.time_ns()}"

    def rate(request: Callable[[str], object]) -> float:
        end = time.perf_counter() + seconds

        def loop(thread: int) -> int:
            count = 0
            while time.perf_counter() < end:
                request(f"{names}-{thread}-{count}")
                count += 1
            return count

        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(loop, range(8))) / seconds

    return {
        "puts/s": rate(lambda path: put_if_absent(client, path)),
        "gets/s": rate(lambda _: obstore.get(client, "ceiling/get").bytes()),
    }
