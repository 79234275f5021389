"""Follow a table, as `tail -f` follows a file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from crdt_mor import Changes, Table


def follow(
    table: Table, since: Any = None, *, every: timedelta = timedelta(seconds=1), **options: Any
) -> Iterator[Changes]:
    """Yield each new window of changes of a table; never ends.

    Store the `checkpoint` of a window after processing it, and pass it as `since` the next time. With `reader=`, the
    step to the next window records it.

    Args:
        table: the table to follow.
        since: the first checkpoint, as for `Table.changes`.
        every: the time between two looks for new commits.
        options: further arguments of `Table.changes`.
    """
    while True:
        changes = table.changes(since, **options)
        if changes.commits:
            yield changes
            since = changes.checkpoint
        else:
            table.environment.sleep(every.total_seconds())
