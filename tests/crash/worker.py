"""A process that a test starts, and stops or kills at a moment of its choosing.

    python -m tests.crash.worker write <table> <log> <name> <expiry_ms> <commits>    commits until it is killed
    python -m tests.crash.worker compact <table> <log> <name> <expiry_ms>            compacts until it is killed
    python -m tests.crash.worker maintain <table> <log> <name> <expiry_ms>           maintains until it is killed
    python -m tests.crash.worker hold <table> <log> <name> <expiry_ms>               one commit; waits for a line first

What a worker did stands in its log, a line before and a line after each commit. One that finds a log of its name goes
on where that one ended, and so repeats the write whose outcome nobody knows, under the same token.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from crdt_mor import Commit, Opening, Table
from crdt_mor.errors import WriterExpiredError

SCHEMA = pa.schema([("key", pa.string()), ("batch", pa.string()), ("n", pa.int64())])
BUCKETS = 4


def rows(name: str, number: int) -> pa.Table:
    """A key of its own in each bucket, for neighbouring texts have neighbouring hashes; and the keys that all share."""
    batch = f"{name}.{number}"
    keys = [f"{batch}.{i}" for i in range(BUCKETS)] + [f"shared.{i}" for i in range(BUCKETS)]
    return pa.table({"key": keys, "batch": [batch] * len(keys), "n": [number] * len(keys)}, schema=SCHEMA)


class Log:
    """Lines that survive the process: each is one write to a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def read_log(path: Path) -> list[list[str]]:
    """The lines of a log, as words; a torn last line left out."""
    if not path.exists():
        return []
    return [line.split() for line in path.read_text().split("\n")[:-1]]


def write(table: Table, log: Log, name: str, before: list[list[str]], commits: int) -> None:
    number = int(before[-1][1]) if before else 1
    if before and before[-1][0] != "try":
        number += 1
    for n in range(number, commits + 1):
        log.say("try", n)
        while True:
            try:
                done = table.upsert(rows(name, n), token=(name, n))
                break
            except WriterExpiredError:  # a busy machine, or a test that stopped us: nothing of it is visible
                log.say("expired", n)
                log.say("try", n)
        acknowledge(log, n, done)


def acknowledge(log: Log, number: int, done: Commit) -> None:
    log.say("ack", number, done.requested_at, done.completed_at, done.version, done.repeated)


def compact(table: Table, log: Log) -> None:
    while True:
        for done in table.maintenance.compact():
            log.say("compacted", done.barrier, done.rows, done.carried)


def maintain(table: Table, log: Log) -> None:
    while True:
        log.say("begin")
        for action in table.maintenance.maintain(keep=timedelta(seconds=1)).actions:
            assert action.state == "done", action
            log.say(action.service, action.files_written, action.files_removed)


def hold(table: Table, log: Log, name: str) -> None:
    try:
        with table.transaction() as tx:
            tx.upsert(rows(name, 1))
            log.say("held", 1)
            sys.stdin.readline()
    except WriterExpiredError as error:
        log.say("expired", 1, type(error).__name__)
        return
    assert tx.commit is not None
    acknowledge(log, 1, tx.commit)


def main(role: str, path: str, log_path: str, name: str, expiry_ms: str, commits: str = "1000000") -> None:
    faulthandler.register(signal.SIGUSR1)  # where are you? to the error stream
    before = read_log(Path(log_path))
    log = Log(Path(log_path))
    table = Table(path, opening=Opening(writer_expiry=timedelta(milliseconds=int(expiry_ms))))
    match role:
        case "write":
            write(table, log, name, before, int(commits))
        case "compact":
            compact(table, log)
        case "maintain":
            maintain(table, log)
        case "hold":
            hold(table, log, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
