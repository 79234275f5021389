"""Tables in a bucket that is some milliseconds away: small commits, opening and reading, beside delta-rs and Lance.

The bucket is a process on loopback (`benches/s3.py`), some milliseconds away; all engines commit in it by conditional
put. What it can do itself is measured in the same run: where the figures of many writers come near it, they are its.

A commit is one row: an upsert of ours, and an append of theirs, which is the least that they can do. A commit that
fails because of another writer's is tried again, and counted. Reading is two columns of ten, of eight files.

    pip install -e '.[peers]'           # deltalake and lance; without them only ours is measured
    python benches/stores.py            # about five minutes
    python benches/stores.py --small
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

import crdt_mor as mor
from benches.bucket import BUCKET, SPAWN, bucket, ceiling, options

ROW = pa.schema([("id", pa.string()), ("n", pa.int64())])
WIDE = pa.schema([("id", pa.string()), *((f"n{i}", pa.int64()) for i in range(9))])
READ_COLUMNS = ["id", "n3"]
FILES = 8


# --- engines ----------------------------------------------------------------------------------------------------------


def wide(rows: int) -> pa.Table:
    """Rows of ten columns."""
    return pa.table({"id": [f"k{i:08}" for i in range(rows)], **{f"n{c}": range(c, rows + c) for c in range(9)}}, WIDE)


class Ours:
    name = "crdt_mor"

    @staticmethod
    def options(port: int) -> dict[str, str]:
        return {name: value for name, value in options(port).items() if name != "aws_endpoint"}

    @classmethod
    def create(cls, uri: str, port: int) -> None:
        mor.Table.create(uri, ROW, key="id", buckets=1, storage_options=cls.options(port))

    @classmethod
    def writer(cls, uri: str, port: int) -> Callable[[pa.Table], object]:
        return mor.Table(uri, storage_options=cls.options(port)).upsert

    @classmethod
    def load(cls, uri: str, port: int, rows: pa.Table) -> None:
        table = mor.Table.create(uri, WIDE, key="id", buckets=FILES, storage_options=cls.options(port))
        table.upsert(rows)
        table.maintenance.compact()

    @classmethod
    def open(cls, uri: str, port: int) -> mor.Table:
        return mor.Table(uri, storage_options=cls.options(port))

    @staticmethod
    def read(table: mor.Table) -> int:
        return table.scan(columns=READ_COLUMNS).to_polars().height


class Delta:
    name = "delta-rs"

    @staticmethod
    def options(port: int) -> dict[str, str]:
        return options(port) | {"conditional_put": "etag"}

    @classmethod
    def create(cls, uri: str, port: int) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(uri, ROW, storage_options=cls.options(port))

    @classmethod
    def writer(cls, uri: str, port: int) -> Callable[[pa.Table], object]:
        from deltalake import DeltaTable, write_deltalake

        table = DeltaTable(uri, storage_options=cls.options(port))
        return lambda row: write_deltalake(table, row, mode="append")

    @classmethod
    def load(cls, uri: str, port: int, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        for part in parts(rows):
            write_deltalake(uri, part, mode="append", storage_options=cls.options(port))

    @classmethod
    def open(cls, uri: str, port: int) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(uri, storage_options=cls.options(port))

    @staticmethod
    def read(table: Any) -> int:
        table.update_incremental()  # as ours looks for the newest version, too
        return int(pa.table(table.to_pyarrow_table(columns=READ_COLUMNS)).num_rows)


class Lance:
    name = "Lance"

    @staticmethod
    def options(port: int) -> dict[str, str]:
        return options(port)

    @classmethod
    def create(cls, uri: str, port: int) -> None:
        import lance

        lance.write_dataset(ROW.empty_table(), uri, storage_options=cls.options(port))

    @classmethod
    def writer(cls, uri: str, port: int) -> Callable[[pa.Table], object]:
        import lance

        given = cls.options(port)
        return lambda row: lance.write_dataset(row, uri, mode="append", storage_options=given)

    @classmethod
    def load(cls, uri: str, port: int, rows: pa.Table) -> None:
        import lance

        first, *others = parts(rows)
        lance.write_dataset(first, uri, storage_options=cls.options(port))
        for part in others:
            lance.write_dataset(part, uri, mode="append", storage_options=cls.options(port))

    @classmethod
    def open(cls, uri: str, port: int) -> Any:
        import lance

        return lance.dataset(uri, storage_options=cls.options(port))

    @staticmethod
    def read(dataset: Any) -> int:
        dataset.checkout_latest()
        return int(dataset.to_table(columns=READ_COLUMNS).num_rows)


def parts(rows: pa.Table) -> list[pa.Table]:
    """As many files as ours has."""
    size = -(-rows.num_rows // FILES)
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size)]


ENGINES: dict[str, Any] = {"crdt_mor": Ours, "delta-rs": Delta, "Lance": Lance}
PACKAGES = {"delta-rs": "deltalake", "Lance": "lance"}


# --- what is measured -------------------------------------------------------------------------------------------------


def commit_loop(engine: str, uri: str, port: int, name: str, seconds: float, gate: Any, results: Any) -> None:
    """Commit one row after another for a while, on a table that this process has opened and written to before."""
    commit = ENGINES[engine].writer(uri, port)
    row = pa.table({"id": [name], "n": [0]}, ROW)
    commit_surely(commit, row)
    gate.wait()
    latencies, failed, end = list[float](), 0, time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        failed += commit_surely(commit, row)
        latencies.append(time.perf_counter() - begun)
    results.put((latencies, failed, time.perf_counter() - end))


def commit_surely(commit: Callable[[pa.Table], object], row: pa.Table) -> int:
    """Commit a row, however often it takes; how often it failed before."""
    for failed in range(100):
        try:
            commit(row)
        except Exception as error:  # noqa: BLE001  each engine has its own
            last = error
        else:
            return failed
    raise RuntimeError(f"no commit in a hundred tries. last={last}")


def commits(engine: str, uri: str, port: int, writers: int, seconds: float) -> dict[str, float]:
    """Commits of some processes at once."""
    ENGINES[engine].create(uri, port)
    gate, results = SPAWN.Barrier(writers), SPAWN.Queue()
    processes = [
        SPAWN.Process(target=commit_loop, args=(engine, uri, port, f"writer-{i}", seconds, gate, results))
        for i in range(writers)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    latencies = sorted(latency for some, _, _ in found for latency in some)
    over = statistics.mean(late for _, _, late in found)
    return {
        "commits/s": len(latencies) / (seconds + over),
        "p50 ms": 1000 * latencies[len(latencies) // 2],
        "p99 ms": 1000 * latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)],
        "failed": sum(failed for _, failed, _ in found),
    }


def reads(engine: str, uri: str, port: int, rounds: int) -> dict[str, float]:
    """Opening a table, reading two of its ten columns, and reading them once more; medians."""
    opened, first, again = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        begun = time.perf_counter()
        table = ENGINES[engine].open(uri, port)
        opened.append(time.perf_counter() - begun)
        for times in (first, again):
            begun = time.perf_counter()
            assert ENGINES[engine].read(table)
            times.append(time.perf_counter() - begun)
    named = {"open ms": opened, "read ms": first, "again ms": again}
    return {name: 1000 * statistics.median(times) for name, times in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    delays, writers = ([5], [1, 3]) if args.small else ([5, 30], [1, 3, 8])
    seconds, rows, rounds = (1.0, 10_000, 2) if args.small else (5.0, 400_000, 5)
    engines = [name for name in ENGINES if name not in PACKAGES or find_spec(PACKAGES[name])]
    print(f"engines: {', '.join(engines)}")
    figures: list[Mapping[str, Any]] = []
    with bucket(0, *delays) as (port, *aways):
        limit = ceiling(port, 1.0)
        figures.append({"bucket": limit})
        print(
            f"the bucket itself: {limit['puts/s']:.0f} puts/s, {limit['gets/s']:.0f} gets/s of 1,000 bytes, 8 threads"
        )
        for name in engines:
            ENGINES[name].load(f"s3://{BUCKET}/{name}-wide", port, wide(rows))
        for delay_ms, away in zip(delays, aways, strict=True):
            for count in writers:
                for name in engines:
                    uri = f"s3://{BUCKET}/{name}-{delay_ms}-{count}"
                    found = commits(name, uri, away, count, seconds)
                    figures.append({"engine": name, "delay ms": delay_ms, "writers": count, **found})
                    print(f"{delay_ms:3} ms   {count} writers   {name:9}   " + shown(found), flush=True)
            for name in engines:
                found = reads(name, f"s3://{BUCKET}/{name}-wide", away, rounds)
                figures.append({"engine": name, "delay ms": delay_ms, **found})
                print(f"{delay_ms:3} ms   reading     {name:9}   " + shown(found), flush=True)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


def shown(found: Mapping[str, float]) -> str:
    return "   ".join(f"{name} {value:,.1f}" for name, value in found.items())


if __name__ == "__main__":
    main()
