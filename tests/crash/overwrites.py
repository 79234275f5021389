"""Writers, overwriters and who restores the table, as processes that are killed: `python -m tests.crash.overwrites`

    --minutes 2 --seed 1

Writers upsert keys of their own into the partitions, overwriters replace all rows of a partition or of the table, all
with tokens. Another makes savepoints, and restores the table to them later. Beside them somebody compacts, and somebody
does upkeep, which cleans and archives. Each process is killed with SIGKILL now and then, at random moments, and started
again.

In the end every acknowledged commit, by the place that its acknowledgement says, is held against the table: its rows
are there, or overwritten by a later overwrite, or dropped by a restore whose plan names it. The latest rows, and those
as of each commit whose view is kept, as we read them and the latest ones as hudi-rs does. When all is swept, no file
lies about that nothing names.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, Opening, SnapshotExpiredError, Table
from crdt_mor.errors import TokenOrderError, WriterExpiredError
from crdt_mor.events import sweep
from crdt_mor.log.tail import expire_versions
from crdt_mor.model.restore import Restore
from crdt_mor.planners.restore import RestorePlan
from tests.crash.killing import hudi_rs, kill_some
from tests.crash.services import check_orphans
from tests.inside import run_sweep, session_of, store_of, tail_of

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64())])
PARTITIONS = ["x", "y", "z"]
EXPIRY = timedelta(seconds=3)
PROCESSES = [f"write{i}" for i in range(4)] + ["overwrite0", "overwrite1", "compact0", "maintain0", "restore0"]
FEWER = ["write0", "write1", "overwrite0", "compact0", "restore0"]
POLICIES = {"crdt_mor.retention": "15s", "crdt_mor.readers": "5s", "crdt_mor.archive.commits": "10"}
RESTORE_AFTER_S = 2.0


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


def commit(table: Table, name: str, number: int) -> Commit | None:
    """Make the commit of this number, or find that it was made.

    None: a restore has dropped it before it was acknowledged, and history is not kept from long enough ago to tell with
    what number those end that are there.
    """
    rows, covered = what(name, number)
    frame = pl.DataFrame(rows, schema={"id": pl.String, "p": pl.String, "n": pl.Int64}, orient="row")
    token = (name, number)
    while True:
        try:
            if covered is None:
                return table.upsert(frame, token=token)
            return table.overwrite(frame, partitions=None if covered == PARTITIONS else covered, token=token)
        except WriterExpiredError:
            continue  # of a restore, or since a busy machine held it up for longer than the short expiry here
        except TokenOrderError:
            return None


def work(folder: Path, name: str) -> None:
    """One process, until it is killed."""
    table = Table(str(folder / "t"), opening=Opening(writer_expiry=EXPIRY))
    log = folder / f"{name}.log"
    if name.startswith("compact"):
        while True:
            table.maintenance.compact(log_files_min=2)
            log.open("a").write("compacted\n")
    if name.startswith("maintain"):
        while True:
            table.maintenance.maintain()
            log.open("a").write("maintained\n")
    if name.startswith("restore"):
        restore(table, log, Random(f"{name} {log.read_text() if log.exists() else ''}"))
    number = len(log.read_text().splitlines()) if log.exists() else 0
    with log.open("a") as acknowledged:
        while True:
            done = commit(table, name, number)
            acknowledged.write(json.dumps(done and [done.requested_at, done.completed_at]) + "\n")
            acknowledged.flush()
            number += 1


def restore(table: Table, log: Path, chance: Random) -> None:
    """Make savepoints, and go back to each after a while, or let it go. What a dead one has left is gone back to."""
    while True:
        for saved in reversed(table.maintenance.savepoints()):
            table.environment.sleep(RESTORE_AFTER_S * 2 * chance.random())
            if chance.random() < 0.8:
                done = table.maintenance.restore(saved.name)
                log.open("a").write(json.dumps([saved.name, done.to, done.instants]) + "\n")
            table.maintenance.drop_savepoint(saved.name)
        table.maintenance.savepoint(f"s{table.environment.nonce()}")


def done_by(folder: Path, table: Table, name: str) -> Iterator[Done]:
    """The commits of a process; what it had under way when it was killed is made now, or found."""
    lines = (folder / f"{name}.log").read_text().splitlines()
    times = [json.loads(line) for line in lines if line.endswith(("]", "null"))]
    last = commit(table, name, len(times))
    for number, found in enumerate([*times, last and (last.requested_at, last.completed_at)]):
        if found is not None:
            requested, completed = found
            rows, covered = what(name, number)
            yield Done(requested, completed, tuple(rows), None if covered is None else tuple(covered))


@dataclass(frozen=True)
class Restored:
    """A restore that the table has had, and the requested times of what its plan says that it drops."""

    restore: Restore
    instants: frozenset[str]

    def drops(self, done: Done) -> bool:
        """Whether a commit is one that completed between; then the plan names it, and nothing else."""
        between = self.restore.to < done.completed < self.restore.at
        assert between == (done.requested in self.instants), f"{done} of {self.restore}"
        return between


def restores_of(folder: Path, table: Table, names: Sequence[str]) -> list[Restored]:
    """The restores of the table; each one that was acknowledged is one of them, or had nothing to drop."""
    found = []
    for restore in tail_of(table).restores:
        data = store_of(table).read(restore.path)
        assert data is not None
        plan = RestorePlan.decode(data, restore.path)
        found.append(Restored(restore, frozenset(dropped.requested for dropped in plan.dropped)))
    for name in names:
        for line in (folder / f"{name}.log").read_text().splitlines():
            _, to, instants = json.loads(line)
            same = [r for r in found if r.restore.to == to and r.instants == {*instants}]
            assert same or not instants, f"a restore to {to} was lost"
    return found


def meant(commits: Sequence[Done]) -> list[tuple[str, str, int]]:
    """The rows that these commits mean: in the order of their requests, each key's last one."""
    rows: dict[tuple[str, str], int] = {}
    for done in sorted(commits, key=lambda d: d.requested):
        for key in [key for key in rows if key[1] in (done.covered or ())]:
            del rows[key]
        rows |= {(key, p): n for key, p, n in done.rows}
    return sorted((key, p, n) for (key, p), n in rows.items())


def run(folder: Path, seconds: float, seed: int, processes: Sequence[str] = PROCESSES) -> str:
    """Let them run for so long, and check. Raises `AssertionError` with what is wrong."""
    table = Table.create(
        str(folder / "t"), SCHEMA, key="id", partition_by="p", buckets=2, opening=Opening(writer_expiry=EXPIRY)
    )
    table.set_properties(POLICIES)
    kills = kill_some("tests.crash.overwrites", folder, processes, seconds, seed)
    return f"{checked(folder, processes)}, {kills} kills of {kinds_of(processes)}: 0 wrong, 0 lost, no orphan."


def kinds_of(processes: Sequence[str]) -> dict[str, int]:
    return dict(Counter(name.rstrip("0123456789") for name in processes))


def checked(folder: Path, processes: Sequence[str]) -> str:
    """Hold what everybody was told against the table; everybody is dead."""
    table = Table(str(folder / "t"), opening=Opening(writer_expiry=EXPIRY))
    restores = restores_of(folder, table, [name for name in processes if name.startswith("restore")])
    writers = [name for name in processes if name.startswith(("write", "overwrite"))]
    done = [d for name in writers for d in done_by(folder, table, name)]
    dropped = [d for d in done if sum(restored.drops(d) for restored in restores)]  # each is asked
    kept = [d for d in done if d not in dropped]
    latest = meant(kept)
    assert sorted(table.to_polars().rows()) == latest
    assert hudi_rs(folder / "t") == latest
    views = 0
    for one in kept:
        if one.completed < tail_of(table).retention.since:
            with pytest.raises(SnapshotExpiredError):
                table.scan(as_of=one.completed)
            continue
        seen = [d for d in kept if d.completed <= one.completed]
        assert sorted(table.scan(as_of=one.completed).to_polars().rows()) == meant(seen), f"as of {one.completed}"
        views += 1
    for one in dropped:
        with pytest.raises(SnapshotExpiredError):
            table.scan(as_of=one.completed)
    at_rest(folder / "t", table)
    assert sorted(table.to_polars().rows()) == latest == hudi_rs(folder / "t")
    overwrites = sum(d.covered is not None for d in done)
    count = sum(bool(restored.instants) for restored in restores)
    return (
        f"{len(done)} commits, {overwrites} of them overwrites, {len(dropped)} dropped by {count} restores, "
        f"{views} views of kept commits"
    )


def at_rest(path: Path, table: Table) -> None:
    """Who comes next gives up the dead and tidies up; nothing is left that nothing names."""
    session = session_of(table)
    session.run(sweep.upkeep(session.publisher, session.tail(), expiry_ms=0))
    for saved in table.maintenance.savepoints():
        table.maintenance.drop_savepoint(saved.name)
    table.maintenance.compact()
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    for _ in range(2):  # the first sweep deletes, the second sees that nothing is left
        session.run(expire_versions(session.tail()))
        run_sweep(table)
    table.maintenance.archive()
    tail = session.tail()
    assert not [*tail.pending, *tail.plans, *tail.rolled_back, *tail.overwrites]
    check_orphans(table, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=2, metavar=("FOLDER", "NAME"))
    given = parser.parse_args()
    if given.work:
        work(Path(given.work[0]), given.work[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(run(Path(folder), given.minutes * 60, given.seed) + "\n")


if __name__ == "__main__":
    main()
