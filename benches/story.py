"""The RFC's story: a table of 1,000,000 rows, then three processes upsert 10,000 overlapping rows ten times each.

Every engine gets the same frames. Reported: commits that survived (of those tried), commits per second from the first
begin to the last acknowledgement, and the snapshot read afterwards. What ours makes where each process has a table of
its own says what races cost. Ours is read three times, against the floor of polars decoding the same base files and log
blocks without merging anything, in interleaved rounds of one process: after the story, the same table never compacted
(its first load still in logs), and after a last compaction.

    pip install -e '.[peers]'          # deltalake and lance; what is not installed is left out
    python benches/story.py --install  # DuckLake and pypaimon, which want other versions of DuckDB and polars than
                                       # ours, so that each has an environment of its own, below .venvs
    python benches/story.py            # about five minutes
    python benches/story.py --small

DuckLake keeps its catalog in PostgreSQL, which the bench starts for itself where it is installed (Debian: postgresql).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from benches.story_engines import BUCKETS, ELSEWHERE, ENGINES, SCHEMA, Ours

if TYPE_CHECKING:
    import crdt_mor as mor

ROOT = Path(__file__).resolve().parents[1]
WRITERS = 3


def rows(keys: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """Rows of ten columns for these keys."""
    r = np.random.default_rng(seed)
    count = len(keys)
    frame = pl.DataFrame(
        {
            "id": pl.Series(keys).cast(pl.String).str.zfill(10),
            **{f"n{i}": r.integers(0, 1 << 40, count) for i in range(4)},
            **{f"x{i}": r.random(count) for i in range(3)},
            "city": pl.Series(r.integers(0, 500, count)).cast(pl.String),
            "note": pl.Series(r.integers(0, 1 << 50, count)).cast(pl.String),
        }
    )
    return frame.to_arrow().cast(SCHEMA)


def batch(table_rows: int, batch_rows: int, writer: int, number: int) -> pa.Table:
    """What one commit upserts: the batches of all writers overlap."""
    seed = writer * 1000 + number
    keys = np.random.default_rng(seed).choice(table_rows, batch_rows, replace=False)
    return rows(keys, seed)


def environment(name: str) -> Path:
    """The Python of the environment of an engine."""
    return ROOT / ".venvs" / f"story-{name}" / "bin" / "python"


def install() -> None:
    """Make the environments that are not there yet."""
    for name, packages in ELSEWHERE.items():
        if not environment(name).exists():
            venv.create(environment(name).parents[1], with_pip=True)
            command = [environment(name), "-m", "pip", "install", "--quiet", "polars", "pyarrow", "numpy", *packages]
            subprocess.run(command, check=True)


def told(name: str, small: bool) -> dict[str, Any] | None:
    """The figures of an engine, from its own environment; None where there is none."""
    if not environment(name).exists():
        print(f"{name:10} not installed: python benches/story.py --install")
        return None
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures.json")
        command = [str(environment(name)), "-P", __file__, "--engines", name, "--here", "--json", str(figures)]
        command += ["--small"] if small else []
        variables = os.environ | {"PYTHONPATH": str(ROOT)}  # where the engines are imported from
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=variables)
        found: dict[str, Any] = json.loads(figures.read_text())
    return found.get(name)


def write_all(engine: str, path: str, sizes: tuple[int, int, int], writer: int, gate: Any, results: Any) -> None:
    """One writer process: its batches are made beforehand, so that only commits are timed."""
    table_rows, batch_rows, commits = sizes
    batches = [batch(table_rows, batch_rows, writer, number) for number in range(commits)]
    scratch = f"{path}-scratch-{writer}"  # what a process does once, imports and first calls, is not a commit's cost
    ENGINES[engine].load(scratch, batches[0])
    ENGINES[engine].writer(scratch)(batches[0])
    upsert = ENGINES[engine].writer(path)
    gate.wait()
    started, done, errors = time.time(), 0, []
    for data in batches:
        try:
            upsert(data)
            done += 1
        except Exception as error:  # noqa: BLE001  a peer's conflict is what is counted here
            errors.append(str(error)[:200])
    results.put((started, time.time(), done, errors))


def story(engine: str, paths: Sequence[str], sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Run all writers at once, each on the table at its path; how many commits survived, and how fast."""
    spawn = multiprocessing.get_context("spawn")
    gate, results = spawn.Barrier(WRITERS), spawn.Queue()
    processes = [
        spawn.Process(target=write_all, args=(engine, path, sizes, w, gate, results)) for w, path in enumerate(paths)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    seconds = max(end for _, end, _, _ in found) - min(start for start, _, _, _ in found)
    done = sum(count for _, _, count, _ in found)
    errors = [error for *_, some in found for error in some]
    first = (errors or [""])[0][:70]
    return {"commits": done, "tried": WRITERS * sizes[2], "commits/s": done / seconds, "first error": first}


# --- the read afterwards ----------------------------------------------------------------------------------------------


def floors_of(table: mor.Table, folder: Path) -> tuple[Any, Any]:
    """polars decoding the same Parquet bytes, unmerged: base files, and log blocks as files of their own.

    Once as they stand, all fifteen columns, and once only the ten that the scan gives.
    """
    from crdt_mor.format.log import BlockKind, read_log

    columns = SCHEMA.names
    sources: list[str] = []
    for number, file in enumerate(table.inspect.files().to_pylist()):
        path = Path(table.uri) / file["path"]
        if file["kind"] == "base":
            sources.append(str(path))
            continue
        for block in read_log(path.read_bytes(), str(path)):
            if block.kind is BlockKind.PARQUET:
                part = folder / f"{number}-{block.offset}.parquet"
                part.write_bytes(block.content)
                sources.append(str(part))
    return (
        lambda: pl.scan_parquet(sources, glob=False).collect().height,
        lambda: pl.scan_parquet(sources, glob=False).select(columns).collect().height,
    )


def paired(calls: Sequence[Any], rounds: int) -> list[list[float]]:
    """Seconds of each call in interleaved rounds, after a round that does not count."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if number:
                taken.append(time.perf_counter() - start)
    return times


def ratio(ours: list[float], floor: list[float]) -> float:
    """The median of the paired ratios."""
    return statistics.median(x / y for x, y in zip(ours, floor, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma separated")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--install", action="store_true", help="make the environments of engines that need their own")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.install:
        install()
        return
    if unknown := set(args.engines.split(",")) - set(ENGINES):
        parser.error(f"there is no engine {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    sizes = (20_000, 500, 3) if args.small else (1_000_000, 10_000, 10)
    rounds = 3 if args.small else 9
    folder = Path(tempfile.mkdtemp(prefix="story-"))
    figures: dict[str, Any] = {}
    try:
        data = rows(np.arange(sizes[0]), 0)
        work = f"{WRITERS} processes x {sizes[2]} upserts x {sizes[1]:,} rows"
        print(f"{sizes[0]:,} rows x {len(SCHEMA)} columns; {work}")
        for name in args.engines.split(","):
            away = name in ELSEWHERE and not args.here
            result = told(name, args.small) if away else measured(name, str(folder / name), data, sizes)
            if result is None:
                continue
            figures[name] = result
            print(
                f"{name:10} {result['commits']:3} of {result['tried']} commits   {result['commits/s']:7.1f} commits/s"
                f"   read {result['read s']:.2f} s   {result['first error']}"
            )
        if Ours.name in figures:
            figures["apart"] = apart(folder, data, sizes)
            figures["reads"] = reads(folder, data, sizes, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


def measured(name: str, path: str, data: pa.Table, sizes: tuple[int, int, int]) -> dict[str, Any] | None:
    """The figures of an engine of this environment; None where it is not installed."""
    engine = ENGINES[name]
    try:
        engine.load(path, data)
    except ImportError as error:
        print(f"{name:10} not installed: {error.name}")
        return None
    result = story(name, [path] * WRITERS, sizes)
    engine.read(path)
    start = time.perf_counter()
    engine.read(path)
    return {**result, "read s": time.perf_counter() - start}


def apart(folder: Path, data: pa.Table, sizes: tuple[int, int, int]) -> float:
    """Commits a second of writers of ours that never meet, each with a table of its own: what is left are no races."""
    paths = [str(folder / f"apart {writer}") for writer in range(WRITERS)]
    for path in paths:
        Ours.load(path, data)
    found = float(story(Ours.name, paths, sizes)["commits/s"])
    print(f"{Ours.name}, where each writer has a table of its own {found:19.1f} commits/s")
    return found


def reads(folder: Path, data: pa.Table, sizes: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Our snapshot reads against their floors."""
    import crdt_mor as mor

    loose = str(folder / "never compacted")
    table = mor.Table.create(loose, SCHEMA, key="id", buckets=BUCKETS)
    table.set_properties({"crdt_mor.maintain": "off"})
    table.append(data)
    for writer in range(WRITERS):
        for number in range(sizes[2]):
            table.upsert(batch(sizes[0], sizes[1], writer, number))
    found = {}
    compacted = mor.Table(folder / Ours.name)
    for label, current in (("after the story", compacted), ("never compacted", table), ("after compaction", compacted)):
        if label == "after compaction":
            current.maintenance.compact()
        parts = folder / f"parts {label}"
        parts.mkdir()
        uri = current.uri
        ours, every, same = paired((lambda uri=uri: Ours.read(uri), *floors_of(current, parts)), rounds)
        seconds = statistics.median(ours)
        found[label] = {"ours s": seconds, "floor": ratio(ours, every), "ten columns": ratio(ours, same)}
        print(
            f"read, {label:17} {seconds * 1000:5.0f} ms = {ratio(ours, every):.2f} x polars decoding "
            f"the same files, {ratio(ours, same):.2f} x only the ten columns of them"
        )
    return found


if __name__ == "__main__":
    main()
