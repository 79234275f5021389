"""The keys that a reader asks for, as a condition on the merge key.

Contributions of one key mean the same whatever those of other keys are. So the rows and deletes of logs that have other
keys need be neither decoded nor merged, under any rule, and a payload sees no values of theirs.

A condition may compare keys with a set of thousands. polars makes the set anew for each Parquet file that it scans, and
looks up each key in it. So a large set is used only where that costs less than the merge of what it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from crdt_mor.merge.blocks import DataBlock, DeleteBlock

FEW_VALUES: Final = 100
"""A set of so many values costs less to make than a Parquet file of one row to open and scan."""

BYTES_OF_ROW: Final = 64
"""About how many bytes a row has in a block of which no number of rows is asked, as that would open its footer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition on the column `key` alone, which every row meets whose key is asked for.

    values: with how many values it compares a key.
    rows_of_value: the least number of rows in logs for each of these with which the condition pays.
    """

    key: str
    condition: pl.Expr
    values: int = 1
    rows_of_value: int = 50

    @property
    def is_few(self) -> bool:
        """Whether the condition costs nothing that matters."""
        return self.values <= FEW_VALUES

    def pays_among(self, blocks: Sequence[DataBlock | DeleteBlock]) -> bool:
        """Whether it costs less to hold the keys of these blocks against the condition than to merge all of them.

        Of 570,000 rows in 300 blocks it was a tenth more for 50,000 values, and a tenth less for 10,000.
        """
        return self.is_few or self._is_small_beside(sum(map(rows_about, blocks)))

    def is_small_list(self, log_bytes: int) -> bool:
        """Whether it compares a key with a list, of few keys beside those in logs of so many bytes.

        Where it is known which rows of a slice are shown, all its logs are decoded: of a hundred thousand rows that
        took half as much again for 150 keys, and as long as a merge of what the list leaves for a thousand.
        """
        return not self.is_few and self._is_small_beside(log_bytes // BYTES_OF_ROW)

    def _is_small_beside(self, rows: int) -> bool:
        return self.rows_of_value * self.values <= rows

    def pays_in_scan(self, files: Sequence[bytes]) -> bool:
        """Whether it costs less to hold the keys of Parquet files against it in their scan than to decode all rows."""
        return self.is_few or 5 * self.values * len(files) <= sum(map(len, files)) // BYTES_OF_ROW

    def meets(self, keys: pl.Series) -> pl.Series:
        """For each of some keys whether it is asked for; null where the condition is."""
        return keys.alias(self.key).to_frame().select(self.condition.alias(self.key)).to_series()


def rows_about(block: DataBlock | DeleteBlock) -> int:
    """About how many rows or deletes a block has."""
    if isinstance(block, DeleteBlock):
        return block.keys.height
    return block.rows.height if isinstance(block.rows, pl.DataFrame) else len(block.rows) // BYTES_OF_ROW
