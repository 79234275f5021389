"""A bucket that is some milliseconds away: moto on loopback, and a proxy in front of it, for benches.

The proxy hands on what clients send when it is some milliseconds old, for any number of connections, so that each
request takes that much longer and none waits for another.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

ROOT = Path(__file__).parent.parent
BUCKET = "lake"
SPAWN = multiprocessing.get_context("spawn")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def bucket() -> Iterator[int]:
    """The port of a moto with an empty bucket."""
    port = free_port()
    command = [sys.executable, "-m", "tests.serving", "s3", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        make = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(make).close()
        yield port
    finally:
        process.kill()
        process.wait()


@contextmanager
def far_away(port: int, delay_ms: int) -> Iterator[int]:
    """The port at which the server at another port is found, some milliseconds away."""
    near = free_port()
    process = SPAWN.Process(target=carry, args=(near, port, delay_ms), daemon=True)
    process.start()
    try:
        wait_for(near)
        yield near
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


def carry(near: int, far: int, delay_ms: int) -> None:
    """A proxy that hands on what comes from clients when it is `delay_ms` old, and answers as they come."""

    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def receive() -> None:
            data = b"."
            while data:
                data = await reader.read(1 << 18)
                due.put_nowait((time.monotonic() + delay_s, data))

        receiving = asyncio.create_task(receive())
        try:
            while True:
                at, data = await due.get()
                await asyncio.sleep(at - time.monotonic())
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            receiving.cancel()
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", far)
        await asyncio.gather(hand_on(reader, far_writer, delay_ms / 1000), hand_on(far_reader, writer, 0))

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", near, backlog=512)
        await server.serve_forever()

    asyncio.run(serve())


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


def ceiling(port: int, seconds: float) -> dict[str, float]:
    """Small puts and gets a second of the bucket itself, by eight threads that do nothing else."""
    config: Any = {n: v for n, v in options(port).items() if n not in ("aws_endpoint_url", "aws_allow_http")}
    store = S3Store(BUCKET, config=config, client_options={"allow_http": True})
    obstore.put(store, "ceiling/get", b"x" * 1000)
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
        "puts/s": rate(lambda path: obstore.put(store, path, b"x" * 1000, mode="create", use_multipart=False)),
        "gets/s": rate(lambda _: obstore.get(store, "ceiling/get").bytes()),
    }
