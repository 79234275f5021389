"""What the tests of writing through Spark ask of a table."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from crdt_mor import Table
from tests import waiting
from tests.inside import session_of
from tests.table.helpers import data_files, files


def same_rows(found: Table, expected: Table) -> None:
    """Two tables show the same rows, whatever their order."""
    by = list(expected.config.key)
    mine, theirs = (_frame(t).sort(by) for t in (found, expected))
    assert_frame_equal(mine, theirs)


def _frame(table: Table) -> pl.DataFrame:
    return table.scan().to_polars()


def leftovers(path: str | Path) -> list[str]:
    """What a write that is over must not leave: staged files, heartbeats, data files that no commit names.

    A job fails with its first task, while others of it still run: those have some seconds to notice, and to clean up.
    """
    with suppress(AssertionError):
        waiting.wait_for("clean table", lambda: not _leftovers(path), patience_s=10, every_s=0.1)
    return _leftovers(path)


def _leftovers(path: str | Path) -> list[str]:
    session = session_of(Table(path))
    named = {file.path for done in session.views.completions(session.tail()) for file in done.files}
    strays = sorted(data_files(path) - named)
    return strays + [n for n in files(path) if n.startswith((".hoodie/.crdt_mor/staged/", ".hoodie/.heartbeat/"))]


def pending(path: str | Path) -> list[Any]:
    """The writes that have begun and not ended."""
    rows = Table(path).inspect.timeline().to_pylist()
    return [row for row in rows if row["state"] == "pending"]
