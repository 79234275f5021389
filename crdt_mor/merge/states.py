"""Folding the states of one column: a payload's `merge`, or its `join` where that is all it says.

    states   every contribution's state, in the table's order       code   the number of the key that each belongs to

A key with one state has it already; the others are folded side by side, in one `group_by`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import groupby

import numpy as np
import polars as pl

from crdt_mor.merge.payload import Payload
from crdt_mor.merge.rule import Member, blaming


def fold_states(member: Member, states: pl.Series, code: np.ndarray, count: int) -> pl.Series:
    """The fold of each of `count` keys; null where nothing was said. Raises `PayloadError` if the payload does."""
    payload = member.payload
    if payload.nulls == "skip" and states.null_count():
        said = states.is_not_null()
        states, code = states.filter(said), code[said.to_numpy()]
    position = np.full(count, -1, dtype=np.int64)
    alone = np.bincount(code, minlength=count)[code] == 1
    pool = states
    if alone.all():
        position[code] = np.arange(len(code))
        return take(pool, position)
    single, many = pl.Series(alone), pl.Series(~alone)
    frame = pl.DataFrame({"code": pl.Series(code[~alone]), "state": states.filter(many)})
    with blaming(payload, member.columns):
        merged = _vectorised(payload, frame) if payload.vectorised else _joined(payload, frame)
        pool = pl.concat([states.filter(single), merged["state"].cast(states.dtype)])
    position[np.concatenate([code[alone], merged["code"].to_numpy()])] = np.arange(len(pool))
    return take(pool, position)


def _vectorised(payload: Payload, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.group_by("code").agg(payload.merge(pl.col("state")).alias("state"))


def _joined(payload: Payload, frame: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame(list(_joins(payload, frame)), schema=frame.schema, orient="row")


def _joins(payload: Payload, frame: pl.DataFrame) -> Iterator[tuple[int, object]]:
    ordered = frame.sort("code", maintain_order=True)
    pairs = zip(ordered["code"].to_list(), ordered["state"].to_list(), strict=True)
    for code, group in groupby(pairs, key=lambda pair: pair[0]):
        yield code, reduce(payload.join, (state for _, state in group))


def take(series: pl.Series, index: np.ndarray) -> pl.Series:
    """`series` at `index`; null where the index is negative."""
    positions = pl.Series(index)
    if index.size and int(index.min()) < 0:
        positions = positions.set(positions < 0, None)
    return series.gather(positions)
