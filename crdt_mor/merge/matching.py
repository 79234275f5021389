"""The keys of a slice of which a filter lets a reader see rows, found before anything is merged.

A row that a reader sees is one of the base or of the logs, and under partial updates each of its values is of one of
those. So it has the key of a row, of base or logs, that meets the filter itself, whether that row is shown or not:

    base  a 9    log  a 1, b 8    log  b 2, c 7        filter  > 5        keys  a, b, c        shown  c 7

Under a selective filter that is a handful of keys, and the merge is one of these keys alone (`merge/asked.py`). Of
other rows of logs the filter's columns and the key are decoded, and nothing else, and no winners are sought among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from crdt_mor.merge.asked import Asked, rows_about
from crdt_mor.merge.base_rows import Scanned
from crdt_mor.merge.blocks import Columns, DataBlock, DeleteBlock
from crdt_mor.merge.contributions import keys_where
from crdt_mor.merge.rule import MergeRule

ROWS_OF_KEY: Final = 5
"""The least number of rows in logs for each key of a row that meets a filter. For 13,000 keys of 300,000 rows the merge
of these keys takes 0.8 of the processor time, for 33,000 keys 0.95."""

ROWS_OF_BLOCK_MIN: Final = 2000
"""The least number of rows in a block, on average, as each block is opened twice. Of a hundred blocks of a thousand
rows that takes as long as it spares."""


def asked_by_filter(
    blocks: Sequence[DataBlock | DeleteBlock], bases: Sequence[Scanned], rule: MergeRule, columns: Columns
) -> Asked | None:
    """The keys of rows that meet the predicate of bases that were begun; None where the merge of all costs less.

    The predicate is tried on the largest block first, as it may hold for most rows.
    """
    predicate, key = bases[0].predicate, bases[0].key
    if predicate is None or not are_large(blocks) or not _is_of_one_row(predicate, rule):
        return None
    rows = sum(map(rows_about, blocks))
    data = sorted((block for block in blocks if isinstance(block, DataBlock)), key=rows_about, reverse=True)
    found = keys_where(predicate, data[:1], columns, key)
    if ROWS_OF_KEY * len(found) > rows_about(data[0]):
        return None
    found = pl.concat([found, keys_where(predicate, data[1:], columns, key)])
    if ROWS_OF_KEY * len(found) > rows:
        return None
    found = pl.concat([found, *(base.ahead.result()[key] for base in bases if base.ahead is not None)])
    if ROWS_OF_KEY * len(found) > rows or found.null_count():
        return None
    return Asked(key, pl.col(key).is_in(found.implode()), len(found), ROWS_OF_KEY)


def are_large(blocks: Sequence[DataBlock | DeleteBlock]) -> bool:
    """Whether the keys of these blocks can be looked for."""
    rows = [rows_about(block) for block in blocks if isinstance(block, DataBlock)]
    return bool(rows) and sum(rows) >= ROWS_OF_BLOCK_MIN * len(rows)


def _is_of_one_row(predicate: pl.Expr, rule: MergeRule) -> bool:
    """Whether a merged row meets the predicate only if a row of base or logs does that has its key.

    Where values of several rows are put together it must be of one column, and of none that a payload merges.
    """
    names = list(dict.fromkeys(predicate.meta.root_names()))
    return rule.kind != "columns" or (len(names) == 1 and not rule.members_of(names))
