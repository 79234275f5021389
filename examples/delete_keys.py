"""A thousand keys are deleted while another process goes on writing: neither waits, neither fails.

    python examples/delete_keys.py FOLDER

A delete removes what was requested before it. A row of the same key that is written later is a new row.
"""

import multiprocessing
import sys
from multiprocessing.synchronize import Event
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("user_id", pa.int64()), ("email", pa.string())])


def users(ids: range) -> pl.DataFrame:
    return pl.DataFrame({"user_id": ids, "email": [f"user{i}@example.org" for i in ids]})


def ingest(uri: str, started: Event, stop: Event) -> None:
    """Sign new users up, ten at a time, until told to stop."""
    table, first = mor.Table(uri), 10_000
    while not stop.is_set():
        table.upsert(users(range(first, first + 10)))
        first += 10
        started.set()


def main(folder: str) -> None:
    uri = str(Path(folder, "users"))
    table = mor.Table.create(uri, SCHEMA, key="user_id")
    table.append(users(range(5_000)))
    forget = pl.DataFrame({"user_id": range(0, 5_000, 5)})  # a thousand people who asked to be forgotten

    spawn = multiprocessing.get_context("spawn")
    started, stop = spawn.Event(), spawn.Event()
    process = spawn.Process(target=ingest, args=(uri, started, stop))
    process.start()
    try:
        assert started.wait(120)
        commit = table.delete(forget, token=("forget-2026-01-31", 1))
        version = table.version
    finally:
        stop.set()
        process.join()

    left = table.scan().to_polars()
    print(f"deleted {commit.deletes} keys; {left.height} rows; {table.version - version} versions later")
    assert process.exitcode == 0
    assert commit.deletes == 1_000
    assert left.filter(pl.col("user_id") < 10_000).height == 4_000
    assert left.join(forget, on="user_id").is_empty()


if __name__ == "__main__":
    main(sys.argv[1])
