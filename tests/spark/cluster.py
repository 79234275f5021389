"""Runs the tests of a cluster, the long ones too, in an environment that has Spark Connect.

    python -m tests.spark.cluster                  # all of them
    python -m tests.spark.cluster -k kills         # arguments go to pytest

The environment is made once, below `.venvs`, with the versions of `requirements.lock`.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tests.environments import LOCK, ROOT, environment, locked

FILES = ("test_cluster*.py", "test_connect.py", "test_chaos.py", "test_day.py")
"""Below tests/spark."""


def main(arguments: list[str]) -> int:
    """Run the tests; the exit code of pytest."""
    spark = [re.sub("^pyspark", "pyspark[sql,connect]", line) for line in locked_spark()]
    python = environment("spark-cluster", sys.executable, [*locked(), *spark])
    files = sorted(str(path) for name in FILES for path in (ROOT / "tests" / "spark").glob(name))
    options = ["-q", "-m", "spark", "-o", "faulthandler_timeout=7200", "--durations=0", "--durations-min=5"]
    return subprocess.run([str(python), "-m", "pytest", *options, *files, *arguments], cwd=ROOT, check=False).returncode


def locked_spark() -> list[str]:
    """The lines of the lock that `locked` leaves out and Spark needs."""
    return re.findall(r"^(?:pyspark|py4j).*", LOCK.read_text(), re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
