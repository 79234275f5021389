"""How a table grew, and what it cost to read it, commit after commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

import crdt_mor as mor

POINTS_MAX: Final = 40
"""The moments at which the page says what a table's files were."""


def growth_of(table: mor.Table, history: Sequence[Mapping[str, Any]]) -> Sequence[dict[str, Any]]:
    """What a scan had to read at some of the versions in the history, oldest first.

    A version that the table answers no more for is left out, and commits of Hudi's that no version has yet. logs: the
    log files that a scan opens and merges.
    """
    newest = table.version
    by_version = {commit["version"]: commit for commit in reversed(history) if commit["version"] <= newest}
    versions = sorted(by_version)
    step = max(1, -(-len(versions) // POINTS_MAX))
    chosen = [*versions[::step], *versions[-1:]] if versions else []
    points = []
    for version in dict.fromkeys(chosen):
        try:
            files = pl.DataFrame(table.inspect.files(as_of=version))
        except (mor.SnapshotExpiredError, mor.UnsupportedFeatureError):  # Hudi 6 has the latest snapshot alone
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
