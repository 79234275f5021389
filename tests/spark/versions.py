"""Runs the tests of batches on older releases of Spark 4, each in a virtual environment of its own.

    python -m tests.spark.versions               # all of them
    python -m tests.spark.versions 4.0           # the oldest one

What follows `--` goes to pytest: CI runs every sixth test, by `4.0 -- --one-in 6`. Environments are made once, below
`.venvs`, with the versions of `requirements.lock` but for pyspark's. What needs a newer release (see
`crdt_mor.readers.spark.versions`) is tested with that of the lock alone.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from tests.environments import with_rest
from tests.spark.sessions import ROOT

RELEASES = ("4.0", "4.1", "4.2")
BATCHES = (
    "test_reading.py",
    "test_native.py",
    "test_writing.py",
    "test_sql.py",
    "test_catalog.py",
    "test_types.py",
    "test_variants.py",
    "test_failing.py",
    "test_versions.py",
    "test_updating.py",
    "test_merging.py",
    "test_threads.py",
    "test_typed_first.py",
)
"""Files of tests of what every release of Spark 4 can do."""


def environment(release: str) -> Path:
    """The Python of an environment with this release, which is made if it is not there."""
    folder = ROOT / ".venvs" / f"spark-{release}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        locked = (ROOT / "requirements.lock").read_text().splitlines()
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(line for line in locked if not line.startswith(("pyspark", "py4j"))))
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
        subprocess.run([*pip, f"pyspark[sql]=={release}.*", "pytest", "hypothesis", "hudi"], check=True)
        subprocess.run([*pip, "-e", str(ROOT)], check=True)
        ready.touch()
    return python


def main(arguments: list[str]) -> int:
    """Test the releases one after the other; 1 if one of them fails."""
    releases, more = with_rest(arguments)
    if not set(releases) <= set(RELEASES):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    failed = []
    for release in releases or RELEASES:
        sys.stderr.write(f"-- Spark {release}\n")
        files = [str(Path("tests", "spark", name)) for name in BATCHES]
        command = [str(environment(release)), "-m", "pytest", "-q", "-m", "spark and not slow", *more, *files]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(release)
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
