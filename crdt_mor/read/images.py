"""Compute change rows with Delta's columns for changes.

    before ─┐
            ├─ by key ─► delete, update_preimage, update_postimage, insert
    after  ─┘

This module opens no files; window_states.py reads the states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import polars as pl
from polars.datatypes import DataTypeClass

from crdt_mor.columns.schema import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from crdt_mor.merge.contributions import AT, LINE_KEY, TIME
from crdt_mor.model.instant import to_datetime
from crdt_mor.model.timeline_parts import Completion

UPSERT, DELETE, INSERT, PREIMAGE, POSTIMAGE = "upsert", "delete", "insert", "update_preimage", "update_postimage"

_AFTER = "_crdt_after"
_GROUP, _BEFORE, _STEP, _LINE, _HASH = "group", "before", "_crdt_step", "line", "hash"


def images_of(before: pl.DataFrame, after: pl.DataFrame, key: str, select: Sequence[str]) -> list[pl.DataFrame]:
    changed = _changed(before.join(after, on=key, how="inner", suffix=_AFTER, nulls_equal=False), key, select)
    later = [pl.col(name if name == key else name + _AFTER).alias(name) for name in select]
    return [
        with_change(before.join(after, on=key, how="anti").select(select), DELETE),
        with_change(changed.select(select), PREIMAGE),
        with_change(changed.select(later), POSTIMAGE),
        with_change(after.join(before, on=key, how="anti").select(select), INSERT),
    ]


@dataclass(frozen=True, slots=True)
class Versions:
    """The successive rows of each key, with a line per upsert or delete.

    Attributes:
        lines: file group number, LINE_KEY, TIME (null before the first commit), AT (position in `rows`, null for
            deletes).
    """

    rows: pl.DataFrame
    lines: pl.DataFrame

    @classmethod
    def of(cls, before: pl.DataFrame, rows: pl.DataFrame, lines: pl.DataFrame, group: int, key: str) -> Versions:
        """Build a file group's versions from the rows before the first commit and the commits' lines."""
        at = pl.int_range(pl.len(), dtype=pl.Int64).alias(AT)
        first = before.select(pl.col(key).alias(LINE_KEY), pl.lit(None, pl.String).alias(TIME), at)
        every = pl.concat([first, lines.with_columns(pl.col(AT) + before.height)])
        return cls(pl.concat([before, rows]), every.with_columns(pl.lit(group, pl.Int32).alias(_GROUP)))

    @classmethod
    def joined(cls, some: Sequence[Versions]) -> Versions:
        starts = accumulate((one.rows.height for one in some), initial=0)
        lines = [one.lines.with_columns(pl.col(AT) + start) for one, start in zip(some, starts, strict=False)]
        return cls(pl.concat([one.rows for one in some]), pl.concat(lines))


def images_in_turn(versions: Versions, key: str, select: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Return the changes of each commit by its requested time.

    Each commit must be newer than all commits visible before it, so that it replaces previous versions.
    """
    rows, times = versions.rows, versions.lines[TIME].drop_nulls().unique().sort()
    step = pl.col(TIME).cast(pl.Enum(times)).to_physical().alias(_STEP)
    turns = _turns(versions.lines.select(_GROUP, LINE_KEY, step, AT))
    was, stays = pl.col(_BEFORE).is_not_null(), pl.col(AT).is_not_null()
    gone, new, both = turns.filter(was & ~stays), turns.filter(~was & stays), turns.filter(was & stays)
    after = rows[both[AT]].drop(key)
    after = after.rename({name: name + _AFTER for name in after.columns})
    changed = _changed(rows[both[_BEFORE]].hstack(after).with_columns(both[_STEP]), key, select)
    later = [pl.col(name if name == key else name + _AFTER).alias(name) for name in select]
    kinds = [
        with_change(rows[gone[_BEFORE]].select(*select, gone[_STEP]), DELETE),
        with_change(changed.select(*select, _STEP), PREIMAGE),
        with_change(changed.select(*later, _STEP), POSTIMAGE),
        with_change(rows[new[AT]].select(*select, new[_STEP]), INSERT),
    ]
    parts = zip(*(_by_step(frame, len(times)) for frame in kinds), strict=True)
    images = zip(times, map(pl.concat, parts), strict=True)
    return {time: frame for time, frame in images if frame.height}


def _by_step(frame: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    bounds = frame[_STEP].to_numpy().searchsorted(np.arange(count + 1)).tolist()
    rows = frame.drop(_STEP)
    return [rows.slice(first, end - first) for first, end in pairwise(bounds)]


def _turns(lines: pl.DataFrame) -> pl.DataFrame:
    """Return the last line of each key and commit, in commit order, with the key's line before.

    Args:
        lines: _GROUP, LINE_KEY, _STEP (the commit's number, null before the first) and AT, in commit order per key.

    Returns:
        _STEP, AT, and _BEFORE: the AT of the key's previous line, null without a row.
    """
    found = lines.with_row_index(_LINE)[_by_key(lines)]
    found = found.with_columns((~_goes_on(_GROUP, LINE_KEY)).cum_sum().alias(LINE_KEY))  # number the keys
    found = found.filter(~_goes_on(LINE_KEY, _STEP).shift(-1, fill_value=False))
    found = found.with_columns(pl.when(_goes_on(LINE_KEY)).then(pl.col(AT).shift()).alias(_BEFORE))
    return found.filter(pl.col(_STEP).is_not_null()).sort(_STEP, _LINE).select(_STEP, AT, _BEFORE)


def _by_key(lines: pl.DataFrame) -> pl.Series:
    """Return the positions of lines, grouped by file group and key, in their old order within a key.

    Hashes sort in a tenth of the time of text. If two keys share a hash, the keys are sorted.
    """
    place = pl.int_range(pl.len())
    hashed = lines.select(_GROUP, LINE_KEY, (pl.col(LINE_KEY).hash() ^ pl.col(_GROUP).hash()).alias(_HASH))
    order = hashed.select(pl.arg_sort_by(_HASH, place)).to_series()
    is_met_twice = hashed[order].select((_goes_on(_HASH) & ~_goes_on(_GROUP, LINE_KEY)).any()).item()
    return hashed.select(pl.arg_sort_by(_GROUP, LINE_KEY, place)).to_series() if is_met_twice else order


def _goes_on(*names: str) -> pl.Expr:
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in names)
    return same & (pl.int_range(pl.len()) > 0)


def _changed(both: pl.DataFrame, key: str, select: Sequence[str]) -> pl.DataFrame:
    kinds = both.schema
    differs = [_differs(name, kinds[name]) for name in select if name != key]
    return both.filter(pl.any_horizontal(differs)) if differs else both.clear()


def with_change(rows: pl.DataFrame, change: str) -> pl.DataFrame:
    return rows.with_columns(pl.lit(change).alias(CHANGE_TYPE))


def with_commit(rows: pl.DataFrame, commit: Completion, *, local: bool) -> pl.DataFrame:
    timestamp = pl.lit(to_datetime(commit.completed, local=local), pl.Datetime("us", "UTC"))
    version = pl.lit(commit.version, pl.Int64)
    return rows.with_columns(version.alias(COMMIT_VERSION), timestamp.alias(COMMIT_TIMESTAMP))


def _differs(name: str, kind: pl.DataType) -> pl.Expr:
    """Compare two values of a column. Unlike in polars, 0.0 and -0.0 differ."""
    before, after = pl.col(name), pl.col(name + _AFTER)
    differs = before.ne_missing(after)
    signs = _signs_of_zeros(before, kind), _signs_of_zeros(after, kind)
    return differs if signs[0] is None or signs[1] is None else differs | signs[0].ne_missing(signs[1])


def _signs_of_zeros(value: pl.Expr, kind: pl.DataType | DataTypeClass) -> pl.Expr | None:
    if kind.is_float():
        return 1 / value
    if isinstance(kind, pl.Struct):
        fields = ((_signs_of_zeros(value.struct.field(f.name), f.dtype), f.name) for f in kind.fields)
        signs = [field.alias(name) for field, name in fields if field is not None]
        return pl.struct(signs) if signs else None
    if isinstance(kind, pl.Map):
        value, kind = value.map.values(), pl.List(kind.value)
    if isinstance(kind, pl.List):
        inner = _signs_of_zeros(pl.element(), kind.inner)
        return None if inner is None else value.list.eval(inner)
    return None
