"""Fold the states of a column with the payload's vectorised `merge`, or pair by pair with `join`.

    states   every contribution's state, in the table's order       code   the key number of each state

Keys with several states are folded in one `group_by`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import reduce
from itertools import groupby

import numpy as np
import polars as pl

from crdt_mor.errors import PayloadError
from crdt_mor.merge.payload import Payload
from crdt_mor.merge.rule import Member, naming_payload


def fold_states(member: Member, states: pl.Series, code: np.ndarray, keys: pl.Series) -> pl.Series:
    """Fold the states of each of `keys`; null for keys without one. Raises `PayloadError` if the payload raises."""
    if member.payload.nulls == "skip" and states.null_count():
        present = states.is_not_null()
        states, code = states.filter(present), code[present.to_numpy()]
    alone = np.bincount(code, minlength=len(keys))[code] == 1
    pool, order = states, code
    if not alone.all():
        many = pl.Series(~alone)
        frame = pl.DataFrame({"code": pl.Series(code[~alone].astype(np.uint32)), "state": states.filter(many)})
        merged = _folded(member, frame, keys)
        pool, order = merged["state"], merged["code"].to_numpy()
        if alone.any():
            pool, order = pl.concat([states.filter(~many), pool]), np.concatenate([code[alone], order])
    if len(order) == len(keys) and (order[:-1] < order[1:]).all():
        return pool  # already in key order
    position = np.full(len(keys), -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    return take(pool, position)


def _folded(member: Member, frame: pl.DataFrame, keys: pl.Series) -> pl.DataFrame:
    try:
        with naming_payload(member.payload, member.columns):
            return _merged(member.payload, frame)
    except PayloadError as error:
        codes = frame["code"].unique(maintain_order=True)

        def merge(some: pl.Series) -> object:
            return _merged(member.payload, frame.filter(pl.col("code").is_in(some.implode())))

        raise _naming_key(error, keys, codes, merge) from error


def shown(member: Member, states: pl.Series, need: Collection[str], keys: pl.Series) -> list[pl.Series]:
    try:
        return member.unpack(states, need)
    except PayloadError as error:
        every = pl.int_range(len(keys), eager=True)
        raise _naming_key(error, keys, every, lambda some: member.unpack(states.gather(some), need)) from error


def _naming_key(
    error: PayloadError, keys: pl.Series, codes: pl.Series, work: Callable[[pl.Series], object]
) -> PayloadError:
    """Add the first failing key to an error, found by bisection, because the error itself does not name it."""
    while len(codes) > 1:
        half = codes[: len(codes) // 2]
        codes = half if _fails(work, half) else codes[len(half) :]
    return PayloadError(f"{error} key={keys[int(codes[0])]!r}" if _fails(work, codes) else str(error))


def _fails(work: Callable[[pl.Series], object], codes: pl.Series) -> bool:
    try:
        work(codes)
    except Exception:  # noqa: BLE001 - a payload can raise anything
        return True
    return False


def _merged(payload: Payload, frame: pl.DataFrame) -> pl.DataFrame:
    merged = vectorised(payload, frame) if payload.vectorised else _joined(payload, frame)
    return merged.with_columns(pl.col("state").cast(frame.schema["state"]))


def vectorised(payload: Payload, frame: pl.DataFrame) -> pl.DataFrame:
    # polars concatenates neighbouring lists of a key without a copy.
    nested = frame.schema["state"].is_nested()
    frame = frame.sort("code", maintain_order=True) if nested else frame
    return frame.group_by("code", maintain_order=nested).agg(_expression(payload).alias("state"))


def _expression(payload: Payload) -> pl.Expr:
    merged: object = payload.merge(pl.col("state"))
    if not isinstance(merged, pl.Expr):
        raise TypeError(f"merge must return a polars expression, not {type(merged).__name__}")
    return merged


def _joined(payload: Payload, frame: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame(list(_joins(payload, frame)), schema=frame.schema, orient="row")


def _joins(payload: Payload, frame: pl.DataFrame) -> Iterator[tuple[int, object]]:
    ordered = frame.sort("code", maintain_order=True)
    pairs = zip(ordered["code"].to_list(), ordered["state"].to_list(), strict=True)
    for code, group in groupby(pairs, key=lambda pair: pair[0]):
        yield code, reduce(payload.join, (state for _, state in group))


def take(series: pl.Series, index: np.ndarray) -> pl.Series:
    if series.dtype.is_nested():
        series = series.rechunk()  # lists in several chunks are gathered a hundred times slower
    positions = pl.Series(index)
    if index.size and int(index.min()) < 0:
        positions = positions.set(positions < 0, None)
    return series.gather(positions)
