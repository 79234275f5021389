"""Writers, overwriters and compactors as processes that are killed: `python -m tests.crash.overwrites`

    --seconds 60 --seed 1

Writers upsert keys of their own into the partitions, overwriters replace all rows of a partition or of the table, all
with tokens; each process is killed with SIGKILL now and then, at random moments, and started again. In the end every
commit, by the place that its acknowledgement says, is held against the table: the latest rows, and those as of each
commit, as we read them and as hudi-rs does.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import polars as pl
import pyarrow as pa

from crdt_mor import Commit, Table, WriterExpiredError
from tests import waiting

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64())])
PARTITIONS = ["x", "y", "z"]
EXPIRY = timedelta(seconds=3)
PROCESSES = [f"write{i}" for i in range(4)] + ["overwrite0", "overwrite1", "compact0", "maintain0"]
KILL_EVERY_S = 3.0
START_PATIENCE_S = 400.0


@dataclass(frozen=True)
class Done:
    """A commit as its writer knows it. covered: the partitions that an overwrite replaced; None: it was an upsert."""

    requested: str
    completed: str
    rows: tuple[tuple[str, str, int], ...]
    covered: tuple[str, ...] | None = None


def what(name: str, number: int) -> tuple[list[tuple[str, str, int]], list[str] | None]:
    """What a process writes in its commit of this number: the rows, and of an overwrite what it replaces."""
    chance = Random(f"{name} {number}")
    if name.startswith("write"):
        places = chance.sample(PARTITIONS, chance.randint(1, 3))
        return [(f"{name}-{chance.randint(0, 20)}", p, number) for p in places], None
    covered = PARTITIONS if chance.random() < 0.2 else chance.sample(PARTITIONS, chance.randint(1, 2))
    return [(f"{name}-{number}-{i}", p, number) for p in covered for i in range(chance.randint(0, 2))], covered


def commit(table: Table, name: str, number: int) -> Commit:
    """Make the commit of this number, or find that it was made."""
    rows, covered = what(name, number)
    frame = pl.DataFrame(rows, schema={"id": pl.String, "p": pl.String, "n": pl.Int64}, orient="row")
    token = (name, number)
    while True:
        try:
            if covered is None:
                return table.upsert(frame, token=token)
            return table.overwrite(frame, partitions=None if covered == PARTITIONS else covered, token=token)
        except WriterExpiredError:
            continue  # a busy machine held it up for longer than the short expiry here


def work(folder: Path, name: str) -> None:
    """One process, until it is killed."""
    table = Table.open(str(folder / "t"), writer_expiry=EXPIRY)
    log = folder / f"{name}.log"
    if name.startswith("compact"):
        while True:
            table.maintenance.compact(log_files_min=2)
            log.open("a").write("compacted\n")
    if name.startswith("maintain"):
        while True:
            table.maintenance.maintain()
            log.open("a").write("maintained\n")
    number = len(log.read_text().splitlines()) if log.exists() else 0
    with log.open("a") as acknowledged:
        while True:
            done = commit(table, name, number)
            acknowledged.write(json.dumps([done.requested_at, done.completed_at]) + "\n")
            acknowledged.flush()
            number += 1


def done_by(folder: Path, table: Table, name: str) -> Iterator[Done]:
    """The commits of a process; what it had under way when it was killed is made now, or found."""
    lines = (folder / f"{name}.log").read_text().splitlines()
    times = [json.loads(line) for line in lines if line.endswith("]")]
    last = commit(table, name, len(times))
    for number, (requested, completed) in enumerate([*times, (last.requested_at, last.completed_at)]):
        rows, covered = what(name, number)
        yield Done(requested, completed, tuple(rows), None if covered is None else tuple(covered))


def meant(commits: Sequence[Done]) -> list[tuple[str, str, int]]:
    """The rows that these commits mean: in the order of their requests, each key's last one."""
    rows: dict[tuple[str, str], int] = {}
    for done in sorted(commits, key=lambda d: d.requested):
        for key in [key for key in rows if key[1] in (done.covered or ())]:
            del rows[key]
        rows |= {(key, p): n for key, p, n in done.rows}
    return sorted((key, p, n) for (key, p), n in rows.items())


def hudi_rs(path: Path) -> list[tuple[object, ...]]:
    from hudi import HudiTableBuilder

    batches = [pa.record_batch(batch) for batch in HudiTableBuilder.from_base_uri(str(path)).build().read()]
    return sorted(tuple(row[name] for name in ("id", "p", "n")) for batch in batches for row in batch.to_pylist())


def run(folder: Path, seconds: float, seed: int, processes: Sequence[str] = PROCESSES) -> str:
    """Let them run for so long, and check. Raises `AssertionError` with what is wrong."""
    chance = Random(seed)
    Table.create(str(folder / "t"), SCHEMA, key="id", partition_by="p", buckets=2, writer_expiry=EXPIRY)
    command = [sys.executable, "-m", "tests.crash.overwrites", "--work", str(folder)]
    workers = {name: subprocess.Popen([*command, name]) for name in processes}
    kills = 0
    try:
        waiting.wait_for(
            "work of each", lambda: all((folder / f"{name}.log").exists() for name in processes), START_PATIENCE_S
        )
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            waiting.let_run(chance.random() * 2 * KILL_EVERY_S)
            name = chance.choice(list(processes))
            assert workers[name].poll() is None, f"{name} has ended by itself"
            workers[name].send_signal(signal.SIGKILL)
            workers[name].wait()
            kills += 1
            workers[name] = subprocess.Popen([*command, name])
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    table = Table.open(str(folder / "t"), writer_expiry=EXPIRY)
    writers = [name for name in processes if name.startswith(("write", "overwrite"))]
    done = [d for name in writers for d in done_by(folder, table, name)]
    latest = meant(done)
    assert sorted(table.to_polars().rows()) == latest
    assert hudi_rs(folder / "t") == latest
    for one in done:
        seen = [d for d in done if d.completed <= one.completed]
        assert sorted(table.to_polars(as_of=one.completed).rows()) == meant(seen), f"as of {one.completed}"
    table.maintenance.compact()
    assert sorted(table.to_polars().rows()) == latest == hudi_rs(folder / "t")
    overwrites = sum(d.covered is not None for d in done)
    kinds = Counter(name.rstrip("0123456789") for name in processes)
    return f"{len(done)} commits, {overwrites} of them overwrites, {kills} kills of {dict(kinds)}: 0 wrong, 0 lost."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=2, metavar=("FOLDER", "NAME"))
    given = parser.parse_args()
    if given.work:
        work(Path(given.work[0]), given.work[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(run(Path(folder), given.seconds, given.seed) + "\n")


if __name__ == "__main__":
    main()
