"""A program whose processes fork, each by a real fork: it prints what became of every child, one a line.

It runs in a Python of its own, since the one that runs the tests has threads, and since a child that hangs has to be
ended: by an alarm of the system, which the parent reports as a hang.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.read import together
from tests.inside import look_for_hudi

# So that a stream of these few rows comes slice by slice, as it does of large slices.
together.BYTES_MAX = 0  # type: ignore[misc]

HANGS_AFTER_S = 60
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
URI = sys.argv[1]


def say(name: str, answer: str) -> None:
    sys.stdout.write(json.dumps([name, answer]) + "\n")
    sys.stdout.flush()


def row(key: str) -> pa.Table:
    return pa.table({"id": [key], "n": [1]}, SCHEMA)


def many(start: int) -> pa.Table:
    keys = [f"{number:06d}" for number in range(start, start + 5000)]
    return pa.table({"id": keys, "n": list(range(5000))}, SCHEMA)


def child(name: str, work: Callable[[], object]) -> None:
    """Do `work` in a process that is forked here, and say what became of it: "ok", an error's name, or "hangs"."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(HANGS_AFTER_S)
        try:
            answer = f"ok {work()}"
        except Exception as error:  # noqa: BLE001  whatever it is, the test is told of it
            answer = f"{type(error).__name__} {error}"
            if not isinstance(error, mor.CrdtMorError | ZeroDivisionError):
                traceback.print_exc()
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(process, 0)
    say(name, answer or "hangs")


def write_and_read(key: str) -> int:
    table = mor.Table(URI)
    table.upsert(row(key))
    found: int = table.scan(filter=f"id = '{key}'").to_arrow().num_rows
    return found


def leave_the_block(tx: mor.Transaction) -> None:
    tx.__exit__(None, None, None)


def leave_the_block_by_an_error(tx: mor.Transaction) -> None:
    try:
        raise ZeroDivisionError("of the child's own")
    except ZeroDivisionError as error:
        tx.__exit__(type(error), error, None)
        raise


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads, rightly
    mor.Table.create(URI, SCHEMA, key="id", buckets=4)
    table = mor.Table(URI)

    child("early: a table of its own", lambda: write_and_read("early"))
    child("early: the parent's table", lambda: look_for_hudi(table))
    nonce = table.environment.nonce
    child("early: nonce", nonce)
    say("parent: nonce", f"ok {nonce()}")

    for start in (0, 5000):
        table.upsert(many(start))
    scan, filtered = table.scan(), table.scan(filter="id < '000100'")
    changes, images = table.changes(), table.changes(images=True)
    reader = scan.to_reader()
    reader.read_next_batch()
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    child("late: a table of its own", lambda: write_and_read("late"))
    child("late: the parent's table, write", lambda: table.upsert(row("late")))
    child("late: the parent's table, read", lambda: table.scan().to_arrow())
    child("late: the parent's scan", scan.to_polars)
    child("late: the parent's scan, narrowed", lambda: scan.narrowed(filter="n > 1"))
    child("late: the parent's scan, explained", filtered.explain)
    child("late: the parent's scan, in parts", filtered.parts)
    child("late: the parent's scan, counted", filtered.count)
    child("late: the parent's changes", changes.to_arrow)
    child("late: the parent's changes, in parts", changes.parts)
    child("late: the parent's changes, as images", images.to_polars)
    child("late: the parent's table, changes", lambda: table.changes().to_polars())
    child("late: the parent's table, file groups", lambda: table.jobs.file_groups(row("a")))
    child("late: the parent's table, planned write", lambda: table.jobs.plan("upsert", SCHEMA))
    child("late: the parent's stream of rows", reader.read_all)
    child("late: the parent's plan", lambda: table.maintenance.compact(plan))
    rest = sum(batch.num_rows for batch in reader)
    say("parent: stream of rows", f"ok {rest > 0}")

    with table.transaction() as tx:
        tx.upsert(row("of the transaction"))
        child("transaction: written to", lambda: tx.upsert(row("of the child")))
        child("transaction: read", lambda: tx.scan().to_arrow())
        child("transaction: block left", lambda: leave_the_block(tx))
        child("transaction: block left by an error", lambda: leave_the_block_by_an_error(tx))
    assert tx.commit is not None
    say("parent: transaction", f"ok {tx.commit.rows}")

    job = table.jobs.plan("upsert", SCHEMA)
    child("late: a job's task", lambda: job.stage(row("task"), task=0))
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        error = pool.submit(write_and_read, "pool").exception()
    say("pool of processes", f"{type(error).__name__} {error}")

    say("parent: rows", f"ok {mor.Table(URI).scan().count()}")


if __name__ == "__main__":
    main()
