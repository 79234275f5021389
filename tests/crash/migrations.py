"""Writers, a compactor and a table that moves on, as processes that are killed: `python -m tests.crash.migrations`

    --seconds 60 --seed 1

The table counts. Each commit adds one to keys that all share, and one to a key of its own, with a token; so a commit
that is lost shows, and one that counts twice. Writers follow `TableMovedError` to the new address. Each process is
killed with SIGKILL now and then, at random moments, and started again; the one that migrates goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa

from crdt_mor import Commit, Opening, Table
from crdt_mor.errors import TableArrivingError, TableMovedError, WriterExpiredError
from crdt_mor.payloads import Counter
from tests import waiting
from tests.crash.killing import hudi_rs, kill_some

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64())])
SHARED = 5
EXPIRY = timedelta(seconds=3)
PROCESSES = [f"write{i}" for i in range(4)] + ["compact0", "migrate0"]


def rows(name: str, number: int) -> list[tuple[str, str, int]]:
    """What a commit adds."""
    return [(f"shared-{i}", "p", 1) for i in range(SHARED)] + [(f"{name}-{number}", f"p{number % 3}", 1)]


def opened(address: str | Path) -> Table:
    return Table(str(address), opening=Opening(writer_expiry=EXPIRY))


def commit(table: Table, name: str, number: int) -> tuple[Commit, Table]:
    """Make the commit of this number, or find that it was made, wherever the table is; the table to go on with."""
    frame = pl.DataFrame(rows(name, number), schema={"id": pl.String, "p": pl.String, "n": pl.Int64}, orient="row")
    while True:
        try:
            return table.upsert(frame, token=(name, number + 1)), table
        except TableMovedError as moved:
            table = opened(moved.uri)
        except TableArrivingError:
            waiting.let_run(0.02)
        except WriterExpiredError:
            continue  # a busy machine held it up for longer than the short expiry here


def migrate(folder: Path, log: Path) -> None:
    """Move the table on and on: to more buckets, to partitions and back."""
    while True:
        moves = len(log.read_text().splitlines()) if log.exists() else 0
        table = opened(folder / f"t{moves}")
        partitions = ("p",) if moves % 2 == 0 else ()
        done = table.maintenance.migrate(folder / f"t{moves + 1}", buckets=moves % 4 + 1, partition_by=partitions)
        with log.open("a") as lines:
            lines.write(f"moved in {done.turned_away}\n")


def work(folder: Path, name: str) -> None:
    """One process, until it is killed."""
    log = folder / f"{name}.log"
    table = opened(folder / "t0")
    if name.startswith("migrate"):
        migrate(folder, log)
    while name.startswith("compact"):
        try:
            table.maintenance.compact(log_files_min=2)
            log.open("a").write("compacted\n")
        except TableMovedError as moved:
            table = opened(moved.uri)
    number = len(log.read_text().splitlines()) if log.exists() else 0
    with log.open("a") as acknowledged:
        while True:
            done, table = commit(table, name, number)
            acknowledged.write(f"{done.requested_at}\n")
            acknowledged.flush()
            number += 1


def run(folder: Path, seconds: float, seed: int, processes: Sequence[str] = PROCESSES) -> str:
    """Let them run for so long, and check. Raises `AssertionError` with what is wrong."""
    Table.create(
        folder / "t0", SCHEMA, key="id", buckets=2, merge={"n": Counter()}, opening=Opening(writer_expiry=EXPIRY)
    )
    kills = kill_some("tests.crash.migrations", folder, processes, seconds, seed)
    moves = len((folder / "migrate0.log").read_text().splitlines())
    table = opened(folder / f"t{moves}")
    partitions = ("p",) if moves % 2 == 0 else ()
    table.maintenance.migrate(folder / f"t{moves + 1}", buckets=moves % 4 + 1, partition_by=partitions)
    commits = 0
    meant: list[tuple[str, str, int]] = []
    for name in processes:
        if name.startswith("write"):
            acknowledged = len((folder / f"{name}.log").read_text().split("\n")) - 1
            _, table = commit(table, name, acknowledged)  # what it had under way is made now, or found
            meant += [rows(name, number)[-1] for number in range(acknowledged + 1)]
            commits += acknowledged + 1
    meant += [(key, p, commits) for key, p, _ in rows("", 0)[:-1]]
    assert sorted(table.to_polars().rows()) == sorted(meant)
    table.maintenance.compact()
    assert sorted(table.to_polars().rows()) == sorted(meant) == hudi_rs(folder / f"t{moves + 1}")
    return f"{commits} commits of 4 writers, {moves + 1} migrations, {kills} kills: 0 lost, 0 twice."


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
