"""pgbench changes a table of PostgreSQL, and four consumers that are killed all the time replicate it.

    python -m tests.cdc.check_postgres --minutes 5

Meanwhile columns are added, renamed, widened and dropped, and the table is truncated. Updates leave a large text
unchanged, move keys and are rolled back in part. At three moments, and at the end, the load stops: the table at the
commit that holds all transactions up to there equals the database cell by cell. And no row comes twice in `changes`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

import crdt_mor as mor
from tests.cdc import postgres
from tests.waiting import wait_for

CONSUMERS: Final = 4
SOURCE: Final = "public.pgbench_accounts"
SLOT: Final = "checked"
TEXT: Final = "(select string_agg(md5(random()::text), '') from generate_series(1, 90))"
"""More than PostgreSQL keeps inside a row."""

PREPARE: Final = (
    "alter table pgbench_accounts add seq bigint default 0, add note text, add price numeric(6,2) default 1.50",
    "alter table pgbench_accounts alter note set storage external",
    "create sequence changes",
    """create function counted() returns trigger language plpgsql as
        $$ begin new.seq = nextval('changes'); return new; end $$""",
    "create trigger counted before insert or update on pgbench_accounts for each row execute function counted()",
    f"update pgbench_accounts set note = {TEXT} where aid % 50 = 0",
)
CHORES: Final = (  # beside pgbench
    f"update pgbench_accounts set {{note}} = {TEXT} where aid = {{key}}",
    "update pgbench_accounts set price = price + 0.01 where aid between {key} and {key} + 20",
    "update pgbench_accounts set aid = aid + 1000000 where aid between {key} and {key} + 2",
    "delete from pgbench_accounts where aid between {key} and {key} + 5",
    f"""insert into pgbench_accounts (aid, bid, abalance, {{note}}) select n, 1, 0, {TEXT}
        from generate_series({{key}} + 2000000, {{key}} + 2000004) n on conflict do nothing""",
    """begin; delete from pgbench_accounts where aid = {key}; savepoint a; delete from pgbench_accounts
        where aid < {key} and aid > {key} - 20; rollback to a;
        update pgbench_accounts set bid = 1 where aid = {key} + 1; commit""",
)
DDL: Final = (  # in this order, two in each part of the load
    "alter table pgbench_accounts add extra integer default 7",
    "alter table pgbench_accounts rename note to memo",
    """alter table pgbench_accounts alter price type numeric(12,2);
        update pgbench_accounts set price = 123456.78 where aid % 1000 = 0""",
    """begin; truncate pgbench_accounts; insert into pgbench_accounts (aid, bid, abalance) select n, 1, 0
        from generate_series(1, {accounts}) n; commit""",
    """alter table pgbench_accounts alter abalance type bigint;
        update pgbench_accounts set abalance = 5000000000 where aid % 1000 = 1""",
    "alter table pgbench_accounts rename filler to padding",
    "alter table pgbench_accounts drop extra",
    "alter table pgbench_accounts add extra text default 'new'",
)


@dataclass(frozen=True)
class Moment:
    """The database when the load had stopped. version: of our table, with exactly these rows."""

    version: int
    names: Sequence[str]
    rows: Sequence[tuple[Any, ...]]


class Consumers:
    """Processes of which one is killed and started anew again and again."""

    def __init__(self, dsn: str, uri: str, log: Path, seed: int) -> None:
        self._command = [
            sys.executable, "-m", "crdt_mor", "cdc", "postgres", dsn, uri, "--table", SOURCE, "--slot", SLOT,
        ]  # fmt: skip
        self.log = log
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.kills = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._failed: list[int] = []

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._processes = [self._start() for _ in range(CONSUMERS)]
        killer = threading.Thread(target=self._kill)
        killer.start()
        try:
            yield
        finally:
            self._over.set()
            killer.join()
            for process in self._processes:
                process.kill()
                process.wait()

    def _kill(self) -> None:
        while self._has_committed() and not self._over.wait(self._random.uniform(0, 5)):
            place = self._random.randrange(CONSUMERS)
            process = self._processes[place]
            if process.poll() is not None:
                self._failed.append(process.returncode)
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.kills += 1
            self._processes[place] = self._start()

    def _has_committed(self) -> bool:
        """Wait for a commit since the last kill, or a while: starts are slow on a busy machine. False: all is over."""
        before = self.log.stat().st_size
        for _ in range(60):
            if self.log.stat().st_size > before or self._over.wait(0.25):
                break
        return not self._over.is_set()

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for it as long as no consumer fails."""

        def holds() -> bool:
            self.require_alive()
            return condition()

        wait_for(what, holds, patience_s=600, every_s=0.2)

    def require_alive(self) -> None:
        assert not self._failed, f"consumers ended by themselves, see {self.log}:\n{self.log.read_text()[-3000:]}"


class Load:
    """pgbench and the chores beside it."""

    def __init__(self, server: postgres.Cluster, rate: int, accounts: int, seed: int) -> None:
        self._server, self._rate, self._accounts = server, rate, accounts
        self._random = random.Random(seed)
        self._note = "note"

    def prepare(self) -> None:
        self._server.program("pgbench", "-i", "-q", "-s", str(max(1, self._accounts // 100_000)))
        with self._server.connected() as cursor:
            cursor.execute(f"delete from pgbench_accounts where aid > {self._accounts}")
            for statement in PREPARE:
                cursor.execute(statement)

    def run(self, seconds: float, ddl: Sequence[str]) -> None:
        """Change the table for a while, with these changes of its columns on the way."""
        pgbench = self._server.start(
            "pgbench", "-n", "-c", "4", "-R", str(self._rate), "-T", str(max(1, round(seconds))),
            "-D", f"scale={max(1, self._accounts // 100_000)}",
        )  # fmt: skip
        begun, done = time.monotonic(), 0
        with self._server.connected() as cursor:
            while pgbench.poll() is None:
                if done < len(ddl) and time.monotonic() - begun > seconds * (done + 0.5) / len(ddl):
                    self._alter(cursor, ddl[done])
                    done += 1
                chore = self._random.choice(CHORES)
                cursor.execute(chore.format(note=self._note, key=self._random.randrange(1, self._accounts)))
                cursor.execute("select pg_sleep(0.02)")
            assert pgbench.returncode == 0, "pgbench failed"
            for statement in ddl[done:]:
                self._alter(cursor, statement)

    def _alter(self, cursor: Any, statement: str) -> None:
        cursor.execute(statement.format(accounts=self._accounts))
        self._note = "memo" if "rename note" in statement else self._note

    def moment(self, table: Callable[[], mor.Table], consumers: Consumers) -> Moment:
        """Wait until our table holds all transactions; return the rows of both."""
        with self._server.connected() as cursor:
            cursor.execute("update pgbench_accounts set bid = bid where aid = (select min(aid) from pgbench_accounts)")
            consumers.wait_for("commit of the newest change", lambda: is_at(table(), cursor))
            cursor.execute("select * from pgbench_accounts")
            names = [column.name for column in cursor.description]
            return Moment(table().version, names, cursor.fetchall())


def is_at(table: mor.Table, cursor: Any) -> bool:
    """Return True if the table holds the newest transaction: its last change has the last number of all."""
    cursor.execute("select max(seq) from pgbench_accounts")
    [newest] = cursor.fetchone()
    return bool(table.scan(columns="seq", filter=f"seq = {newest}").count())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rate", type=int, default=300, help="transactions of pgbench a second")
    parser.add_argument("--accounts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the server ends, too
    if (lack := postgres.missing()) is not None:
        raise SystemExit(lack)
    with tempfile.TemporaryDirectory() as folder:
        say(check(Path(folder), given.minutes * 60, given.rate, given.accounts, given.seed))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def check(folder: Path, seconds: float, rate: int, accounts: int, seed: int) -> str:
    """Run the load and compare; return a line about the run."""
    uri = os.fspath(folder / "accounts")

    def table() -> mor.Table:
        return mor.Table(uri)

    with postgres.cluster() as server:
        load = Load(server, rate, accounts, seed)
        load.prepare()
        consumers = Consumers(server.dsn, uri, folder / "log", seed)
        moments = []
        with consumers.running():
            consumers.wait_for("snapshot", lambda: exists(uri))
            for part in range(4):
                load.run(seconds / 4, DDL[part * 2 : part * 2 + 2])
                moments.append(load.moment(table, consumers))
                consumers.require_alive()
                say(f"moment {part + 1} of 4: {len(moments[-1].rows):,} rows, {consumers.kills} kills")
    found = [compare(table(), moment) for moment in moments]
    snapshots = [line for line in consumers.log.read_text().splitlines() if line.startswith("snapshot")]
    assert len(snapshots) == 1, snapshots
    changes = require_once(table())
    return (
        f"seed {seed}: {consumers.kills} kills, {changes:,} changes in {len(table().history()):,} commits; "
        f"{sum(found):,} cells at {len(moments)} moments are equal"
    )


def exists(uri: str) -> bool:
    try:
        return bool(mor.Table(uri).scan().count())
    except mor.errors.TableNotFoundError:
        return False


def compare(table: mor.Table, moment: Moment) -> int:
    """Compare all cells at a moment, under the names of then; return their number."""
    scan = table.scan(as_of=moment.version, names="then").to_arrow()
    have = sorted(zip(*(scan[name].to_pylist() for name in moment.names), strict=True))
    want = sorted(moment.rows)
    wrong = [(here, there) for here, there in zip(have, want, strict=False) if here != there]
    assert len(have) == len(want), f"{len(have)} rows for {len(want)}; {moment.version=}"
    assert not wrong, f"{len(wrong)} rows differ at version {moment.version}; ours and theirs: {wrong[:3]}"
    return len(want) * len(moment.names)


def require_once(table: mor.Table) -> int:
    """Require that no change of a row was written twice; return the number of changes."""
    rows = table.changes(raw=True, columns=["aid", "seq"]).to_arrow()
    rows = rows.filter(pc.is_valid(rows["seq"]))
    counted = Counter(zip(rows["aid"].to_pylist(), rows["seq"].to_pylist(), strict=True))
    twice = [change for change, times in counted.items() if times > 1]
    assert not twice, f"{len(twice)} changes were written twice: {twice[:5]}"
    return len(counted)


if __name__ == "__main__":
    main()
