"""Rows that expire between two cuts, without a write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import polars as pl

from crdt_mor.columns.schema import COMMIT_TIMESTAMP, COMMIT_VERSION
from crdt_mor.merge.blocks import distinct
from crdt_mor.merge.expiry import expired, expires_at
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.slices import FileSlice, Slices
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window_states import States, TouchedGroups


def lapsed(snapshot: Snapshot, later: InstantTime, select: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield a snapshot's rows that have expired later."""
    expiry = snapshot.session.config.merge.expiry
    if expiry is not None and snapshot.slices:
        yield from snapshot.frames(select, expired(expiry, later))


def lapsed_unwritten(
    snapshot: Snapshot, later: InstantTime, touched: Collection[TouchedGroups], states: States, select: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """Yield `lapsed` without written keys."""
    columns = distinct([states.key], select)
    yield from lapsed(replace(snapshot, slices=Slices(untouched(snapshot.slices, touched))), later, columns)
    for groups in touched:
        keys = states.keys(groups)
        if keys is None:
            continue
        own = replace(snapshot, slices=Slices(s for s in snapshot.slices if s.group == groups.scope))
        for frame in lapsed(own, later, columns):
            yield frame.filter(~frame[states.key].is_in(keys.implode()))


def untouched(slices: Sequence[FileSlice], touched: Collection[TouchedGroups]) -> Iterator[FileSlice]:
    scopes = {groups.scope for groups in touched}
    return (s for s in slices if s.group not in scopes and (s.partition, None) not in scopes)


def expired_images(snapshot: Snapshot, later: InstantTime, select: Sequence[str]) -> pl.DataFrame | None:
    """Return `lapsed`, timed and sorted by expiry; None without any."""
    expiry = snapshot.session.config.merge.expiry
    assert expiry is not None
    frames = list(lapsed(snapshot, later, distinct(select, [expiry.column])))
    if not any(frame.height for frame in frames):
        return None
    placed = pl.concat(frames).with_columns(
        pl.lit(None, pl.Int64).alias(COMMIT_VERSION), expires_at(expiry).alias(COMMIT_TIMESTAMP)
    )
    return placed.sort(COMMIT_TIMESTAMP).select(*select, COMMIT_VERSION, COMMIT_TIMESTAMP)
