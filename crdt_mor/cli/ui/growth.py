"""The growth of a table and of its read costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

import crdt_mor as mor

POINTS_MAX: Final = 40
"""Measured versions."""

POINTS_MIN: Final = 4

FILES_MAX: Final = 10_000
"""Files to look at, of all measured versions together. A file takes some 50 microseconds."""


def growth_of(table: mor.Table, history: Sequence[Mapping[str, Any]], files_now: int) -> Sequence[dict[str, Any]]:
    """Return the files of a full scan at some versions in the history, oldest first.

    files_now: files of the newest version. The more there are, the fewer versions are measured.
    Expired versions, and commits of Hudi without a version, are omitted.
    """
    newest = table.version
    by_version = {commit["version"]: commit for commit in reversed(history) if commit["version"] <= newest}
    versions = sorted(by_version)
    points_max = min(POINTS_MAX, max(POINTS_MIN, FILES_MAX // max(1, files_now)))
    step = max(1, -(-len(versions) // points_max))
    chosen = [*versions[::step], *versions[-1:]] if versions else []
    points = []
    for version in dict.fromkeys(chosen):
        try:
            files = pl.DataFrame(table.inspect.files(as_of=version))
        except (mor.SnapshotExpiredError, mor.errors.UnsupportedFeatureError):  # Hudi 6 only has the latest snapshot
            continue
        is_base = files["kind"] == "base"
        points.append(
            {
                "version": version,
                "completed": by_version[version]["completed"],
                "base_bytes": int(files.filter(is_base)["bytes"].sum()),
                "log_bytes": int(files.filter(~is_base)["bytes"].sum()),
                "bases": int(is_base.sum()),
                "logs": int((~is_base).sum()),
            }
        )
    return points
