"""Builds every shape with its mirrors and writes the expected rows beside it.

    python -m tests.engines.mirrors FOLDER [--long] [SHAPE ...]

`FOLDER/<set>/<shape>/table` is the table. The sets differ in the mirrors that a table has.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import crdt_mor as mor
from tests.engines.shapes import Shape, shapes

Kinds = dict[Literal["delta", "iceberg"], dict[str, Any]]

SETS: dict[str, Kinds] = {
    "plain": {"iceberg": {}, "delta": {}},
    "other": {"iceberg": {"deletes": "vectors"}, "delta": {"deletes": "rewrite"}},
}
"""Arguments of `table.mirror` by set and kind."""


def publish(table: mor.Table, kinds: Kinds) -> None:
    for kind, options in kinds.items():
        table.mirror(kind, **options)


def write(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table.unify_dictionaries())


def build(shape: Shape, folder: Path, kinds: Kinds) -> None:
    """Build a shape, its mirrors and its expected rows."""
    folder.mkdir(parents=True)
    table = shape.build(folder, lambda table: publish(table, kinds))
    publish(table, kinds)
    write(table.scan().to_arrow(), folder / "all.arrow")
    write(table.scan(filter=shape.where).to_arrow(), folder / "some.arrow")
    (folder / "shape.json").write_text(json.dumps({"where": shape.where}))


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore", mor.errors.PartitionNotInKeyWarning)
    warnings.simplefilter("ignore", mor.errors.TableMovedWarning)
    folder, *names = [a for a in arguments if a != "--long"]
    for shape in shapes(long="--long" in arguments):
        if not names or shape.name in names:
            for of_set, kinds in SETS.items():
                build(shape, Path(folder, of_set, shape.name), kinds)


if __name__ == "__main__":
    main(sys.argv[1:])
