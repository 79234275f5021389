"""Rows that say how a table changed: frames with Delta's columns of a change.

    before ─┐
            ├─ by key ─► delete, update_preimage, update_postimage, insert
    after  ─┘

Nothing is opened here; what the states hold is read in window_states.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from polars.datatypes import DataTypeClass

from crdt_mor.columns.schema import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from crdt_mor.model.instant import to_datetime
from crdt_mor.model.timeline_parts import Completion

UPSERT, DELETE, INSERT, PREIMAGE, POSTIMAGE = "upsert", "delete", "insert", "update_preimage", "update_postimage"

_AFTER = "_crdt_after"


def images_of(before: pl.DataFrame, after: pl.DataFrame, key: str, select: Sequence[str]) -> list[pl.DataFrame]:
    """What turns `before` into `after`; keys whose rows are equal in `select` are left out."""
    both = before.join(after, on=key, how="inner", suffix=_AFTER, nulls_equal=False)
    others = [name for name in select if name != key]
    differs = [_differs(name, after.schema[name]) for name in others]
    changed = both.filter(pl.any_horizontal(differs)) if others else both.clear()
    later = [pl.col(name if name == key else name + _AFTER).alias(name) for name in select]
    return [
        with_change(before.join(after, on=key, how="anti").select(select), DELETE),
        with_change(changed.select(select), PREIMAGE),
        with_change(changed.select(later), POSTIMAGE),
        with_change(after.join(before, on=key, how="anti").select(select), INSERT),
    ]


def with_change(rows: pl.DataFrame, change: str) -> pl.DataFrame:
    """Rows that are all of one kind of change."""
    return rows.with_columns(pl.lit(change).alias(CHANGE_TYPE))


def with_commit(rows: pl.DataFrame, commit: Completion, *, local: bool) -> pl.DataFrame:
    """Rows that one commit changed. local: as in `to_datetime`."""
    timestamp = pl.lit(to_datetime(commit.completed, local=local), pl.Datetime("us", "UTC"))
    version = pl.lit(commit.version, pl.Int64)
    return rows.with_columns(version.alias(COMMIT_VERSION), timestamp.alias(COMMIT_TIMESTAMP))


def _differs(name: str, kind: pl.DataType) -> pl.Expr:
    """Whether the two values of a column differ. 0.0 and -0.0 do, though polars holds them to be equal."""
    before, after = pl.col(name), pl.col(name + _AFTER)
    differs = before.ne_missing(after)
    signs = _signs_of_zeros(before, kind), _signs_of_zeros(after, kind)
    return differs if signs[0] is None or signs[1] is None else differs | signs[0].ne_missing(signs[1])


def _signs_of_zeros(value: pl.Expr, kind: pl.DataType | DataTypeClass) -> pl.Expr | None:
    """The reciprocals of a value's floats, infinite with its sign for a zero; None: it has no floats."""
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
