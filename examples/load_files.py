"""Four processes load twenty files into one table at once; loading them again changes nothing.

    python examples/load_files.py FOLDER

Each file is one commit. Its token, (file name, 1), makes it count exactly once, however often and by whomever the file
is loaded. Processes are spawned: a forked one would inherit threads that do not run in it.
"""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("order_id", pa.int64()), ("shop", pa.string()), ("amount", pa.float64())])


def write_files(folder: Path, files: int = 20, rows: int = 100) -> list[Path]:
    """Files as a daily export might leave them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"orders-{number:02}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        ids = range(number * rows, (number + 1) * rows)
        shops = [f"shop-{i % 7}" for i in ids]
        pl.DataFrame({"order_id": ids, "shop": shops, "amount": [1.5] * rows}).write_parquet(path)
    return paths


def load(uri: str, path: Path) -> bool:
    """Load one file; whether it had been loaded before."""
    return mor.Table(uri).upsert(pl.read_parquet(path), token=(path.name, 1)).repeated


def main(folder: str) -> None:
    paths = write_files(Path(folder, "export"))
    uri = str(Path(folder, "orders"))
    table = mor.Table.create(uri, SCHEMA, key="order_id")

    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        first = list(pool.map(load, [uri] * len(paths), paths))
        again = list(pool.map(load, [uri] * len(paths), paths))

    orders = table.scan().to_polars()
    print(f"{len(paths)} files, {orders.height} rows, {orders['amount'].sum()} in total")
    print(f"loaded before: {sum(first)} the first time, {sum(again)} the second time")
    assert not any(first)
    assert all(again)
    assert orders.height == 2000
    assert orders["order_id"].n_unique() == 2000


if __name__ == "__main__":
    main(sys.argv[1])
