"""Writers to a bucket as processes that are killed, behind a connection that fails: `python -m tests.crash.buckets`

    --minutes 5 --seed 1 --store s3

Eight processes make 50 commits each, all of them to the same file groups, and another one compacts. Between them and
the store stands a proxy that lets a request in twenty fail: replies are dropped after the store has done what it was
asked, connections break, bodies are cut off, the store is said to be busy. After every few commits one of the
processes is killed with SIGKILL, at a random moment, and started again; it then repeats the commit whose outcome it
does not know, under the same token.

In the end each commit counts once, in each of its rows: those of its own, and those to which everybody adds. Once the
table is compacted, cleaned and swept, no object of rows is left that nothing names, and hudi-rs reads the same rows.
Then another round begins with the next seed, until the minutes are over.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import polars as pl
import pyarrow as pa

from crdt_mor import Opening, StorageUnavailableError, Table, payloads
from crdt_mor.errors import CommitUnknownError, WriterExpiredError
from crdt_mor.events import sweep
from tests import servers, waiting
from tests.crash.scene import check_moments
from tests.crash.worker import Log, read_log
from tests.inside import run_sweep, session_of
from tests.proxy import Hurried, Proxy

T = TypeVar("T")

COLUMNS: Final = {"id": pl.String, "n": pl.Int64}
BUCKETS: Final = 2
EXPIRY: Final = timedelta(seconds=30)
SHARE: Final = 0.05
PATIENCE_S: Final = 600.0
LATER_S: Final = 0.3
"""How long after an acknowledgement a process is killed at most: a commit may take as long."""
COMPACT: Final = "compact"


def rows(name: str, number: int) -> pl.DataFrame:
    """A key of its own in each file group, for neighbouring texts have neighbouring hashes; and one of all in each."""
    keys = [f"{batch}.{i}" for batch in (f"{name}.{number}", "all") for i in range(BUCKETS)]
    return pl.DataFrame({"id": keys, "n": [1] * len(keys)}, COLUMNS)


# --- a process --------------------------------------------------------------------------------------------------------


def work(uri: str, log_path: Path, name: str, commits: int) -> None:
    """One process, until it has made its commits; who compacts does so until it is killed."""
    done = sum(line[0] == "ack" for line in read_log(log_path))
    log = Log(log_path)
    table = insisting(log, lambda: Table(uri, opening=Opening(writer_expiry=EXPIRY, environment=Hurried())))
    while name == COMPACT:
        log.say("compacted", len(insisting(log, table.maintenance.compact)))
    for number in range(done + 1, commits + 1):
        log.say("try", number)
        commit = insisting(log, lambda number=number: table.upsert(rows(name, number), token=(name, number)))  # type: ignore[misc]
        log.say("ack", number, commit.requested_at, commit.completed_at, commit.repeated)


def insisting(log: Log, call: Callable[[], T]) -> T:
    """What a program does that has to get through: it tries again, whatever the store did or did not say."""
    while True:
        try:
            return call()
        except (StorageUnavailableError, CommitUnknownError, WriterExpiredError) as error:
            log.say("again", type(error).__name__)


# --- all of them ------------------------------------------------------------------------------------------------------


@dataclass
class Crew:
    """The processes at a table. options: with which they reach it."""

    uri: str
    folder: Path
    commits: int
    options: dict[str, str]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def log(self, name: str) -> list[list[str]]:
        return read_log(self.folder / f"{name}.log")

    def start(self, name: str) -> None:
        """A new process, started from scratch, with the keys of the store in its environment."""
        command = [sys.executable, "-m", "tests.crash.buckets", "--work", self.uri, name, str(self.commits)]
        variables = {option.upper(): value for option, value in self.options.items()}
        environment = os.environ | {"POLARS_MAX_THREADS": "1", "PYTHONPATH": str(servers.ROOT)} | variables
        self.seen[name] = len(self.log(name))
        log = str(self.folder / f"{name}.log")
        self.workers[name] = subprocess.Popen([*command, log], cwd=servers.ROOT, env=environment)

    def kill(self, name: str) -> None:
        self.workers[name].kill()
        self.workers[name].wait()

    def writing(self) -> list[str]:
        """The writers that have not made all their commits; each that has ended has made them."""
        for name, worker in self.workers.items():
            assert worker.poll() in (None, 0), f"{name} failed"
        return [name for name, worker in self.workers.items() if name != COMPACT and worker.poll() is None]

    def acknowledged(self) -> int:
        """Commits of all of them that have been acknowledged."""
        return sum(words[0] == "ack" for name in self.workers for words in self.log(name))

    def wait_for(self, commits: int) -> None:
        """Until so many commits have been acknowledged, or all of them."""

        def enough() -> bool:
            return self.acknowledged() >= commits or not self.writing()

        waiting.wait_for("commits", enough, PATIENCE_S, every_s=0.05)

    def begun(self) -> list[str]:
        """Who has done something since it was started, so that to kill it now stops nobody for ever."""
        return [name for name in [*self.writing(), COMPACT] if len(self.log(name)) > self.seen[name]]


def run(folder: Path, server: servers.Server, seed: int, processes: int = 8, commits: int = 50) -> str:
    """One round. Raises `AssertionError` with what is wrong."""
    chance, kills = Random(seed), 0
    uri = server.address(f"crew-{seed}")
    table = Table.create(uri, COLUMNS, key="id", merge={"n": payloads.Counter()}, buckets=BUCKETS,
                         opening=Opening(writer_expiry=EXPIRY), storage_options=server.options)  # fmt: skip
    names = [f"w{number}" for number in range(processes)]
    with Proxy(server.port, seed=seed, share=SHARE).running() as proxy:
        crew = Crew(uri, folder, commits, dict(server.through(proxy.port).options))
        try:
            for name in [*names, COMPACT]:
                crew.start(name)
            while crew.writing():
                enough = crew.acknowledged() + chance.randint(1, 2 * processes)
                crew.wait_for(enough)
                waiting.let_run(chance.random() * LATER_S)
                if begun := crew.begun():
                    victim = chance.choice(begun)
                    crew.kill(victim)
                    kills += 1
                    crew.start(victim)
        finally:
            for name in crew.workers:
                crew.kill(name)
        fates = Counter(fate for _, _, fate in proxy.requests if fate)
    check_counts(table, crew, names)
    check_at_rest(table, server)
    check_counts(table, crew, names)
    said = Counter(words[0] for name in names for words in crew.log(name))
    repeated = sum(words[-1] == "True" for name in names for words in crew.log(name) if words[0] == "ack")
    return (
        f"seed {seed}: {said['ack']} commits of {processes} processes, {kills} kills, {sum(fates.values())} of "
        f"{len(proxy.requests)} requests failed, {fates['lost reply'] + fates['wrong answer']} of them after the store "
        f"had done them; {said['again']} calls made again, {repeated} found done: 0 lost, 0 twice, no orphan."
    )


# --- what must hold ---------------------------------------------------------------------------------------------------


def check_counts(table: Table, crew: Crew, names: Sequence[str]) -> None:
    """Every commit was acknowledged, and counts once in each of its rows."""
    acknowledged = [(name, *words[1:4]) for name in names for words in crew.log(name) if words[0] == "ack"]
    assert sorted((name, int(number)) for name, number, _, _ in acknowledged) == [
        (name, number) for name in sorted(names) for number in range(1, crew.commits + 1)
    ]
    check_moments([("ack", *rest) for _, *rest in acknowledged])
    found = dict(table.to_polars().rows())
    shared = {key: found.pop(key) for key in list(found) if key.startswith("all.")}
    own = {f"{name}.{number}.{i}": 1 for name, number, _, _ in acknowledged for i in range(BUCKETS)}
    assert not own.keys() - found.keys(), "an acknowledged commit is lost"
    assert found == own, "a commit counts twice, or is there though nobody made it"
    assert shared == {f"all.{i}": len(acknowledged) for i in range(BUCKETS)}


def check_at_rest(table: Table, server: servers.Server) -> None:
    """Who comes next gives up the dead and tidies up: every object of rows is one of the table, for hudi-rs as well."""
    session = session_of(table)
    session.run(sweep.upkeep(session.publisher, session.tail(), expiry_ms=0))
    while set(table.inspect.files()["kind"].to_pylist()) != {"base"}:
        assert table.maintenance.compact()
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    for _ in range(2):  # the first sweep deletes, the second sees that nothing is left
        run_sweep(table)
    tail = session.tail()
    assert not [*tail.pending, *tail.plans, *tail.rolled_back]
    there = {stat.path for stat in session.store.walk("") if ".hoodie_partition_metadata" not in stat.path}
    assert there == set(table.inspect.files()["path"].to_pylist()), "an object of rows that nothing names"
    assert hudi_rs(table.uri, server) == sorted(table.to_polars().rows())


def hudi_rs(uri: str, server: servers.Server) -> list[tuple[object, ...]]:
    """The rows as Hudi's own reader finds them."""
    import hudi

    built = hudi.HudiTableBuilder.from_base_uri(uri).with_options(dict(server.options)).build()
    batches = [pa.record_batch(batch) for batch in built.read(hudi.HudiReadOptions())]
    return sorted((row["id"], row["n"]) for batch in batches for row in batch.to_pylist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=sorted(servers.SERVERS), default="s3")
    parser.add_argument("--work", nargs=4, metavar=("URI", "NAME", "COMMITS", "LOG"))
    given = parser.parse_args()
    if given.work:
        uri, name, commits, log = given.work
        work(uri, Path(log), name, int(commits))
        return
    until, seed = time.monotonic() + given.minutes * 60, given.seed
    while True:
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(run(Path(folder), servers.SERVERS[given.store](), seed) + "\n")
            sys.stdout.flush()
        seed += 1
        if time.monotonic() > until:
            return


if __name__ == "__main__":
    main()
