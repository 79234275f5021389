"""Engines read mirrors of tables of every shape and must give the rows of `scan()`, or refuse as `known.py` lists.

    python -m tests.engines light            # engines that pip installs: CI runs these
    python -m tests.engines all              # and Spark, which needs Java 17 and Maven
    python -m tests.engines duckdb-delta     # some, by name
    python -m tests.engines light --long     # a table of 1,000 file slices instead of 40
    python -m tests.engines light --folder DIR [--shapes ordering,deletes]    # keeps the tables

Environments are made below `.venvs` by pip, from the files in `tests/engines/requirements`. The tables and their
mirrors are made there by this tree, and each engine reads them in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.engines.engine import built
from tests.engines.known import expected
from tests.engines.reading import engines
from tests.environments import ROOT, environment

REQUIREMENTS = Path(__file__).with_name("requirements")
LIGHT = (
    "pyiceberg", "duckdb-iceberg", "duckdb-delta", "polars-iceberg", "polars-delta", "delta-rs", "delta-rs-pyarrow",
     "datafusion-delta", "clickhouse-iceberg", "clickhouse-delta", "daft-iceberg", "daft-delta",
)  # fmt: skip
HEAVY = ("spark-iceberg", "spark-delta")
MINUTES = 10
"""The longest time of one engine. Then its process ends, and the reads that are left fail."""


def lines(name: str) -> list[str]:
    """The requirements in a file."""
    return [line for line in (REQUIREMENTS / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]


def python_of(name: str) -> Path:
    """The Python of the environment of light or of heavy engines."""
    made = environment(f"engines-{name}", sys.executable, [*lines("own"), *lines(name)])
    return made.absolute()


def run(python: Path, module: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of this tree in an environment; ClickHouse reads only below its working directory."""
    command = [str(python), "-m", module, *arguments]
    set_up = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "Asia/Kolkata", "POLARS_ICEBERG_PLANNER": "pyiceberg"}
    try:
        return subprocess.run(
            command, cwd=folder, env=set_up, capture_output=True, text=True, check=False, timeout=MINUTES * 60
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else ""
        return subprocess.CompletedProcess(command, 1, said, f"not done after {MINUTES} minutes")


def problem(engine: str, read: dict[str, Any]) -> str:
    """Return the fault of a read, or ""."""
    known = expected(engine, read["mirror"], read["shape"], filtered=read["filtered"])
    if known and known.sometimes and read["verdict"] == "equal":
        return ""
    verdict = "refused" if known else "equal"
    if read["verdict"] != verdict:
        return f"{read['verdict']} instead of {verdict}: {read['text'][:400]}"
    if known and known.words not in read["text"]:
        return f"{verdict} in other words: {read['text'][:400]}"
    return ""


def judge(engine: str, answers: Iterable[dict[str, Any]]) -> list[str]:
    """Print a line for each mirror that an engine read; the problems."""
    version, problems = "", []
    counts: dict[str, Counter[str]] = {}
    for read in answers:
        if "version" in read:
            version = read["version"]
            continue
        counts.setdefault(read["mirror"], Counter())[read["verdict"]] += 1
        wrong = problem(engine, read)
        if wrong:
            problems.append(f"{engine} {read['mirror']} {read['shape']}{' filtered' * read['filtered']}: {wrong}")
    for mirror, verdicts in counts.items():
        sys.stdout.write(f"{engine:20} {version:8} {mirror:16} {dict(verdicts)}\n")
    return problems


def engine_reads(engine: str, python: Path, folder: Path) -> list[str]:
    """Let an engine read all mirrors; the problems."""
    done = run(python, "tests.engines.reading", engine, str(folder), folder=folder)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    problems = judge(engine, answers)
    (mirrors,) = (each.mirrors for each in engines() if each.name == engine)
    reads = 2 * sum(len(built(folder, mirror)) for mirror in mirrors)
    if done.returncode or len(answers) != reads + 1:
        problems.append(f"{engine}: {len(answers) - 1} of {reads} reads; {done.stderr[-1000:]}")
    sys.stdout.flush()
    return problems


def main(arguments: list[str]) -> int:
    """Build the mirrors and let the engines read them; return 1 if a read differs from its known verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="+", choices=["light", "all", *LIGHT, *HEAVY], metavar="ENGINE")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--shapes", default="")
    asked = parser.parse_args(arguments)
    groups = {"light": LIGHT, "all": (*LIGHT, *HEAVY)}
    names = dict.fromkeys(name for given in asked.engines for name in groups.get(given, (given,)))
    with tempfile.TemporaryDirectory(prefix="crdt-mor-engines-") as temporary:
        folder = (asked.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        shapes = [name for name in asked.shapes.split(",") if name]
        light = python_of("light")
        made = run(light, "tests.engines.mirrors", str(folder), *["--long"] * asked.long, *shapes, folder=folder)
        if made.returncode:
            sys.stderr.write(made.stderr)
            return 1
        problems = []
        for name in names:
            if name in HEAVY and not (shutil.which("java") and shutil.which("mvn")):
                sys.stdout.write(f"{name:20} skipped: no Java or no Maven on this machine\n")
                continue
            problems += engine_reads(name, python_of("heavy") if name in HEAVY else light, folder)
    sys.stdout.write("".join(f"{each}\n" for each in problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
