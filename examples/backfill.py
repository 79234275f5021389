"""A backfill fills one column of old rows while the application goes on writing the others.

    python examples/backfill.py FOLDER

In a table with `PartialUpdate` an upsert may leave columns out, which stay as they were. So the backfill reads nothing
and overwrites nothing: it gives `country`, and the application gives `clicks`, in whatever order they land.
"""

import multiprocessing
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("visitor", pa.int64()), ("clicks", pa.int64()), ("country", pa.string())])
ROWS, CHUNK = 2_000, 200


def backfill(uri: str) -> None:
    """Give `country`, chunk by chunk; what an earlier run has written is not written again."""
    table = mor.Table(uri)
    for number, first in enumerate(range(0, ROWS, CHUNK)):
        ids = range(first, first + CHUNK)
        chunk = pl.DataFrame({"visitor": ids, "country": ["NO" if i % 2 else "IT" for i in ids]})
        try:
            table.upsert(chunk, token=("backfill-country", number))
        except mor.TokenOrderError:
            print(f"chunk {number}: an earlier run is beyond it")


def main(folder: str) -> None:
    uri = str(Path(folder, "visitors"))
    table = mor.Table.create(uri, SCHEMA, key="visitor", merge=mor.PartialUpdate())
    table.upsert(pl.DataFrame({"visitor": range(ROWS), "clicks": [0] * ROWS}))

    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=backfill, args=(uri,))
    process.start()
    for clicks in range(1, 11):  # the application, meanwhile: it knows no country
        table.upsert(pl.DataFrame({"visitor": range(0, ROWS, 10), "clicks": [clicks] * (ROWS // 10)}))
    process.join()
    backfill(uri)  # started once more by mistake: the tokens say that all is done

    visitors = table.scan().to_polars()
    print(visitors.group_by("country", "clicks").len().sort("country", "clicks"))
    assert process.exitcode == 0
    assert visitors.height == ROWS
    assert visitors["country"].null_count() == 0
    assert visitors.filter(pl.col("visitor") % 10 == 0)["clicks"].unique().to_list() == [10]


if __name__ == "__main__":
    main(sys.argv[1])
