"""Changes of a database applied to a table: how many a second, and how late they are at a given rate.

    rows/s     upserts of random rows in batches of 10,000, one after another
    lag        from the moment when a change is due until readers see it, while 1,000 or 10,000 a second arrive.
               A consumer takes all that are due. After a third of the time another process compacts the table once

crdt_mor gets Kafka records with Debezium's envelopes as JSON, and decodes them. The peers get the same changes as Arrow
rows, and merge them by key, again after a conflict with the compaction. pypaimon has no compaction for Python.

    pip install -e '.[peers]'          # delta-rs; what is not installed is left out
    python benches/story.py --install  # DuckLake and pypaimon, each in an environment of its own
    python benches/cdc.py
    python benches/cdc.py --small
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benches.story_engines import ELSEWHERE, ENGINES, SCHEMA  # noqa: E402

PEERS = ("crdt_mor", "delta-rs", "DuckLake", "pypaimon")
PACKAGES = {"crdt_mor": "crdt_mor", "delta-rs": "deltalake"}
BATCH = 10_000
TRIES_MAX = 20
WARM = 100
"""Changes that are applied before: imports and first calls are no engine's speed."""

Apply = Callable[[int, int], object]
"""Applies the changes from one number to another."""


def rows(keys: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """Rows of these keys, with values that follow from the seed."""
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {"id": [f"key-{key:08}" for key in keys]}
    columns |= {f"n{i}": random.integers(0, 1 << 40, len(keys)) for i in range(4)}
    columns |= {f"x{i}": random.random(len(keys)) for i in range(3)}
    columns |= {"city": ["Oslo"] * len(keys), "note": [f"note {seed} {key}" for key in keys]}
    return pa.table(columns).cast(SCHEMA)


def records(changes: pa.Table) -> list[dict[str, Any]]:
    """The changes as records of Kafka with Debezium's envelopes."""
    found = []
    for offset, row in enumerate(changes.to_pylist()):
        source = {"connector": "postgresql", "schema": "public", "table": "t", "lsn": 1000 + offset}
        value = json.dumps({"op": "u", "before": None, "after": row, "source": source}).encode()
        found.append({"topic": "t", "partition": 0, "offset": offset, "key": None, "value": value})
    return found


def applier(engine: str, path: str, changes: pa.Table) -> Apply:
    if engine == "crdt_mor":
        import crdt_mor as mor
        from crdt_mor.cdc import apply

        table, made = mor.Table(path), records(changes)
        return lambda start, end: apply(table, made[start:end])
    upsert = ENGINES[engine].writer(path)
    frame = pl.DataFrame(pl.from_arrow(changes))

    def merge(start: int, end: int) -> object:
        last = frame[start:end].unique("id", keep="last", maintain_order=True)  # a merge refuses a key twice
        for _ in range(TRIES_MAX - 1):
            try:
                return upsert(last.to_arrow().cast(SCHEMA))
            except Exception:  # noqa: BLE001  each engine has errors of its own for a conflict
                continue
        return upsert(last.to_arrow().cast(SCHEMA))

    return merge


def compact(engine: str, path: str) -> None:
    """Compact the table, in a process of its own."""
    match engine:
        case "crdt_mor":
            import crdt_mor as mor

            mor.Table(path).maintenance.compact()
        case "delta-rs":
            from deltalake import DeltaTable

            DeltaTable(path).optimize.compact()
        case "DuckLake":
            ENGINES[engine]._open(path).execute("CALL ducklake_merge_adjacent_files('lake')")  # noqa: SLF001


def lags(engine: str, path: str, apply: Apply, rate: int, seconds: float) -> dict[str, float]:
    """Apply changes as they become due, and return the lag's median and 99th percentile, in seconds.

    An engine that is more than twice the time behind is stopped; the lag is then that of the changes that it applied.
    """
    due = np.arange(int(rate * seconds)) / rate
    beside = multiprocessing.get_context("spawn").Process(target=compact, args=(engine, path))
    waited, done, began, is_compacting = [], 0, time.perf_counter(), False
    while done < len(due) and (now := time.perf_counter() - began) < 3 * seconds:
        if not is_compacting and now > seconds / 3:
            is_compacting = True
            beside.start()
        end = int(np.searchsorted(due, now, side="right"))
        if end == done:
            time.sleep(max(0.0, due[done] - now))
            continue
        apply(WARM + done, WARM + end)
        waited.append(time.perf_counter() - began - due[done:end])
        done = end
    if is_compacting:
        beside.join()
    all_ = np.concatenate(waited)
    return {"p50": float(np.quantile(all_, 0.5)), "p99": float(np.quantile(all_, 0.99)), "applied": done / len(due)}


def measured(engine: str, folder: str, small: bool) -> dict[str, Any]:
    size, batches, seconds, rates = (2_000, 2, 1.0, (1_000,)) if small else (200_000, 20, 15.0, (1_000, 10_000))
    batch = 1_000 if small else BATCH
    found: dict[str, Any] = {}
    for rate in (None, *rates):
        path = str(Path(folder, f"{engine.replace('_', '')}{rate or ''}"))
        ENGINES[engine].load(path, rows(np.arange(size), 0))
        count = batches * batch if rate is None else int(rate * seconds)
        keys = np.random.default_rng(rate).integers(0, size, WARM + count)
        apply = applier(engine, path, rows(keys, 1))
        apply(0, WARM)
        if rate is not None:
            found[f"{rate}"] = lags(engine, path, apply, rate, seconds)
            continue
        began = time.perf_counter()
        for start in range(WARM, WARM + count, batch):
            apply(start, start + batch)
        found["rows/s"] = count / (time.perf_counter() - began)
    return found


def apart(engine: str, small: bool) -> dict[str, Any] | None:
    """Measure an engine in its environment; None if that is not installed."""
    python = ROOT / ".venvs" / f"story-{engine}" / "bin" / "python" if engine in ELSEWHERE else Path(sys.executable)
    if not python.exists() or (engine in PACKAGES and find_spec(PACKAGES[engine]) is None):
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-P", __file__, "--engine", engine, "--folder", folder, *(["--small"] if small else [])]
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few rows, to see that it runs")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        print(json.dumps(measured(args.engine, args.folder, args.small)))
        return
    for engine in PEERS:
        found = apart(engine, args.small)
        if found is None:
            print(f"{engine:10} not installed")
            continue
        told = [f"{found.pop('rows/s'):10,.0f} rows/s"]
        for rate, lag in found.items():
            part = "" if lag["applied"] == 1 else f" ({lag['applied']:.0%} applied)"
            told.append(f"{int(rate):,}/s: p50 {lag['p50'] * 1000:,.0f} ms, p99 {lag['p99'] * 1000:,.0f} ms{part}")
        print(f"{engine:10} {'   '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
