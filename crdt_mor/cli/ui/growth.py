"""The growth of read costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import crdt_mor as mor

POINTS_MAX: Final = 40
"""Measured versions."""

POINTS_MIN: Final = 4

FILES_MAX: Final = 10_000
"""Files of all measured versions together."""


def growth_of(table: mor.Table, history: Sequence[Mapping[str, Any]], files_now: int) -> Sequence[dict[str, Any]]:
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
