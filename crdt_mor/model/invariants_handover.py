"""The invariant of tables handed over to Hudi's writers."""

from __future__ import annotations

from crdt_mor.model.instant import EPOCH
from crdt_mor.model.timeline import Timeline


def nothing_begins_in_a_table_that_is_handed_over(previous: Timeline, following: Timeline) -> bool:
    """A table handed over to Hudi has no pending write and no open plan, and gets only Hudi's commits.

    Our instant could have the requested time of a Hudi commit, or hide that commit.
    """
    if following.handed_over == EPOCH:
        return True
    quiet = not following.pending and not following.plans
    if previous.handed_over == EPOCH:
        return quiet
    adopts_alone = all(c.adopted for c in following.completions_since(previous))
    return quiet and adopts_alone and following.handed_over == previous.handed_over
