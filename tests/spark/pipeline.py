"""A driver of streaming queries, as a process of its own that can be killed: `python -m tests.spark.pipeline ...`

Each query reads the JSON files of its folder, a few at a time, and upserts them into the one table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.spark.sessions import LOCAL, start


def main() -> None:
    """Run until all files are written (`--once`) or for ever."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--home", required=True, type=Path, help="holds <query>/in and <query>/checkpoint")
    parser.add_argument("--queries", required=True, help="names, separated by commas")
    parser.add_argument("--master", default=LOCAL)
    parser.add_argument("--files", default="1", help="how many files a batch takes")
    parser.add_argument("--schema", default="id long, n long", help="the columns of the rows")
    parser.add_argument("--once", action="store_true")
    asked = parser.parse_args()

    # Executors are killed all the time here, and no number of losses may end the application.
    spark = start(asked.master, spark__task__maxFailures=100, spark__deploy__maxExecutorRetries=-1)
    queries = []
    for name in asked.queries.split(","):
        home = asked.home / name
        source = spark.readStream.schema(asked.schema).option("maxFilesPerTrigger", asked.files)
        writer = source.json(str(home / "in")).writeStream.format("crdt_mor").queryName(name)
        writer = writer.option("checkpointLocation", str(home / "checkpoint"))
        if asked.once:
            writer = writer.trigger(availableNow=True)
        queries.append(writer.start(asked.table))
    if asked.once:
        for query in queries:
            query.awaitTermination()
    else:
        spark.streams.awaitAnyTermination()
    spark.stop()


if __name__ == "__main__":
    main()
