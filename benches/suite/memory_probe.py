"""Peak memory and time of one read in a process of its own, without what its imports took.

    python -m benches.suite.memory_probe READER < question.pickle

Prints JSON: MiB at the peak above the baseline, MiB of what was read and kept, and seconds, also of the processor. A
peak is the kernel's mark of this process' own memory (VmHWM); `ru_maxrss` begins, in a child, with what its parent had,
and is used where there is none.
"""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from benches.suite.peers import Pieces, Query, duckdb_sql, floors, hudi_rs, ours
from benches.suite.rounds import drain
from benches.suite.sources import Sources

MIB = 1 << 20
STATUS = Path("/proc/self/status")


def _only(ways: dict[str, Callable[[], Pieces]], name: str) -> Pieces:
    return next(ways[way] for way in ways if way.startswith(name))()


READERS: dict[str, Callable[[Sources, Query], Pieces]] = {
    "ours": ours,
    "floor": lambda sources, query: _only(floors(sources, query), "files"),
    "hudi-rs": hudi_rs,
    "DuckDB": lambda sources, query: _only(duckdb_sql(sources, query), "anti join"),
}


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def ask(reader: str, sources: Sources, query: Query) -> dict[str, float]:
    """Measure one reader in a fresh process; it gets paths, so that its baseline holds no rows."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "benches.suite.memory_probe", reader]
    question = pickle.dumps((sources.bare, query))
    done = subprocess.run(command, input=question, capture_output=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, float] = json.loads(done.stdout)
    return found


def slice_mib(sources: Sources, columns: tuple[str, ...]) -> float:
    """The largest file slice: all its rows decoded, the given columns."""
    sizes = []
    for group in sources.groups:
        files = [sources.bases[group]] if group in sources.bases else []
        files += [block.file for block in sources.blocks if block.group == group]
        sizes.append(pl.scan_parquet(files, glob=False).select(columns).collect().estimated_size())
    return max(sizes) / MIB


def size(piece: Any) -> int:
    """Bytes of a result."""
    return int(piece.estimated_size()) if isinstance(piece, pl.DataFrame) else int(piece.nbytes)


def main() -> None:
    import duckdb  # noqa: F401  part of the baseline, as are all readers
    import hudi  # noqa: F401

    sources, query = pickle.load(sys.stdin.buffer)
    baseline, wall, cpu = peak(), time.perf_counter(), time.process_time()
    pieces = READERS[sys.argv[1]](sources, query)
    if query.output == "batches":
        drain(lambda: pieces)()
        kept = []
    else:
        kept = list(pieces)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = {"peak": (peak() - baseline) / MIB, "result": sum(map(size, kept)) / MIB}
    print(json.dumps({**memory, "wall": wall, "cpu": cpu}))


if __name__ == "__main__":
    main()
