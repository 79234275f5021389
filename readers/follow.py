"""Following a table, as `tail -f` follows a file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from crdt_mor import Changes, Table


def follow(
    table: Table, since: Any = None, *, every: timedelta = timedelta(seconds=1), **options: Any
) -> Iterator[Changes]:
    """One window after another, each as soon as there is one; never ends.

    since and options: as `Table.changes` takes them. every: how long to wait where there is nothing new.
    Keep the `checkpoint` of a window when you are done with it, and begin there the next time.
    """
    while True:
        changes = table.changes(since, **options)
        if changes.commits:
            since = changes.checkpoint
            yield changes
        else:
            table.environment.sleep(every.total_seconds())
