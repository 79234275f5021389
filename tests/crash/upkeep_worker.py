"""A process of those that keep a table small, look at it or follow it, until it is killed.

python -m tests.crash.upkeep_worker <role> <table> <log> <name> <expiry_ms>

write, compact   as `tests.crash.worker`
relayout         asks for another order of rows, and rewrites the base files that have another, again and again
clean            gives up the history before the last few seconds, again and again
archive          moves what has ended for good to Hudi's history, again and again
maintain         does what is due by the table's policies
read             looks at the newest rows and at older ones, which must be the same as before, or refused
follow           keeps a copy by the changes alone, which must be the table as of its checkpoint
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from datetime import timedelta
from itertools import cycle
from pathlib import Path

from crdt_mor import Opening, Scan, SnapshotExpiredError, Table
from crdt_mor.errors import CheckpointExpiredError
from tests.crash.worker import BUCKETS, Log, read_log, write

KEPT = timedelta(seconds=5)
"""The history that is kept, and for how long readers are spared."""

PAUSE_S = 0.2
REMEMBERED = 8

Rows = dict[str, tuple[str, int]]


def compact(table: Table, log: Log) -> None:
    while True:
        for done in table.maintenance.compact(log_files_min=3):
            log.say("compacted", done.barrier, done.rows, done.carried)
        table.environment.sleep(PAUSE_S)


def relayout(table: Table, log: Log) -> None:
    for columns, order in cycle([("batch,n", None), (None, None), ("n,key,batch", "z-order")]):
        table.set_properties({"crdt_mor.cluster_by": columns, "crdt_mor.cluster_order": order})
        for done in table.maintenance.compact(log_files_min=3, rewrite="order"):
            log.say("rearranged", done.barrier, done.rows, done.carried)
        table.environment.sleep(3 * PAUSE_S)


def clean(table: Table, log: Log) -> None:
    while True:
        done = table.maintenance.clean(KEPT, readers=KEPT)
        log.say("cleaned", done.since, done.files, done.bytes, done.spared, done.failed)
        table.environment.sleep(5 * PAUSE_S)


def archive(table: Table, log: Log) -> None:
    while True:
        done = table.maintenance.archive()
        log.say("archived" if done.instants else "kept", done.instants, done.held_by)
        table.environment.sleep(5 * PAUSE_S)


def maintain(table: Table, log: Log) -> None:
    while True:
        done = table.maintenance.maintain()
        for action in done.actions:
            assert action.state == "done", action
            log.say("maintained", action.service)
        log.say("looked", len(done.actions))
        table.environment.sleep(5 * PAUSE_S)


def read(table: Table, log: Log) -> None:
    """Each answer is repeated later, as of the version that it was of."""
    before: list[tuple[int, str, Rows]] = []
    seen = 0
    while True:
        began_ms = table.environment.now_ms()
        scan = table.scan()
        try:
            found = rows_of(scan)
        except SnapshotExpiredError:
            require_slow(table, began_ms)
            log.say("slow", scan.version)
            continue
        whole(found)
        assert len(found) >= seen, "rows are gone that nobody deleted"
        seen = len(found)
        before = [*before[-REMEMBERED:], (scan.version, scan.as_of, found)]
        refused = 0
        for version, as_of, rows in before[:-1]:
            try:
                assert rows_of(table.scan(as_of=version)) == rows, f"version {version} shows something else now"
                assert rows_of(table.scan(as_of=as_of)) == rows, f"{as_of} shows something else now"
                key = min(rows, key=lambda key: rows[key][1], default="none")
                alone = rows_of(table.scan(as_of=as_of, filter=f"key = '{key}'"))
                assert alone == {k: row for k, row in rows.items() if k == key}, f"{key} is not found as of {as_of}"
            except SnapshotExpiredError:
                refused += 1
        log.say("read", scan.version, len(found), refused)
        table.environment.sleep(PAUSE_S)


def follow(table: Table, log: Log) -> None:
    copy: Rows = {}
    checkpoint: str | None = None
    while True:
        try:
            changes = table.changes(checkpoint)
            for row in changes.to_arrow().to_pylist():
                if row["_change_type"] == "delete":
                    copy.pop(row["key"], None)
                else:
                    copy[row["key"]] = (row["batch"], row["n"])
            checkpoint = changes.checkpoint
        except (CheckpointExpiredError, SnapshotExpiredError) as error:
            log.say("late", type(error).__name__)
            copy, checkpoint = anew(table)
        whole(copy)
        log.say("followed", checkpoint, len(copy))
        try:
            shown = rows_of(table.scan(as_of=checkpoint.split(":")[1]))
        except SnapshotExpiredError:
            continue
        assert shown == copy, f"the copy is not the table as of {checkpoint}"
        table.environment.sleep(PAUSE_S)


def anew(table: Table) -> tuple[Rows, str]:
    """The table's rows, and the checkpoint from which on a copy of them is kept."""
    while True:
        began_ms = table.environment.now_ms()
        scan = table.scan()
        try:
            return rows_of(scan), scan.checkpoint
        except SnapshotExpiredError:
            require_slow(table, began_ms)


def require_slow(table: Table, began_ms: int) -> None:
    """A reader of the newest view loses its files only when it takes longer than readers are spared."""
    took_ms = table.environment.now_ms() - began_ms
    assert took_ms >= KEPT / timedelta(milliseconds=1), f"a reader of {took_ms} ms lost its files"


def rows_of(scan: Scan) -> Rows:
    return {row["key"]: (row["batch"], row["n"]) for row in scan.to_arrow().to_pylist()}


def whole(rows: Rows) -> None:
    """No commit is there in part, and the keys that everybody writes come from one."""
    shared = {batch for key, (batch, _) in rows.items() if key.startswith("shared.")}
    assert len(shared) <= 1, shared
    own: dict[str, int] = {}
    for key, (batch, _) in rows.items():
        if not key.startswith("shared."):
            own[batch] = own.get(batch, 0) + 1
    assert set(own.values()) <= {BUCKETS}, own


def main(role: str, path: str, log_path: str, name: str, expiry_ms: str) -> None:
    faulthandler.register(signal.SIGUSR1)  # where are you? to the error stream
    before = read_log(Path(log_path))
    log = Log(Path(log_path))
    table = Table(path, opening=Opening(writer_expiry=timedelta(milliseconds=int(expiry_ms))))
    match role:
        case "write":
            write(table, log, name, before, 1_000_000)
        case "compact":
            compact(table, log)
        case "relayout":
            relayout(table, log)
        case "clean":
            clean(table, log)
        case "archive":
            archive(table, log)
        case "maintain":
            maintain(table, log)
        case "read":
            read(table, log)
        case "follow":
            follow(table, log)


if __name__ == "__main__":
    main(*sys.argv[1:])
