"""Tables of counters, in which a row that counted twice would show, and drivers that write to them and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.payloads import Counter
from tests.spark.sessions import ROOT

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def counters(path: Path) -> Table:
    """Where a row that counted twice would show."""
    return Table.create(path, SCHEMA, key="id", merge={"n": Counter()})


def ones(spark: Any, rows: int = 100) -> Any:
    return spark.range(rows, numPartitions=3).selectExpr("id % 20 as id", "1L as n")


def total(table: Table) -> int:
    return int(table.scan(columns=["n"]).to_polars()["n"].sum())


def feed(home: Path, number: int, rows: int = 10) -> None:
    """One more file of increments, whole or not there."""
    folder = home / "in"
    folder.mkdir(parents=True, exist_ok=True)
    draft = home / f"draft-{number}"
    draft.write_text("".join(json.dumps({"id": (number + i) % 7, "n": 1}) + "\n" for i in range(rows)))
    draft.rename(folder / f"{number:06d}.json")


def driver(
    home: Path, path: str, *queries: str, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A driver of these streaming queries."""
    options = ["--table", path, "--home", str(home), "--queries", ",".join(queries), *options]
    return program("tests.spark.pipeline", home / f"{'-'.join(queries)}.log", options, environment)


def program(
    module: str, log: Path, options: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A module in a process of its own."""
    return started([sys.executable, "-W", "ignore", "-m", module, *options], log, environment or {})


def started(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process in a group of its own: killing the group kills all that belongs to it."""
    known = os.environ | environment
    with log.open("a") as told:
        return subprocess.Popen(
            command, cwd=ROOT, env=known, stdout=told, stderr=told, start_new_session=True, text=True
        )


def kill(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """The driver's Python and its JVM, as a machine that loses power takes both."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
