"""Spark on our tables, on plain Parquet and, in Spark 4.0 and 4.2, on Delta, in one run.

    jobs     a load, upserts, aggregates, and three jobs on the same keys at once     (benches/spark_jobs.py)
    scale    10,000 file groups; 200 partitions x 8 with 20,000,000 rows              (benches/spark_scale.py)
    reading  beside Spark's own reader of the same files                              (benches/spark_read.py)
    writing  upserts beside plain Parquet, small and large, on one core and on two    (benches/spark_write.py)

Needs pyspark and Java 17; for Delta Spark 4.0 or 4.2, as `python -m tests.spark.versions 4.0` installs it, and Maven.

    .venvs/spark-4.0/bin/python benches/spark.py          # all of them
    python benches/spark.py jobs                          # one of them
    python benches/spark.py --small
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec

from benches import spark_jobs, spark_read, spark_scale, spark_write
from benches.spark_engines import delta_jars

PARTS: dict[str, Callable[[list[str], bool], None]] = {
    "jobs": spark_jobs.run,
    "scale": spark_scale.run,
    "reading": spark_read.run,
    "writing": spark_write.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = [*PARTS, []]  # argparse of Python 3.11 asks them of no part at all as well
    parser.add_argument("parts", nargs="*", choices=choices, metavar="PART", help="by default all")
    parser.add_argument("--small", action="store_true", help="a size of seconds")
    asked = parser.parse_args()
    if find_spec("pyspark") is None:
        print("skipped: pip install 'crdt-mor[spark]', and have Java 17")
        return
    jars = delta_jars()
    for name in asked.parts or PARTS:
        print(f"-- {name}")
        PARTS[name](jars, asked.small)


if __name__ == "__main__":
    main()
