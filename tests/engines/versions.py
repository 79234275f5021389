"""A table is mirrored while three processes write it; engines give the rows of `scan(as_of=version)` of each version.

    python -m tests.engines.versions PLAN FOLDER     # a line of JSON for each engine and version

The writers upsert, delete and compact until the last version is read.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Literal

import pyarrow as pa

from crdt_mor import Table
from tests.engines.engine import Engine, Mirrored
from tests.engines.judging import difference, verdict_of
from tests.engines.reading import engines, tell
from tests.engines.shapes import frame
from tests.waiting import wait_for

LIGHT = ("pyiceberg", "duckdb-iceberg", "polars-iceberg", "duckdb-delta", "polars-delta", "delta-rs")
PLANS = {
    "versions-few": (5, LIGHT),
    "versions-light": (50, LIGHT),
    "versions-spark": (50, ("spark-iceberg", "spark-delta")),
}
"""The number of versions of each mirror, and the engines that read them."""

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64()), ("text", pa.string())])
WRITERS, IDS = 3, 600
KINDS: tuple[Literal["iceberg", "delta"], ...] = ("iceberg", "delta")


def rows(ids: list[int], n: int, text: str) -> pa.Table:
    return frame(SCHEMA, ids, lambda i: (f"p{i % 3}", n, text))


def write(uri: str, writer: str) -> None:
    """Commit until the process is killed, or its parent ends. The engines get the processors first."""
    os.nice(10)
    table, rng, parent = Table(uri), random.Random(writer), os.getppid()
    for turn in count():
        ids = rng.sample(range(IDS), 12)
        table.upsert(rows(ids, turn, writer))
        if turn % 4 == 3:
            table.delete(rows(ids[:3], 0, "").select(["id", "part"]))
        if turn % 25 == 24:
            table.maintenance.compact()
        if os.getppid() != parent:
            return


@contextmanager
def writers(uri: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.engines.versions", "--write", uri]
    running = [subprocess.Popen([*command, str(number)]) for number in range(WRITERS)]
    try:
        yield
        assert all(one.poll() is None for one in running), "a writer ended"
    finally:
        for one in running:
            one.kill()
            one.wait()


def later(table: Table, kind: Literal["iceberg", "delta"], shown: int) -> int:
    """Refresh the mirror until it shows a later version of the table, and return that."""
    found = shown

    def moves() -> bool:
        nonlocal found
        found = table.mirror(kind).version
        return found > shown

    wait_for("commit", moves)
    return found


def judged(engine: Engine, table: Table, want: pa.Table) -> tuple[str, str]:
    mirrored = Mirrored("", Path(table.uri), "")
    return verdict_of(lambda: difference(engine.read(mirrored, None), want))


def main(plan: str, folder: str) -> None:
    versions, names = PLANS[plan]
    readers = [engine for engine in engines() if engine.name in names]
    tell(version=version("pyarrow"))
    uri = str(Path(folder).absolute() / plan / "table")
    table = Table.create(uri, SCHEMA, key=["id", "part"], partition_by="part", buckets=2)
    with writers(uri):
        shown = dict.fromkeys(KINDS, table.version)
        for _ in range(versions):
            for kind in KINDS:
                shown[kind] = later(table, kind, shown[kind])
                want = table.scan(as_of=shown[kind]).to_arrow()
                for engine in (one for one in readers if kind in one.mirrors):
                    verdict, text = judged(engine, table, want)
                    told = f"{engine.name} at version {shown[kind]}"
                    tell(mirror=kind, shape=told, filtered=False, verdict=verdict, text=text or f"{want.num_rows} rows")
    found = set(table.scan().to_arrow()["text"].to_pylist())
    told = f"{sorted(found)} wrote {table.version} versions"
    tell(
        mirror="writers", shape="all", filtered=False, verdict="equal" if len(found) == WRITERS else "wrong", text=told
    )
    os._exit(0)  # the threads of some engines do not end


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
