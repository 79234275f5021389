"""A reader's keys as a condition on the merge key.

Each key merges independently, under any rule. Rows and deletes with other keys are therefore neither decoded nor
merged, and payloads never see their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from crdt_mor.merge.blocks import DataBlock, DeleteBlock

FEW_VALUES: Final = 100
"""Building a set of this size costs less than opening and scanning a Parquet file of one row."""

BYTES_OF_ROW: Final = 64
"""Estimated bytes of a row in a block with an unknown number of rows."""


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """A condition on the column `key` that is true for every requested key.

    rows_of_value: the smallest number of log rows per key for which the condition saves time.
    """

    key: str
    condition: pl.Expr
    values: int = 1
    rows_of_value: int = 50

    @property
    def is_few(self) -> bool:
        return self.values <= FEW_VALUES

    def pays_among(self, blocks: Sequence[DataBlock | DeleteBlock]) -> bool:
        """Return True if filtering these blocks costs less than merging them all."""
        return self.is_few or self._is_small_beside(sum(map(estimated_rows, blocks)))

    def is_small_list(self, log_bytes: int) -> bool:
        """Return True if the condition lists few keys compared with `log_bytes` of logs."""
        return not self.is_few and self._is_small_beside(log_bytes // BYTES_OF_ROW)

    def _is_small_beside(self, rows: int) -> bool:
        return self.rows_of_value * self.values <= rows

    def pays_in_scan(self, files: Sequence[bytes]) -> bool:
        """Return True if filtering Parquet files during the scan costs less than decoding all rows."""
        return self.is_few or 5 * self.values * len(files) <= sum(map(len, files)) // BYTES_OF_ROW

    def meets(self, keys: pl.Series) -> pl.Series:
        return keys.alias(self.key).to_frame().select(self.condition.alias(self.key)).to_series()


def estimated_rows(block: DataBlock | DeleteBlock) -> int:
    if isinstance(block, DeleteBlock):
        return block.keys.height
    return block.rows.height if isinstance(block.rows, pl.DataFrame) else len(block.rows) // BYTES_OF_ROW
