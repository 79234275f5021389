"""Functions that write: short processes count a few clicks each, and a batch that is delivered again counts once.

    python examples/functions.py FOLDER

`handler` is a function as AWS Lambda calls it with a batch of a Kinesis stream. The token is the shard and the position
of the batch's last record, so the runtime may call it again as often as it likes: after a timeout, an error, or for no
reason. Functions that write at the same moment need no queue before the table: their writes become one commit.
"""

import base64
import json
import os
import sys
from functools import cache
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.payloads import Counter

SCHEMA = pa.schema([("page", pa.string()), ("clicks", pa.int64())])


@cache
def table() -> mor.Table:
    """The table, opened once for all calls that the runtime gives to this process."""
    return mor.Table(os.environ["CLICKS_TABLE"])


def handler(event: dict, context: object) -> str:
    """Count the clicks of a batch; what raises, and what runs out of time, is called again by the runtime."""
    clicks = [json.loads(base64.b64decode(record["kinesis"]["data"])) for record in event["Records"]]
    shard, _, last = event["Records"][-1]["eventID"].partition(":")
    counted = pl.DataFrame(clicks).group_by("page").agg(pl.len().cast(pl.Int64).alias("clicks"))
    try:
        commit = table().upsert(counted, token=(shard, int(last)), commit_info={"application": "clicks"})
    except mor.TokenOrderError:
        return "older than what is counted"
    return "repeated" if commit.repeated else f"counted {commit.rows} pages"


def batch(shard: int, first: int, *pages: str) -> dict:
    """A batch as the runtime hands it over."""
    data = [base64.b64encode(json.dumps({"page": page}).encode()).decode() for page in pages]
    return {
        "Records": [
            {"eventID": f"shardId-{shard:012}:{first + i}", "kinesis": {"data": text}} for i, text in enumerate(data)
        ]
    }


def main(folder: str) -> None:
    os.environ["CLICKS_TABLE"] = str(Path(folder, "clicks"))
    mor.Table.create(os.environ["CLICKS_TABLE"], SCHEMA, key="page", merge={"clicks": Counter()})

    first, second = batch(0, 100, "home", "home", "blog"), batch(0, 103, "home")
    for event in (first, first, second, first, batch(1, 7, "blog")):  # two of them are delivered again
        print(handler(event, None))

    counts = table().scan().to_polars().sort("page")
    print(counts)
    assert counts.rows() == [("blog", 2), ("home", 3)]


if __name__ == "__main__":
    main(sys.argv[1])
