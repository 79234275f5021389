"""Updates and merges beside other engines: how long each takes alone, and what becomes of them beside other writers.

    update    1 % of the rows get another price
    merge     10,000 rows, of which some are new
    counts    processes add 1 to one plain number at the same time, for some seconds: the number says what was lost

Alone, each engine does the same to a table of its own on this disk, in turns, and the least time of some rounds counts.
Beside others, a write that an engine refuses, as another one came between, is tried again at once, up to 20 times, as
its documentation says; an *abort* is such a refusal. *lost* is what was acknowledged and is not in the number.

    pip install -e '.[peers]'               # delta-rs, Lance and DuckLake; what is not installed is left out
    python benches/update.py
    python benches/update.py --small
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

TRIES_MAX = 20
ONE_PERCENT = "country = 7"
Update = Callable[[str, str], object]
"""Sets the price of the rows for which a condition holds."""


class Ours:
    """This package."""

    name, module = "crdt_mor", "crdt_mor"

    def load(self, path: str, rows: pa.Table) -> None:
        import crdt_mor as mor

        mor.Table.create_from(path, rows, key="id", buckets=8)

    def updater(self, path: str) -> Update:
        import crdt_mor as mor

        table = mor.Table.open(path)
        return lambda to, where: table.update({"price": to}, where=where)

    def merge(self, path: str, rows: pa.Table) -> None:
        import crdt_mor as mor

        mor.Table.open(path).merge(rows).when_matched_update_all().when_not_matched_insert_all().execute()

    def value(self, path: str) -> float:
        import crdt_mor as mor

        return float(mor.Table.open(path).scan(filter="id = 0").to_arrow()["price"][0].as_py())


class Delta:
    """delta-rs."""

    name, module = "delta-rs", "deltalake"

    def load(self, path: str, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(path, rows)

    def updater(self, path: str) -> Update:
        from deltalake import DeltaTable

        return lambda to, where: DeltaTable(path).update(updates={"price": to}, predicate=where)

    def merge(self, path: str, rows: pa.Table) -> None:
        from deltalake import DeltaTable

        merger = DeltaTable(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def value(self, path: str) -> float:
        from deltalake import DeltaTable

        return float(DeltaTable(path).to_pyarrow_table(filters=[("id", "=", 0)])["price"][0].as_py())


class Lance:
    """Lance."""

    name, module = "Lance", "lance"

    def load(self, path: str, rows: pa.Table) -> None:
        import lance

        lance.write_dataset(rows, path)

    def updater(self, path: str) -> Update:
        import lance

        return lambda to, where: lance.dataset(path).update({"price": to}, where=where)

    def merge(self, path: str, rows: pa.Table) -> None:
        import lance

        merge = lance.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows)

    def value(self, path: str) -> float:
        import lance

        return float(lance.dataset(path).to_table(filter="id = 0")["price"][0].as_py())


class DuckLake:
    """DuckLake, whose catalog is a SQLite file, as its documentation says for several processes on one machine."""

    name, module = "DuckLake", "duckdb_extension_ducklake"

    def load(self, path: str, rows: pa.Table) -> None:
        Path(path).mkdir()
        lake = self._attached(path)
        lake.register("rows", rows)
        lake.execute("CREATE TABLE lake.t AS SELECT * FROM rows")

    def updater(self, path: str) -> Update:
        lake = self._attached(path)
        return lambda to, where: lake.execute(f"UPDATE lake.t SET price = {to} WHERE {where}")

    def merge(self, path: str, rows: pa.Table) -> None:
        lake = self._attached(path)
        lake.register("rows", rows)
        lake.execute(
            "MERGE INTO lake.t USING rows ON t.id = rows.id WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )

    def value(self, path: str) -> float:
        return float(self._attached(path).execute("SELECT price FROM lake.t WHERE id = 0").fetchone()[0])

    def _attached(self, path: str) -> Any:
        import duckdb

        lake = duckdb.connect()
        for package in ("duckdb_extension_sqlite_scanner", "duckdb_extension_ducklake"):
            (installed,) = importlib.import_module(package).__path__
            (extension,) = Path(installed).rglob("*.duckdb_extension")
            lake.execute(f"LOAD '{extension}'")
        lake.execute(f"ATTACH 'ducklake:sqlite:{path}/catalog.sqlite' AS lake (DATA_PATH '{path}/data')")
        return lake


ENGINES: tuple[Any, ...] = (Ours(), Delta(), Lance(), DuckLake())


def rows_of(ids: np.ndarray) -> pa.Table:
    """Rows of these ids."""
    notes = [f"note {number % 1000}" for number in ids]
    return pa.table({"id": ids, "country": ids % 100, "price": ids * 0.5, "note": notes})


def least(work: Callable[[], object], rounds: int) -> float:
    """The least time of some rounds, in seconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


@dataclass(frozen=True)
class Counted:
    """What one process did: how often it added 1, how often it was refused, and how often it gave up."""

    added: int
    aborts: int
    failed: int


def count(number: int, path: str, seconds: float) -> Counted:
    """Add 1 to one number again and again."""
    update = ENGINES[number].updater(path)
    added = aborts = failed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for attempt in range(TRIES_MAX):
            try:
                update("price + 1", "id = 0")
            except Exception:  # noqa: BLE001  each engine has errors of its own
                aborts += 1
                failed += attempt == TRIES_MAX - 1
            else:
                added += 1
                break
    return Counted(added, aborts, failed)


def measure(rows: int, merged: int, rounds: int, seconds: float, processes: int, folder: Path) -> None:
    """Print a line for each engine that is installed."""
    present = [(i, e) for i, e in enumerate(ENGINES) if importlib.util.find_spec(e.module)]
    for engine in ENGINES:
        if engine not in [there for _, there in present]:
            print(f"{engine.name} is not installed, and is left out")
    table = rows_of(np.arange(rows))
    rng = np.random.default_rng(1)
    source = rows_of(rng.choice(rows + merged // 4, merged, replace=False))
    print(f"{'':10} {'update 1 %':>12} {'merge':>10} {'adds/s':>9} {'aborts':>8} {'given up':>9} {'lost':>6}")
    for number, engine in present:
        path, counted = str(folder / engine.module), str(folder / f"{engine.module}-counted")
        engine.load(path, table)
        update = least(partial(engine.updater(path), "price * 1.1", ONE_PERCENT), rounds)
        merge = least(partial(engine.merge, path, source), rounds)
        engine.load(counted, rows_of(np.arange(1_000)))
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            began = time.monotonic()
            found = list(pool.map(count, [number] * processes, [counted] * processes, [seconds] * processes))
            took = time.monotonic() - began
        added = sum(one.added for one in found)
        lost = added - round(engine.value(counted))
        print(
            f"{engine.name:10} {update:11.3f}s {merge:9.3f}s {added / took:9.1f} {sum(o.aborts for o in found):8} "
            f"{sum(o.failed for o in found):9} {lost:6}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="that it runs, not how fast")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as folder:
        if small:
            measure(10_000, 100, 1, 0.5, 2, Path(folder))
        else:
            measure(1_000_000, 10_000, 5, 15, 4, Path(folder))


if __name__ == "__main__":
    main()
