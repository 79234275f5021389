"""Three processes count the same pages at once, and no increment is lost or counted twice.

    python examples/counters.py FOLDER

A column with the payload `Counter` is written as an increment and shows the total. The token makes a batch of counts
count once, so a process that does not know whether its write arrived just writes again.
"""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.payloads import Counter, Max

SCHEMA = pa.schema([("page", pa.string()), ("views", pa.int64()), ("slowest_ms", pa.int64())])
PAGES, BATCHES = ["home", "blog", "shop"], 10


def count(uri: str, writer: int) -> None:
    """Ten batches, each of them written twice, as after a timeout."""
    table = mor.Table(uri)
    for number in range(BATCHES):
        batch = pl.DataFrame({"page": PAGES, "views": [1, 2, 3], "slowest_ms": [writer * 100 + number] * 3})
        for _attempt in range(2):
            table.upsert(batch, token=(f"writer-{writer}", number))


def main(folder: str) -> None:
    uri = str(Path(folder, "pages"))
    table = mor.Table.create(uri, SCHEMA, key="page", merge={"views": Counter(), "slowest_ms": Max()})

    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(count, [uri] * 3, range(3)))

    pages = table.scan().to_polars().sort("views")
    print(pages)
    assert pages.rows() == [("home", 30, 209), ("blog", 60, 209), ("shop", 90, 209)]
    table.maintenance.compact()
    assert table.scan().to_polars().sort("views").equals(pages)


if __name__ == "__main__":
    main(sys.argv[1])
