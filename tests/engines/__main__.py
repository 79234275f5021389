"""Engines read mirrors of tables of every shape and must give the rows of `scan()`, or refuse as `known.py` lists.

    python -m tests.engines light            # engines that pip installs, and a REST catalog: CI runs these
    python -m tests.engines all              # and Spark, Trino, Hive's metastore and Nessie
    python -m tests.engines versions         # 50 versions of a table that three processes write meanwhile
    python -m tests.engines duckdb-delta     # some, by name
    python -m tests.engines light --long     # a table of 1,000 file slices instead of 40
    python -m tests.engines light --folder DIR [--shapes ordering,deletes]    # keeps the tables

Environments are made below `.venvs` by pip, from the files in `tests/engines/requirements`. The tables and their
mirrors are made there by this tree, and each engine reads them in a process of its own. Spark and servers need Java 17
and Maven. `registering.py` moves entries of catalogs. In `keeping.py`, engines try to delete files and rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.engines.engine import built
from tests.engines.jobs import GROUPS, JOBS, Job
from tests.engines.known import expected
from tests.engines.reading import engines
from tests.engines.servers import SERVERS
from tests.environments import ROOT, environment

REQUIREMENTS = Path(__file__).with_name("requirements")
MINUTES = 30
"""The longest time of one engine, also on a busy machine. Then its process ends, and the reads that are left fail."""


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


def count_of(job: Job, folder: Path) -> int:
    """How many answers a job gives at least."""
    if job.module != "reading":
        return 1
    (mirrors,) = (each.mirrors for each in engines() if each.name == job.name)
    return 2 * sum(len(built(folder, mirror)) for mirror in mirrors)


def done(job: Job, folder: Path) -> list[str]:
    """Let an engine do its job, and print the problems; return them."""
    ended = run(
        python_of(job.requirements), f"tests.engines.{job.module}", job.argument or job.name, str(folder), folder=folder
    )
    answers = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    problems = judge(job.name, answers)
    if ended.returncode or len(answers) <= count_of(job, folder):
        problems.append(f"{job.name}: {len(answers) - 1} of {count_of(job, folder)} answers; {ended.stderr[-1000:]}")
    sys.stdout.write("".join(f"{each}\n" for each in problems))
    sys.stdout.flush()
    return problems


def start(name: str, folder: Path, stack: ExitStack) -> None:
    """Start a server until the end of the stack; a catalog gets an entry for every shape."""
    os.environ[f"ENGINES_{name.upper()}"] = stack.enter_context(SERVERS[name].start(folder / "servers" / name))
    if SERVERS[name].is_catalog:
        python = python_of(SERVERS[name].requirements)
        run(python, "tests.engines.catalogs", name, str(folder), folder=folder).check_returncode()


def all_done(jobs: Iterable[Job], folder: Path) -> list[str]:
    """Do the jobs with the servers that they need; the problems."""
    problems, running = list[str](), set[str]()
    with ExitStack() as stack:
        for job in jobs:
            lack = job.lack()
            if lack:
                sys.stdout.write(f"{job.name:20} SKIPPED: {lack}\n")
                continue
            for server in job.servers:
                if server not in running:
                    start(server, folder, stack)
                    running.add(server)
            problems += done(job, folder)
    return problems


def main(arguments: list[str]) -> int:
    """Build the mirrors and let the engines read them; return 1 if a read differs from its known verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="+", choices=[*GROUPS, *JOBS], metavar="ENGINE")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--shapes", default="")
    asked = parser.parse_args(arguments)
    jobs = dict.fromkeys(job for given in asked.engines for job in GROUPS.get(given) or (JOBS[given],))
    with tempfile.TemporaryDirectory(prefix="crdt-mor-engines-") as temporary:
        folder = (asked.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        shapes = [name for name in asked.shapes.split(",") if name]
        options = [str(folder), *["--long"] * asked.long, *shapes]
        made = run(python_of("light"), "tests.engines.mirrors", *options, folder=folder)
        if made.returncode:
            sys.stderr.write(made.stderr)
            return 1
        problems = all_done(jobs, folder)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
