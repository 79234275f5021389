"""Updates and merges beside other engines: how long each takes alone, and what becomes of them beside other writers.

    update    1 % of the rows get another price
    merge     10,000 rows, of which some are new
    counts    processes add 1 to one plain number at the same time, for some seconds: the number says what was lost
    beside    the same update and merge, in turns, while three processes upsert a hundred other rows again and again

Alone, each engine does the same to a table of its own on this disk, in turns, and the least time of some rounds counts.
Beside others, a write that an engine refuses, as another one came between, is tried again at once, up to 20 times,
as its documentation says; an *abort* is such a refusal. *lost* is what was acknowledged and is not there afterwards: of
the number, or of the rows that the writers, the last merge and all updates have left.

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
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TRIES_MAX = 20
UPDATED = 7
ONE_PERCENT = f"country = {UPDATED}"
WRITERS = 3
WRITTEN = (50, 51, 52)
"""The countries whose first rows the writers upsert, a hundred each."""
Update = Callable[[str, str], object]
"""Sets the price of the rows for which a condition holds."""

Merge = Callable[[pa.Table], object]
"""Changes the rows of a table whose ids are there, and adds the others."""


class Ours:
    """This package."""

    name, module = "crdt_mor", "crdt_mor"

    def load(self, path: str, rows: pa.Table) -> None:
        import crdt_mor as mor

        mor.Table.create_from(path, rows, key="id", buckets=8)

    def updater(self, path: str) -> Update:
        import crdt_mor as mor

        table = mor.Table(path)
        return lambda to, where: table.update({"price": to}, where=where)

    def merger(self, path: str) -> Merge:
        import crdt_mor as mor

        table = mor.Table(path)
        return lambda rows: table.merge(rows).when_matched_update_all().when_not_matched_insert_all().execute()

    def upserter(self, path: str) -> Merge:
        import crdt_mor as mor

        return mor.Table(path).upsert

    def read(self, path: str) -> pa.Table:
        import crdt_mor as mor

        return mor.Table(path).to_arrow()


class Delta:
    """delta-rs."""

    name, module = "delta-rs", "deltalake"

    def load(self, path: str, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(path, rows)

    def updater(self, path: str) -> Update:
        from deltalake import DeltaTable

        return lambda to, where: DeltaTable(path).update(updates={"price": to}, predicate=where)

    def merger(self, path: str) -> Merge:
        from deltalake import DeltaTable

        def merge(rows: pa.Table) -> object:
            merger = DeltaTable(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            return merger.when_matched_update_all().when_not_matched_insert_all().execute()

        return merge

    upserter = merger

    def read(self, path: str) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(path).to_pyarrow_table()


class Lance:
    """Lance."""

    name, module = "Lance", "lance"

    def load(self, path: str, rows: pa.Table) -> None:
        import lance

        lance.write_dataset(rows, path)

    def updater(self, path: str) -> Update:
        import lance

        return lambda to, where: lance.dataset(path).update({"price": to}, where=where)

    def merger(self, path: str) -> Merge:
        import lance

        def merge(rows: pa.Table) -> object:
            merger = lance.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            return merger.execute(rows)

        return merge

    upserter = merger

    def read(self, path: str) -> pa.Table:
        import lance

        return lance.dataset(path).to_table()


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

    def merger(self, path: str) -> Merge:
        lake = self._attached(path)

        def merge(rows: pa.Table) -> object:
            lake.register("rows", rows)
            return lake.execute(
                "MERGE INTO lake.t USING rows ON t.id = rows.id WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
            )

        return merge

    upserter = merger

    def read(self, path: str) -> pa.Table:
        return self._attached(path).execute("SELECT * FROM lake.t").to_arrow_table()

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


def rows_of(ids: np.ndarray, round_: int = 0) -> pa.Table:
    """Rows of these ids, whose notes say the round in which they were written."""
    return pa.table({"id": ids, "country": ids % 100, "price": ids * 0.5, "note": [f"note {round_}"] * len(ids)})


def notes_of(table: pa.Table, ids: np.ndarray) -> np.ndarray:
    """The rounds that the notes of these rows say; -1 of a row that is not there."""
    found = dict(zip(table["id"].to_pylist(), table["note"].to_pylist(), strict=True))
    return np.array([int(found.get(number, "note -1").removeprefix("note ")) for number in ids.tolist()])


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


def tried(work: Callable[[], object]) -> Counted:
    """Do something, again where it is refused."""
    for attempt in range(TRIES_MAX):
        try:
            work()
        except Exception:  # noqa: BLE001  each engine has errors of its own
            continue
        return Counted(1, attempt, 0)
    return Counted(0, TRIES_MAX, 1)


def total(counted: Sequence[Counted]) -> Counted:
    """What several have done together."""
    return Counted(sum(c.added for c in counted), sum(c.aborts for c in counted), sum(c.failed for c in counted))


def count(number: int, path: str, seconds: float) -> Counted:
    """Add 1 to one number again and again."""
    update, found = ENGINES[number].updater(path), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found.append(tried(partial(update, "price + 1", "id = 0")))
    return total(found)


# --- beside writers ---------------------------------------------------------------------------------------------------

_START: Any = None
"""The barrier at which all processes of a run begin."""


def wait_for_start(start: Any) -> None:
    """Called in a process before it works."""
    global _START  # noqa: PLW0603  what a process is started with
    _START = start


def written_ids(country: int) -> np.ndarray:
    """The rows of one writer."""
    return np.arange(country, country + 100 * 100, 100)


@dataclass(frozen=True)
class Written:
    """What one writer did, how many upserts a second that were, and the last round that was acknowledged."""

    counted: Counted
    rate: float
    last: int


def write(number: int, path: str, country: int, seconds: float) -> Written:
    """Upsert the same hundred rows again and again."""
    upsert, found, last, round_ = ENGINES[number].upserter(path), list[Counted](), 0, 0
    _START.wait()
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        round_ += 1
        done = tried(partial(upsert, rows_of(written_ids(country), round_)))
        found.append(done)
        last = round_ if done.added else last
    return Written(total(found), len(found) / (time.monotonic() - began), last)


@dataclass(frozen=True)
class Beside:
    """What became of updates and merges beside writers. times: of an update and of a merge, the median."""

    changes: Counted
    times: tuple[float, float]
    writes: Counted
    rate: float
    lost: int


def beside(number: int, path: str, merged: np.ndarray, seconds: float) -> Beside:
    """Update and merge in turns while others write, and look for what was acknowledged."""
    engine, context = ENGINES[number], get_context("spawn")
    update, merge, start = engine.updater(path), engine.merger(path), context.Barrier(WRITERS + 1)
    before = engine.read(path)
    updates, merges, times = list[Counted](), list[Counted](), (list[float](), list[float]())
    last = 0
    with ProcessPoolExecutor(WRITERS, mp_context=context, initializer=wait_for_start, initargs=(start,)) as pool:
        writers = [pool.submit(write, number, path, country, seconds) for country in WRITTEN]
        start.wait()
        while not all(writer.done() for writer in writers):
            began = time.perf_counter()
            updates.append(tried(partial(update, "price + 1", ONE_PERCENT)))
            between = time.perf_counter()
            merges.append(tried(partial(merge, rows_of(merged, len(merges) + 1))))
            last = len(merges) if merges[-1].added else last
            for taken, spent in zip(times, (between - began, time.perf_counter() - between), strict=True):
                taken.append(spent)
        written = [writer.result() for writer in writers]
    after = engine.read(path)
    lost = int((notes_of(after, merged) < last).sum())
    for country, one in zip(WRITTEN, written, strict=True):
        lost += int((notes_of(after, written_ids(country)) < one.last).sum())
    lost += int((prices_of(after) - prices_of(before) < total(updates).added - 0.5).sum())
    middle = (float(np.median(times[0])), float(np.median(times[1])))
    writes = total([one.counted for one in written])
    return Beside(total([*updates, *merges]), middle, writes, sum(one.rate for one in written), lost)


def prices_of(table: pa.Table) -> np.ndarray:
    """The prices that updates change, in the order of the ids."""
    rows = table.filter(pc.equal(table["country"], UPDATED)).sort_by("id")
    return np.asarray(rows["price"])


# --- all of it --------------------------------------------------------------------------------------------------------


def measure(rows: int, merged: int, rounds: int, seconds: float, processes: int, folder: Path) -> None:
    """Print a line for each engine that is installed: alone, and beside writers."""
    present = [(i, e) for i, e in enumerate(ENGINES) if importlib.util.find_spec(e.module)]
    for engine in ENGINES:
        if engine not in [there for _, there in present]:
            print(f"{engine.name} is not installed, and is left out")
    table = rows_of(np.arange(rows))
    rng = np.random.default_rng(1)
    ids = rng.permutation(rows + merged // 4)
    ids = ids[~np.isin(ids % 100, (UPDATED, *WRITTEN))][:merged]
    source = rows_of(ids)
    print(f"{'':10} {'update 1 %':>12} {'merge':>10} {'adds/s':>9} {'aborts':>8} {'given up':>9} {'lost':>6}")
    for number, engine in present:
        path, counted = str(folder / engine.module), str(folder / f"{engine.module}-counted")
        engine.load(path, table)
        update = least(partial(engine.updater(path), "price * 1.1", ONE_PERCENT), rounds)
        merge = least(partial(engine.merger(path), source), rounds)
        engine.load(counted, rows_of(np.arange(1_000)))
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            began = time.monotonic()
            found = list(pool.map(count, [number] * processes, [counted] * processes, [seconds] * processes))
            took = time.monotonic() - began
        all_, numbers = total(found), engine.read(counted)
        lost = all_.added - round(numbers.filter(pc.equal(numbers["id"], 0))["price"][0].as_py())
        print(
            f"{engine.name:10} {update:11.3f}s {merge:9.3f}s {all_.added / took:9.1f} {all_.aborts:8} {all_.failed:9} "
            f"{lost:6}",
            flush=True,
        )
    print(f"\nbeside {WRITERS} writers, which upsert 100 other rows each, again and again, for {seconds:g} s")
    print(f"{'':10} {'update 1 %':>12} {'merge':>10} {'done':>6} {'aborts':>8} {'given up':>9}  |", end=" ")
    print(f"{'upserts/s':>9} {'aborts':>8} {'given up':>9}  | {'lost':>6}")
    for number, engine in present:
        path = str(folder / f"{engine.module}-beside")
        engine.load(path, table)
        b = beside(number, path, ids, seconds)
        print(
            f"{engine.name:10} {b.times[0]:11.3f}s {b.times[1]:9.3f}s {b.changes.added:6} {b.changes.aborts:8} "
            f"{b.changes.failed:9}  | {b.rate:9.1f} {b.writes.aborts:8} {b.writes.failed:9}  | {b.lost:6}",
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
