"""What is true of a write that has said at its begin what it will touch: see `model.declared`."""

from __future__ import annotations

from crdt_mor.model.timeline import Timeline


def a_write_keeps_to_what_it_has_declared(previous: Timeline, following: Timeline) -> bool:
    """A version completes a write with files of the partitions alone that its begin has declared.

    A later update of other partitions has not waited for it, and would have been computed without these rows.
    """
    declared = {pending.requested: pending.declared for pending in previous.pending}
    ended = [c for c in following.completions if c.version == following.version and c.requested in declared]
    return not any(declared[c.requested].outside(file.partition for file in c.files) for c in ended)
