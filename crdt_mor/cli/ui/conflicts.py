"""Keys of overlapping commits, where the merge decided between writers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import polars as pl

import crdt_mor as mor
from crdt_mor.cli.keys import text_of
from crdt_mor.cli.python_values import records

ROWS_MAX: Final = 1_000_000
"""Rows of commits to read for conflicts."""

FILES_MAX: Final = 2_000
"""Log files to read for conflicts."""

KEYS_MAX: Final = 100

NO_CONFLICTS: Final[Mapping[str, Any]] = {"since": None, "left_out": "", "count": 0, "keys": []}

Commit = Mapping[str, Any]


def conflicts_of(table: mor.Table, history: Sequence[Commit]) -> Mapping[str, Any]:
    """Return keys written by commits that overlapped. history: newest first.

    has_life: the key has no null, so its text is unambiguous.
    since: the version after which commits were read; None without overlaps.
    """
    looked = _bounded(history)
    most = f"the newest with at most {ROWS_MAX:,} rows and {FILES_MAX:,} files"
    said = "" if len(looked) == len(history) else f"of the commits on this page, only {most} were read"
    versions = sorted({commit["version"] for commit in looked if commit["overlaps"] and commit["kind"] == "write"})
    since = [version - 1 for version in versions]
    written_since = cache(partial(_written, table))
    if since and written_since(since[0]) is None:
        said = "the rows of older commits are no longer retained"
        since = since[bisect_left(since, True, key=lambda version: written_since(version) is not None) :]
    written = written_since(since[0]) if since else None
    if written is None:
        return {**NO_CONFLICTS, "left_out": said}
    return {"since": since[0], "left_out": said, **_found(written, looked, table)}


def _bounded(history: Sequence[Commit]) -> list[Commit]:
    rows, files, found = 0, 0, []
    for commit in history:
        if commit["kind"] == "write":
            rows, files = rows + commit["rows"] + commit["deletes"], files + commit["files"]
        if rows > ROWS_MAX or files > FILES_MAX:
            break
        found.append(commit)
    return found


@dataclass(frozen=True)
class _Written:
    rows: pl.DataFrame
    places: Mapping[str, str]


def _written(table: mor.Table, since: int) -> _Written | None:
    names = list(dict.fromkeys([*table.config.key, *table.config.partition_sources]))
    try:
        rows = table.changes(since=since if since > 0 else None, raw=True, columns=names).to_polars()
    except (mor.errors.CheckpointExpiredError, mor.SnapshotExpiredError):
        return None
    places = {name: f"{place}" for place, name in enumerate(names)}
    rows.columns = [*places.values(), "change", "version", "completed"]
    rows = rows.with_columns(pl.col("completed").dt.epoch("ms")).drop("change")
    return _Written(rows.unique(maintain_order=True), places)


def _found(written: _Written, history: Sequence[Commit], table: mor.Table) -> dict[str, Any]:
    ordinals = {
        (commit["version"], round(commit["completed"].timestamp() * 1000)): commit["ordinal"]
        for commit in history
        if commit["kind"] == "write"
    }
    overlaps = {commit["ordinal"]: frozenset(commit["overlaps"]) for commit in history}
    places, rows = list(written.places.values()), written.rows
    commits = [ordinals.get(pair) for pair in zip(rows["version"], rows["completed"], strict=True)]
    numbered = rows.select(places).with_columns(ordinal=pl.Series(commits, dtype=pl.Int64)).drop_nulls("ordinal")
    several = numbered.group_by(places, maintain_order=True).agg(pl.col("ordinal").unique().sort())
    several = several.filter(pl.col("ordinal").list.len() > 1)
    met = several["ordinal"].map_elements(lambda own: sorted(_met(own, overlaps)), pl.List(pl.Int64))
    found = several.with_columns(ordinal=met).filter(pl.col("ordinal").list.len() > 0)
    found = found.sort(pl.col("ordinal").list.last(), descending=True, maintain_order=True)
    key, partition = table.config.key, table.config.partition_sources
    shown = [
        {
            "text": text_of([row[written.places[name]] for name in key]),
            "has_life": all(row[written.places[name]] is not None for name in key),
            "partition": ", ".join(f"{name}={text_of([row[written.places[name]]])}" for name in partition),
            "commits": row["ordinal"],
        }
        for row in records(found.head(KEYS_MAX).to_arrow())
    ]
    return {"count": found.height, "keys": shown}


def _met(ordinals: Sequence[int], overlaps: Mapping[int, frozenset[int]]) -> set[int]:
    return {one for one in ordinals if overlaps.get(one, frozenset()) & {*ordinals}}
