"""Partial updates under an ordering column.

    plain delete    removes all contributions requested before it
    floor           the key's greatest tombstone among the rest, by (ordering value, requested time)
    row             counts if it is above the floor
    column          takes the value of the greatest row that counts and gives it

A base row stands for several contributions: the greatest row, with its ordering value and requested time in the row's
own columns, and the others in the hidden column `_crdt_orders`, a list of entries

    order, time, columns      a row that set these columns
    order, time, null         the floor
    null, null, columns       columns that no row has set

The entries are unfolded into contributions when the base meets logs. tests/merge/test_orders.py searches for a history
with a result that depends on the moments of compactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from crdt_mor.merge.base_rows import BaseScan, DecodedBase
from crdt_mor.merge.blocks import (
    COMMIT_TIME,
    NEVER_COMPARED,
    PARTITION_PATH,
    RECORD_KEY,
    Columns,
    DataBlock,
    Slice,
    distinct,
)
from crdt_mor.merge.contributions import AT, KIND, LINE_KEY, ORDER, ROW, TIME, TOMBSTONE, Contributions, gather
from crdt_mor.merge.fold import StoredRows, standing
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import distinct_keys
from crdt_mor.merge.patches import Patches, patches
from crdt_mor.merge.rule import ORDERS, MergeRule
from crdt_mor.merge.states import take

_PLACE, _KEY = "place", "_crdt_merge_key"


class Ordered(NamedTuple):
    """A slice merged under an ordering column, see the module.

    rest: the base rows without contributions in logs. floors: the tombstones of keys without a visible row.
    """

    rows: pl.DataFrame
    rest: pl.DataFrame | None
    floors: pl.DataFrame


def merge_ordered(
    files: Slice,
    rule: MergeRule,
    columns: Columns,
    key: str,
    need: Sequence[str],
    scanned: BaseScan | None,
    only_keys: KeyCondition | None = None,
) -> Ordered:
    assert rule.ordering is not None
    wanted = [name for name in distinct(need, [rule.ordering, COMMIT_TIME]) if name != ORDERS]
    logs = gather(files.blocks, rule, columns, key, wanted, timed=True, only_keys=only_keys)
    touched = distinct_keys(logs.lines[LINE_KEY])
    rest = None
    if scanned is not None and (not len(touched) or files.base_latest == NEVER_COMPARED):
        rest = scanned.rows_without(touched, distinct(need))
    elif scanned is not None:
        base = scanned.decode(touched, distinct(rule.below(wanted), need))
        whole = scanned.predicate is None
        rest = base.untouched_rows(distinct(need)) if whole else scanned.rows_without(touched, distinct(need))
        logs = _over(base, scanned, logs, rule, key)
    floors, lines = standing(logs.lines)
    folded = patches(logs, lines, rule, key)
    rows = pl.DataFrame([_column(folded, lines, floors, name, columns) for name in need])
    if rest is not None and scanned is not None and ORDERS in need:
        rest = _with_unset(rest, scanned, columns)
    return Ordered(rows, rest, floors.filter(~floors[LINE_KEY].is_in(lines[LINE_KEY].implode())))


def _column(folded: Patches, lines: pl.DataFrame, floors: pl.DataFrame, name: str, columns: Columns) -> pl.Series:
    if name == ORDERS:
        return orders_of(folded, lines, floors).cast(columns.stored[ORDERS])
    return take(folded.contributions.rows[name], folded.row_of(name))


# --- the base as contributions ----------------------------------------------------------------------------------------


def _over(base: DecodedBase, scanned: BaseScan, logs: Contributions, rule: MergeRule, key: str) -> Contributions:
    """Return the contributions of the touched base rows and of the logs."""
    assert rule.ordering is not None
    rows = base.frame[base.places]
    entries = _entries(rows)
    own = pl.DataFrame({_PLACE: np.arange(rows.height)}).with_columns(
        pl.lit(ROW, pl.Int8).alias(KIND), rows[COMMIT_TIME].alias(TIME), rows[rule.ordering].alias(ORDER)
    )
    late = entries.filter(pl.col(TIME).is_not_null()).with_columns(
        pl.when(pl.col("columns").is_null()).then(TOMBSTONE).otherwise(ROW).cast(pl.Int8).alias(KIND)
    )
    every = pl.concat([own, late.select(_PLACE, KIND, TIME, pl.col(ORDER).cast(own.schema[ORDER]))])
    below = rows[every[_PLACE]]
    lines = every.select(
        below[key].alias(LINE_KEY), KIND, pl.int_range(pl.len(), dtype=pl.Int64).alias(AT), TIME, ORDER
    ).with_columns(pl.col(AT) + logs.rows.height)
    # Only stable contributions are in a base, so they come before all in logs.
    below_logs = lines.sort(TIME, KIND, maintain_order=True)
    given = _given(below, own.height, late, entries, scanned)
    return replace(
        logs,
        rows=pl.concat([logs.rows, below.select(logs.rows.columns)]),
        lines=pl.concat([below_logs, logs.lines.select(lines.columns)]),
        given={name: np.concatenate([mask, given[name]]) for name, mask in logs.given.items()},
        nulls=_nulls(logs, given) if rule.nulls == "keep" else {},
    )


def _nulls(logs: Contributions, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the masks of `Contributions`: a null that a base row sets is a null, because no other null is set."""
    none = np.zeros(logs.rows.height, dtype=bool)
    return {name: np.concatenate([logs.nulls.get(name, none), given[name]]) for name in logs.given}


def _entries(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the entries of `_crdt_orders`, with the place of their rows."""
    lists = rows.select(pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE), ORDERS)
    filled = lists.filter(pl.col(ORDERS).list.len() > 0).explode(ORDERS)
    return filled.select(_PLACE, pl.col(ORDERS).struct.unnest()).rename({"order": ORDER, "time": TIME})


def _given(
    below: pl.DataFrame, own: int, late: pl.DataFrame, entries: pl.DataFrame, scanned: BaseScan
) -> dict[str, np.ndarray]:
    """Return masks by column of the rows that set it: the base's own rows first, then one row per late entry."""
    there = scanned.source.column_names()
    listed = entries.select(_PLACE, name="columns").explode("name").drop_nulls()
    number = pl.int_range(own, own + pl.len(), dtype=pl.Int64).alias(_PLACE)
    of_late = late.select(number, name="columns").explode("name").drop_nulls()
    masks = dict[str, np.ndarray]()
    for name in below.columns:
        mask = np.zeros(below.height, dtype=bool)
        if name in there:
            mask[:own] = True
            mask[listed.filter(pl.col("name") == name)[_PLACE].to_numpy()] = False
            mask[of_late.filter(pl.col("name") == name)[_PLACE].to_numpy()] = True
        masks[name] = mask
    return masks


# --- contributions as a base row --------------------------------------------------------------------------------------


def orders_of(folded: Patches, lines: pl.DataFrame, floors: pl.DataFrame) -> pl.Series:
    """Return the entries of `_crdt_orders` for each key."""
    rows, keys = folded.contributions.rows, pl.DataFrame({LINE_KEY: folded.keys}).with_row_index(_PLACE)
    line_of = np.full(rows.height, -1, dtype=np.int64)
    line_of[lines[AT].to_numpy()] = np.arange(lines.height)
    parts = [keys.join(floors, on=LINE_KEY).select(_PLACE, ORDER, TIME, pl.lit(None, pl.String).alias("columns"))]
    for name, places in folded.value.items():
        other = np.flatnonzero(places != folded.newest)
        if name == ORDERS or not other.size:
            continue
        line = np.where(places[other] < 0, -1, line_of[places[other]])
        times = pl.DataFrame({_PLACE: pl.Series(other, dtype=pl.UInt32)}).with_columns(
            take(lines[ORDER], line).alias(ORDER), take(lines[TIME], line).alias(TIME), pl.lit(name).alias("columns")
        )
        parts.append(times)
    is_floor = pl.col("columns").is_null().alias("is_floor")
    together = pl.concat(parts).group_by(_PLACE, ORDER, TIME, is_floor).agg("columns")
    entry = pl.struct(
        order=ORDER, time=TIME, columns=pl.when(~pl.col("is_floor")).then(pl.col("columns").list.sort())
    ).alias(ORDERS)
    lists = together.sort(_PLACE, TIME, "is_floor", ORDER).group_by(_PLACE, maintain_order=True).agg(entry)
    return keys.select(_PLACE).join(lists, on=_PLACE, how="left", maintain_order="left")[ORDERS]


def _with_unset(rest: pl.DataFrame, scanned: BaseScan, columns: Columns) -> pl.DataFrame:
    """Note in untouched base rows that they do not set columns newer than their file."""
    names = sorted(columns.stored.keys() - scanned.source.column_names() - {ORDERS})
    if not names:
        return rest
    kind = columns.stored[ORDERS]
    entry = pl.Series(ORDERS, [[{"order": None, "time": None, "columns": names}]], kind)
    before = pl.col(ORDERS).fill_null(pl.lit([], kind))
    return rest.with_columns(before.list.concat(pl.lit(entry).first()).alias(ORDERS))


def as_base_rows(
    parts: Sequence[StoredRows], rule: MergeRule, columns: Columns, requested: str, passed: str, *, each: bool = False
) -> pl.DataFrame:
    """Fold the rows of one commit to base rows.

    passed: a column that is only passed on. each: make a base row of each row.
    """
    of_key = pl.concat_str(PARTITION_PATH, RECORD_KEY, separator="\0")
    blocks = list[DataBlock]()
    for number, part in enumerate(parts):
        key = pl.format(f"{number}.{{}}", pl.int_range(pl.len())) if each else of_key
        given = (*(part.given or ()), passed, _KEY)
        blocks.append(DataBlock(requested, part.rows.with_columns(key.alias(_KEY)), given, nulls=part.nulls))
    every = Columns({_KEY: pl.String(), passed: parts[0].rows.schema[passed], **columns.stored})
    need = [RECORD_KEY, PARTITION_PATH, passed, *columns.stored]
    return merge_ordered(Slice(blocks=tuple(blocks)), rule, every, _KEY, need, None).rows
