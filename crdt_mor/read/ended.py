"""Find the record keys whose rows may differ between the view at a write's begin and its final view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from crdt_mor.laws.merging import merging_of
from crdt_mor.merge.visible import touched
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.damage import is_ours, naming_damage
from crdt_mor.read.open_slice import open_slice
from crdt_mor.read.prune import LOOKUP_KEYS_MAX
from crdt_mor.read.snapshot import Snapshot


def ended_keys(early: Snapshot, final: Snapshot) -> list[str] | None:
    """Return the record keys of all log files that only `final` has; None if the views differ otherwise, or in many
    keys.

    early: the view of the commits before a write that have ended by its begin. final: of all commits before it.

    A row is merged from the base file and the logs that contain its key. So all other rows are the same in both views.
    """
    config = final.session.config
    if not config.ours or (early.value.schema, early.names) != (final.value.schema, final.names):
        return None
    fresh = new_logs(early.slices, final.slices)
    logs = None if fresh is None else [log for slice_ in fresh for log in slice_.logs]
    if fresh is None or logs is None or not all(is_ours(log, config) for log in logs):
        return None
    if sum(log.rows + log.deletes for log in logs) > LOOKUP_KEYS_MAX:
        return None
    columns = merging_of(config, final.value.schema).columns.by_text()
    found = set[str]()
    for slice_ in fresh:
        with naming_damage(final.session.store, slice_):
            found.update(touched(open_slice(final.session.store, slice_, config).blocks, columns).cast(pl.String))
    return sorted(found)


def new_logs(early: Sequence[FileSlice], final: Sequence[FileSlice]) -> list[FileSlice] | None:
    """Return the slices of `final` with only the logs that `early` lacks; None if anything else differs."""
    before = {slice_.group: slice_ for slice_ in early}
    fresh = list[FileSlice]()
    for slice_ in final:
        known = before.pop(slice_.group, None) or replace(slice_, base=None, logs=())
        logs = {*known.logs}
        if slice_.base != known.base or slice_.committed != known.committed or not logs <= {*slice_.logs}:
            return None
        if len(logs) < len(slice_.logs):
            fresh.append(replace(slice_, base=None, logs=tuple(log for log in slice_.logs if log not in logs)))
    return None if before else fresh
