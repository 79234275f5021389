"""What a merge reads: the contributions of one file slice, without the names of the files they came from.

base        Parquet: the fold of everything before some moment; each key at most once
blocks      sorted in START_COMMIT_TIME order: (requested time, file, place in the file)
  DataBlock     rows that one commit wrote (or that a compaction carries, each with a requested time of its own)
  DeleteBlock   keys that one commit deleted: plainly, or as versions with an ordering value (tombstones)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.resolution import Resolution

COMMIT_TIME = "_hoodie_commit_time"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
SEQUENCE = "_hoodie_commit_seqno"
META_COLUMNS = (COMMIT_TIME, SEQUENCE, RECORD_KEY, PARTITION_PATH, "_hoodie_file_name")


NEVER_COMPARED = ""
"""The value of `Slice.base_latest` where a run of log blocks plays the base and is not the first. The rows of the run
that other blocks touch are in a log block as well, so that base and logs need no comparison."""


@dataclass(frozen=True, slots=True)
class DataBlock:
    """Rows of one commit: the bytes of a Parquet file, in which each key occurs at most once, or a frame.

    given: the user columns that these rows set; None: all columns of the file. Only partial updates look at it.
    unset: in a table with a partial update mode of Hudi's, the values of a row that leave a column as it is.
    own_times: each row has a requested time of its own, in `_hoodie_commit_time`, instead of `instant`.
    continues: the block before it is of the same commit and file, and has no key of this one, so that the run of both
        counts as one block. A slice whose first load is such a run is read in half the processor time.
    height: the number of rows, if the commit says it. Opening footers for it costs a tenth of a merge of small blocks.
    """

    instant: str
    rows: bytes | memoryview | pl.DataFrame
    given: tuple[str, ...] | None = None
    own_times: bool = False
    continues: bool = False
    height: int | None = None
    unset: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteBlock:
    """Deleted keys: a frame with `_hoodie_record_key`.

    With a column `ordering` these are tombstones, versions like any other; a null there makes a plain delete.
    With a column `time` each delete has a requested time of its own, instead of `instant`.
    """

    instant: str
    keys: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Slice:
    """One file slice, or the part of one that has all keys of some range.

    `base_latest` is the latest requested time that `base` folded in, if it is known. `base_rows`: the first of its rows
    that belong to the part, and how many do; None: all.
    """

    base: ParquetSource | None = None
    base_latest: str | None = None
    blocks: tuple[DataBlock | DeleteBlock, ...] = ()
    base_rows: tuple[int, int] | None = None
    base_ranges: tuple[tuple[int, int], ...] | None = None
    """Where only some keys are asked for: the first row and the number of rows of each range of the base that may have
    them. A merge of other keys would be wrong, and the predicate leaves these out. None: all."""
    resolution: Resolution | None = None
    """What an earlier merge of the same files has found out; None: they are to be merged."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The table's user columns and their types now; a file may lack the newer ones, or hold a narrower type.

    `key_column` is the one user column whose text is the record key, if there is one: reading it saves a column.
    `numbered` are columns of texts that a file of Hudi's may hold as integers, whose texts are the column's values.
    """

    stored: Mapping[str, pl.DataType]
    key_column: str | None = None
    numbered: frozenset[str] = frozenset()

    @classmethod
    def of(cls, stored: pa.Schema, key_column: str | None = None, numbered: frozenset[str] = frozenset()) -> Columns:
        """From the stored Arrow schema (user columns only)."""
        frame = pl.from_arrow(pa.Table.from_batches([], stored))
        assert isinstance(frame, pl.DataFrame)
        return cls(dict(frame.schema), key_column, numbered)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Every column that a file of this table can have."""
        return {**dict.fromkeys(META_COLUMNS, pl.String()), **self.stored}

    @property
    def merge_key(self) -> str:
        """The column to compare keys by: the user's own where that is exact, else the record key's text."""
        if self.key_column is None:
            return RECORD_KEY
        dtype = self.stored[self.key_column]
        return self.key_column if dtype == pl.String or dtype.is_integer() else RECORD_KEY

    def by_text(self) -> Columns:
        """These columns, with keys compared as text."""
        return replace(self, key_column=None)

    def select_all(self) -> list[str]:
        """Hudi's five columns, then the user's."""
        return [*META_COLUMNS, *self.stored]

    def select_own(self) -> list[str]:
        """Time, sequence number and record key, then the user's columns: what differs from row to row of one file."""
        return [COMMIT_TIME, SEQUENCE, RECORD_KEY, *self.stored]


def is_partial(block: DataBlock | DeleteBlock) -> bool:
    """Whether a block says that its rows leave columns as they are."""
    return isinstance(block, DataBlock) and (block.given is not None or bool(block.unset))


def distinct(*names: Sequence[str]) -> list[str]:
    """All the names, each once, in order."""
    return list(dict.fromkeys(name for some in names for name in some))
