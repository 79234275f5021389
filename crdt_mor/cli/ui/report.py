"""The page's data as one JSON document, read by the public API beside writers.

overview    the table's settings         timeline    commits and pending writes
health      problems and advice          groups      file groups, slowest to read first
conflicts   keys of overlapping commits  growth      bytes and log files over the commits
upkeep      what `maintain` would do     lives       `why` of some keys
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import polars as pl

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.history import for_programs, recent_commits, writers
from crdt_mor.cli.keys import key_of
from crdt_mor.cli.python_values import records
from crdt_mor.cli.settings import declared
from crdt_mor.cli.ui.conflicts import NO_CONFLICTS, conflicts_of
from crdt_mor.cli.ui.health import Sign, health_of
from crdt_mor.cli.why import has_same_values

COMMITS_MAX: Final = 500

GROUPS_MAX: Final = 200

LIVES_MAX: Final = 10
"""Conflicting keys whose histories a page without a server contains."""

POINTS_MAX: Final = 40
"""Measured versions."""

POINTS_MIN: Final = 4

FILES_MAX: Final = 10_000
"""Files of all measured versions together."""

VERIFY: Final = "crdt-mor verify lists the damage, its effect and the repair."

Document = dict[str, Any]
T = TypeVar("T")


def report_of(table: mor.Table, uri: str) -> Document:
    """Return the page's data, without histories of keys. The page escapes its texts.

    uri: an address that works in commands from any folder. If a part cannot be read, the health section names the
    error.
    """
    history = [for_programs(row) for row in table.history(COMMITS_MAX).to_pylist(maps_as_pydicts="strict")]
    pending = writers(table)
    groups = file_groups(pl.DataFrame(table.inspect.files()))
    timeline = pl.DataFrame(table.inspect.timeline())
    files = int(groups["logs"].sum()) + groups.height
    failed: list[Sign] = []

    def part(name: str, make: Callable[[], T], otherwise: T) -> T:
        try:
            return make()
        except mor.errors.TableMovedError as error:
            failed.append(Sign("note", "moved", str(error)))
        except mor.CrdtMorError as error:
            failed.append(Sign("wrong", f"{name} cannot be read", str(error), VERIFY))
        return otherwise

    rows = part("the number of rows", lambda: table.scan().count(), None)
    upkeep: Sequence[Document] | None = part("upkeep", lambda: _upkeep(table), None)
    conflicts = part("conflicts", lambda: conflicts_of(table, history), NO_CONFLICTS)
    growth: Sequence[Document] = part("growth", lambda: _growth(table, history, files), ())
    return {
        "crdt_mor": mor.__version__,
        "uri": uri,
        "command_uri": shlex.quote(uri),
        "seen_ms": table.environment.now_ms(),
        "stable_before": str(table.scan(consistency="stable").as_of) if pending else None,
        "overview": {**_overview(table, groups, timeline), "rows": rows},
        "health": [vars(one) for one in [*failed, *health_of(table, uri, pending, groups, upkeep)]],
        "timeline": {"commits": history, "pending": pending, "is_all": len(history) < COMMITS_MAX},
        "groups": {"count": groups.height, "shown": groups.head(GROUPS_MAX).to_dicts()},
        "conflicts": conflicts,
        "growth": growth,
        "upkeep": upkeep,
    }


def file_groups(files: pl.DataFrame) -> pl.DataFrame:
    is_base = pl.col("kind") == "base"
    return (
        files.group_by("partition", "file_id")
        .agg(
            base_bytes=pl.col("bytes").filter(is_base).sum(),
            base_rows=pl.col("rows").filter(is_base).sum(),
            logs=(~is_base).sum().cast(pl.Int64),
            log_bytes=pl.col("bytes").filter(~is_base).sum(),
            log_rows=(pl.col("rows") + pl.col("deletes")).filter(~is_base).sum(),
        )
        .sort(["log_bytes", "base_bytes", "partition", "file_id"], descending=[True, True, False, False])
    )


def _overview(table: mor.Table, groups: pl.DataFrame, timeline: pl.DataFrame) -> Document:
    payloads, comments = table.config.payloads, table.inspect.comments()
    sums = groups.select(pl.col("base_bytes", "base_rows", "logs", "log_bytes", "log_rows").sum()).row(0, named=True)
    return {
        "table": table.config.name,
        **declared(table),
        "partitions": groups["partition"].n_unique(),
        "file_groups": groups.height,
        **sums,
        "columns": [
            {
                "name": field.name,
                "type": str(field.type),
                "payload": payloads.get(field.name),
                "comment": comments.get(field.name),
            }
            for field in table.schema
        ],
        "recent_commits": recent_commits(timeline),
        "savepoints": [{"name": one.name, "comment": one.comment} for one in table.maintenance.savepoints()],
    }


def _upkeep(table: mor.Table) -> Sequence[Document]:
    done = table.maintenance.maintain(dry_run=True)
    return [{"service": one.service, "state": one.state, "text": str(one)} for one in done.actions]


# --- lives of rows ----------------------------------------------------------------------------------------------------


def life_of_text(table: mor.Table, text: str, column: str | None = None, as_of: str | None = None) -> Document:
    """Return the history of the row with this key, like `crdt-mor why`.

    Values are text, because browsers round integers.
    """
    point = None if as_of is None else mor.parse_point(as_of, name="as_of")
    lines = records(table.why(key_of(text, table), column=column, as_of=point), maps_as_dicts=True)
    for line in lines:
        for name in ("written", "result", "states"):
            row = line.get(name)
            line[name] = None if row is None else {field: render.plain_or_none(value) for field, value in row.items()}
        line["same"] = has_same_values(line)
    return {"text": text, "lines": lines}


def lives(table: mor.Table, keys: Sequence[str], conflicts: Mapping[str, Any]) -> list[Document]:
    """Return the histories of these keys and of the first conflicts."""
    for text in keys:
        key_of(text, table)
    met = [row["text"] for row in conflicts["keys"] if row["has_life"]]
    return [_life(table, text) for text in dict.fromkeys([*keys, *met[:LIVES_MAX]])]


def _life(table: mor.Table, text: str) -> Document:
    try:
        return life_of_text(table, text)
    except mor.CrdtMorError as error:
        return {"text": text, "error": str(error)}


def _growth(table: mor.Table, history: Sequence[Mapping[str, Any]], files_now: int) -> Sequence[dict[str, Any]]:
    """Return the files of a full scan at some versions in the history, oldest first.

    files_now: files of the newest version. The more there are, the fewer versions are measured.
    """
    newest = table.version
    by_version = {commit["version"]: commit for commit in reversed(history) if commit["version"] <= newest}
    versions = sorted(by_version)
    points_max = min(POINTS_MAX, max(POINTS_MIN, FILES_MAX // max(1, files_now)))
    step = max(1, -(-len(versions) // points_max))
    chosen = [*versions[::step], *versions[-1:]] if versions else []
    completed = {version: by_version[version]["completed"] for version in chosen}
    sizes = table.inspect.sizes([*completed]).to_pylist()
    return [{**one, "completed": completed[one["version"]]} for one in sizes]
