"""A process that adds one to plain numbers, by updates in place, until it is killed or has done enough.

    python -m tests.crash.updating update <table> <log> <name> <expiry_ms> <commits>

It notes a number before it tries to commit it. One that is started again tries the last number that it noted once more,
under the same token.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from crdt_mor import Opening, Table
from crdt_mor.errors import WriterExpiredError
from tests.crash.worker import Log, acknowledge, read_log

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
SHARED = "shared"


def main(role: str, path: str, log_path: str, name: str, expiry_ms: str, commits: str) -> None:
    assert role == "update"
    faulthandler.register(signal.SIGUSR1)
    before = read_log(Path(log_path))
    log = Log(Path(log_path))
    table = Table(path, opening=Opening(writer_expiry=timedelta(milliseconds=int(expiry_ms))))
    for number in range(int(before[-1][1]) if before else 1, int(commits) + 1):
        log.say("try", number)
        while True:
            try:
                done = table.update({"n": "n + 1"}, where=f"id IN ('{SHARED}', '{name}')", token=(name, number))
                break
            except WriterExpiredError:  # a busy machine: nothing of it is visible
                log.say("expired", number)
        acknowledge(log, number, done)


if __name__ == "__main__":
    main(*sys.argv[1:])
