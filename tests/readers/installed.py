"""Runs the tests of libraries that tables are used from, in an environment with these libraries.

    python -m tests.readers.installed           # what follows goes to pytest

pip makes the environment below `.venvs`, from tests/readers/requirements.txt and the versions of requirements.lock.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.environments import ROOT, environment, locked

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
NEEDED = (
    "cloudpickle", "duckdb", "editables", "fastavro", "hatch-fancy-pypi-readme", "hatchling", "hypothesis", "numpy",
    "obstore", "pandas", "polars", "prometheus-client", "pyarrow", "pytest", "rich", "typer",
)  # fmt: skip
TESTS = ("tests/test_use_from.py", *(f"tests/readers/test_{name}.py" for name in ("dagster", "dlt", "ray")))


def lines() -> list[str]:
    """The requirements of the environment."""
    pinned = [line for line in locked() if re.split(r"[=\[ ]", line)[0] in NEEDED]
    return [*pinned, *(line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#"))]


def main(arguments: list[str]) -> int:
    """Test in the environment."""
    python = environment("libraries", sys.executable, lines())
    command = [str(python), "-m", "pytest", "-m", "", "-rs", *TESTS, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
