"""Keys that overlapping commits have written: where the table's merge decided between two writers.

The newest commits are looked at, as far as their rows stay below a bound and the table still answers for that history.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

import crdt_mor as mor
from crdt_mor.cli import render

ROWS_MAX: Final = 1_000_000
"""Rows of commits that are read to find keys that overlapping commits have written, at most."""

KEYS_MAX: Final = 100
"""The keys that the page lists, those of the newest commits first."""

NO_CONFLICTS: Final[Mapping[str, Any]] = {"since": None, "left_out": "", "count": 0, "keys": []}

Commit = Mapping[str, Any]


def conflicts_of(table: mor.Table, history: Sequence[Commit]) -> Mapping[str, Any]:
    """Keys which two commits wrote that were in flight at the same time. history: newest first.

    keys: for each of them its partition, and the ordinals of the commits that overlap.
    since: the version after which commits were looked at; None where there are no overlapping ones.
    left_out: why not all commits of the page were looked at, "" where they were.
    """
    looked = _bounded(history)
    said = "" if len(looked) == len(history) else f"commits of more than {ROWS_MAX:,} rows are not looked through"
    versions = sorted(commit["version"] for commit in looked if commit["overlaps"] and commit["kind"] == "write")
    refused = bisect_left(versions, True, key=lambda version: _changes(table, version - 1) is not None)
    if refused:
        said = "the table answers no more for what older commits wrote"
    changes = _changes(table, versions[refused] - 1) if refused < len(versions) else None
    if changes is None:
        return {**NO_CONFLICTS, "left_out": said}
    return {"since": versions[refused] - 1, "left_out": said, **_found(_written(changes), looked, table)}


def _bounded(history: Sequence[Commit]) -> list[Commit]:
    rows, found = 0, []
    for commit in history:
        rows += (commit["rows"] + commit["deletes"]) if commit["kind"] == "write" else 0
        if rows > ROWS_MAX:
            break
        found.append(commit)
    return found


def _changes(table: mor.Table, since: int) -> mor.Changes | None:
    """What was written after a version, of the columns of key and partition; None where that is given up."""
    names = list(dict.fromkeys([*table.config.key.fields, *table.config.key.partition_fields]))
    try:
        return table.changes(since=since if since > 0 else None, raw=True, columns=names)
    except (mor.CheckpointExpiredError, mor.SnapshotExpiredError):
        return None


def _written(changes: mor.Changes) -> pl.DataFrame:
    """Which keys commits wrote: the columns of key and partition, `_commit_version`, `_completed_ms`."""
    moment = pl.col("_commit_timestamp").dt.epoch("ms").alias("_completed_ms")
    rows = pl.DataFrame(changes).with_columns(moment).drop("_commit_timestamp", "_change_type")
    return rows.select(pl.exclude("_commit_version", "_completed_ms"), "_commit_version", "_completed_ms").unique(
        maintain_order=True
    )


def _found(written: pl.DataFrame, history: Sequence[Commit], table: mor.Table) -> dict[str, Any]:
    ordinals = {
        (commit["version"], round(commit["completed"].timestamp() * 1000)): commit["ordinal"]
        for commit in history
        if commit["kind"] == "write"
    }
    overlaps = {commit["ordinal"]: frozenset(commit["overlaps"]) for commit in history}
    names = written.columns[:-2]
    pairs = zip(written["_commit_version"], written["_completed_ms"], strict=True)
    numbered = written.select(names).with_columns(
        _ordinal=pl.Series([ordinals.get(pair) for pair in pairs], dtype=pl.Int64)
    )
    several = (
        numbered.drop_nulls("_ordinal")
        .group_by(names, maintain_order=True)
        .agg(pl.col("_ordinal").unique().sort())
        .filter(pl.col("_ordinal").list.len() > 1)
    )
    met = [(row, sorted(_met(row["_ordinal"], overlaps))) for row in several.iter_rows(named=True)]
    found = sorted((one for one in met if one[1]), key=lambda one: one[1][-1], reverse=True)
    key, partition = table.config.key.fields, table.config.key.partition_fields
    shown = [
        {
            "text": _text_of([row[name] for name in key]),
            "partition": ", ".join(f"{name}={row[name]}" for name in partition),
            "commits": commits,
        }
        for row, commits in found[:KEYS_MAX]
    ]
    return {"count": len(found), "keys": shown}


def _text_of(values: Sequence[object]) -> str:
    """A key as `crdt-mor why` takes it: values with commas between them, as in CSV, where there are several."""
    texts = ["" if value is None else render.cell(value).plain for value in values]
    if len(texts) == 1:
        return texts[0]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(texts)
    return line.getvalue()


def _met(ordinals: Sequence[int], overlaps: Mapping[int, frozenset[int]]) -> set[int]:
    """Of the commits that wrote a key, those that overlap another one of them."""
    return {one for one in ordinals if overlaps.get(one, frozenset()) & {*ordinals}}
