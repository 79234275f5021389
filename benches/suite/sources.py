"""What the peers read: the Parquet bytes of a table, laid open as plain files.

Each log block of rows becomes a Parquet file beside the table, byte for byte, and is kept as a buffer as well; deletes
become one file of keys. `order` is the rank of a block's commit among the commits of the logs; the base comes before
all of them, but in a table with a straggler, where each row's own commit time says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

import crdt_mor as mor
from benches.suite.worlds import World
from crdt_mor.format.log import BlockKind, decode_deletes, read_log

TIME = "_hoodie_commit_time"


@dataclass(frozen=True)
class Block:
    """A log block of rows: its file, its bytes, its columns, and the instant of its commit."""

    file: str
    buffer: bytes
    columns: tuple[str, ...]
    instant: str
    group: str


@dataclass(frozen=True)
class Sources:
    """A table's files, for engines that know nothing of tables."""

    world: World
    table: Path
    bases: dict[str, str]
    """By file group."""
    blocks: tuple[Block, ...]
    """In the order of their commits."""
    deletes: pl.DataFrame
    """`id`, the commit's time, and in a table with an ordering column its value."""
    delete_file: str
    """The same as a Parquet file."""

    @property
    def groups(self) -> list[str]:
        """The file groups."""
        return sorted({*self.bases, *(block.group for block in self.blocks)})

    @property
    def timed(self) -> bool:
        """Whether base rows may be younger than log blocks."""
        return self.world.straggler != ""

    @property
    def bare(self) -> Sources:
        """Paths alone, without what is held in memory."""
        return replace(self, blocks=tuple(replace(b, buffer=b"") for b in self.blocks), deletes=self.deletes.clear())


def lay_open(world: World, path: Path) -> Sources:
    """Read every file of the table's newest snapshot."""
    folder = path.with_name(path.name + "-open")
    folder.mkdir(exist_ok=True)
    bases: dict[str, str] = {}
    blocks: list[Block] = []
    deletes: list[pl.DataFrame] = []
    for row in mor.Table(path).inspect.files().to_pylist():
        file = path / row["path"]
        if row["kind"] == "base":
            bases[row["file_id"]] = str(file)
            continue
        for block in read_log(file.read_bytes(), str(file)):
            if block.kind is BlockKind.PARQUET:
                buffer = bytes(block.content)
                part = folder / f"{block.instant}-{row['file_id']}-{block.offset}.parquet"
                part.write_bytes(buffer)
                names = tuple(pq.read_schema(part).names)
                blocks.append(Block(str(part), buffer, names, block.instant, row["file_id"]))
            else:
                (gone,) = decode_deletes([block])
                deletes.append(
                    gone.select(
                        pl.col("record_key").alias("id"),
                        pl.lit(str(block.instant)).alias(TIME),
                        *([pl.col("ordering").alias("stamp")] if world.merge == "ordering" else []),
                    )
                )
    blocks.sort(key=lambda block: (block.instant, block.group))
    empty = pl.DataFrame(schema={"id": pl.String, TIME: pl.String})
    every, file = pl.concat(deletes) if deletes else empty, folder / "deletes.parquet"
    every.write_parquet(file)
    return Sources(world, path, bases, tuple(blocks), every, str(file))
