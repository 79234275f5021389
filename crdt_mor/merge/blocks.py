"""The input of a merge: the contributions of one file slice, without file names.

base        Parquet: the fold of everything before a moment; each key at most once
blocks      sorted by START_COMMIT_TIME: (requested time, file, position in the file)
  DataBlock     rows of one commit (or carried by a compaction, each with its own requested time)
  DeleteBlock   keys deleted by one commit: plainly, or as versions with an ordering value (tombstones)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
"""The `Slice.base_latest` of a run of log blocks that plays the base and is not first. Its rows with keys of other
blocks are in a log block too, so base and logs need no comparison.
"""


@dataclass(frozen=True, slots=True)
class DataBlock:
    """Rows of one commit: the bytes of a Parquet file, or a frame. Each key occurs at most once.

    given: the user columns that the rows set; None for all columns of the file. Only partial updates use it.
    nulls: the columns in which a null sets null, if the table's nulls otherwise leave the value.
    unset: in a table with one of Hudi's partial update modes, the values that leave a column unchanged.
    own_times: each row has its own requested time in `_hoodie_commit_time`, instead of `instant`.
    continues: the block before it belongs to the same commit and file and shares no key with it.
    height: the number of rows, if the commit contains it.
    """

    instant: str
    rows: bytes | memoryview | pl.DataFrame
    given: tuple[str, ...] | None = None
    own_times: bool = False
    continues: bool = False
    height: int | None = None
    unset: tuple[str | None, ...] = ()
    nulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteBlock:
    """Deleted keys: a frame with `_hoodie_record_key`.

    With a column `ordering` these are tombstones, versions like any other; null makes a plain delete. With a column
    `time` each delete has its own requested time, instead of `instant`.
    """

    instant: str
    keys: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Slice:
    """A file slice, or the part of it with all keys of a range.

    base_latest: the latest requested time folded into `base`, if known.
    base_rows: the part's first base row and number of rows; None for all.
    """

    base: ParquetSource | None = None
    base_latest: str | None = None
    blocks: tuple[DataBlock | DeleteBlock, ...] = ()
    base_rows: tuple[int, int] | None = None
    base_ranges: tuple[tuple[int, int], ...] | None = None
    """The base ranges, as first row and number of rows, that may contain the requested keys; None for all."""
    resolution: Resolution | None = None


@dataclass(frozen=True)
class Columns:
    """The table's user columns in their current types. A file may lack newer ones or contain a narrower type.

    key_column: the only user column whose text is the record key, if there is one.
    numbered: text columns that a file of Hudi may contain as integers with the same digits.
    widened: columns of decimals that a file may contain as integers or as decimals of fewer digits.
    """

    stored: Mapping[str, pl.DataType]
    key_column: str | None = None
    numbered: frozenset[str] = frozenset()
    widened: frozenset[str] = frozenset()

    @classmethod
    def of(cls, stored: pa.Schema, key_column: str | None = None, numbered: frozenset[str] = frozenset()) -> Columns:
        frame = pl.from_arrow(pa.Table.from_batches([], stored))
        assert isinstance(frame, pl.DataFrame)
        return cls(dict(frame.schema), key_column, numbered)

    @cached_property
    def schema(self) -> Mapping[str, pl.DataType]:
        return {**dict.fromkeys(META_COLUMNS, pl.String()), **self.stored}

    @cached_property
    def unscanned(self) -> frozenset[str]:
        """The columns of which a file may contain types that polars widens in no scan."""
        return self.numbered | self.widened

    @cached_property
    def merge_key(self) -> str:
        """The column that keys are compared by: the user's own if it is exact, otherwise the record key's text."""
        if self.key_column is None:
            return RECORD_KEY
        dtype = self.stored[self.key_column]
        return self.key_column if dtype == pl.String or dtype.is_integer() else RECORD_KEY

    def by_text(self) -> Columns:
        return replace(self, key_column=None)

    def select_all(self) -> list[str]:
        return [*META_COLUMNS, *self.stored]

    def select_own(self) -> list[str]:
        return [COMMIT_TIME, SEQUENCE, RECORD_KEY, *self.stored]


def is_partial(block: DataBlock | DeleteBlock) -> bool:
    return isinstance(block, DataBlock) and (block.given is not None or bool(block.unset))


def distinct(*names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for some in names for name in some))
