"""The invariant of declared writes, see `model.declared`."""

from __future__ import annotations

from crdt_mor.model.timeline import Timeline


def a_write_keeps_to_what_it_has_declared(previous: Timeline, following: Timeline) -> bool:
    """A write completes only with files in the partitions declared at its begin.

    A later update of other partitions did not wait for this write, and would miss its rows.
    """
    declared = {pending.requested: pending.declared for pending in previous.pending}
    ended = [c for c in following.completions if c.version == following.version and c.requested in declared]
    return not any(declared[c.requested].outside(file.partition for file in c.files) for c in ended)
