"""A table is a folder: copy it or move it as one, while nobody writes. Beside writers, use `Table.copy`.

    python examples/copy_and_move.py FOLDER

No path is stored inside, except in an Iceberg mirror, so a moved table is the same table: its commits, its moments,
its checkpoints go on. A copy keeps them, too, and with them the id of its original, so nothing tells the two apart:
from now on write to one alone, or keep a checkpoint of your own for each.
"""

import shutil
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa

import crdt_mor as mor

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def main(folder: str) -> None:
    old, new, backup = (Path(folder, name) for name in ("names", "moved", "backup"))
    table = mor.Table.create(str(old), SCHEMA, key="id")
    first = table.upsert(pl.DataFrame({"id": [1, 2], "name": ["Ann", "Bob"]}), token=("import", 1))
    checkpoint = table.changes().checkpoint
    table.upsert(pl.DataFrame({"id": [2], "name": ["Bea"]}))

    shutil.copytree(old, backup)  # cp -r names backup: whole, with the hidden folder .hoodie
    shutil.move(old, new)  # mv names moved
    moved, copy = mor.Table(str(new)), mor.Table(str(backup))  # handles of the old place are of no use

    # The moved table goes on: moments, checkpoints and tokens are what they were.
    assert sorted(moved.scan(as_of=first).to_polars().rows()) == [(1, "Ann"), (2, "Bob")]
    assert moved.changes(since=checkpoint).to_polars().rows() == [(2, "Bea", "upsert")]
    assert moved.upsert(pl.DataFrame({"id": [1], "name": ["Ann"]}), token=("import", 1)).repeated
    moved.upsert(pl.DataFrame({"id": [3], "name": ["Eve"]}))

    # The copy is what the table was, and lives on its own.
    print("moved:", sorted(moved.scan().to_polars().rows()))
    print("copy: ", sorted(copy.scan().to_polars().rows()))
    assert copy.scan().to_polars().height == 2
    assert copy.changes(since=checkpoint).commits == 1

    # What to mind: the copy believes a checkpoint of the other table that lies ahead of it to be its own, once its
    # clock has passed it, and would leave out what it wrote before. Until then it says so.
    ahead = moved.changes().checkpoint
    try:
        copy.changes(since=ahead)
    except mor.InvalidInputError as error:
        print(error)
    else:
        raise AssertionError("a checkpoint of the future is refused")


if __name__ == "__main__":
    main(sys.argv[1])
