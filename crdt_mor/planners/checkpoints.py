"""Decide which history named readers keep from clean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crdt_mor.model.checkpoints import Checkpoint
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import LAST, InstantTime
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.clean import is_commit


def unread(completions: Iterable[Completion], cut: Cut) -> list[Completion]:
    return [c for c in completions if is_commit(c) and not cut.shows(c)]


def held_from(
    completions: Sequence[Completion], checkpoints: Iterable[Checkpoint], oldest: InstantTime, *, expires: bool
) -> InstantTime:
    """Return the time from which history stays for readers; LAST if none has a commit to read.

    oldest: readers with an unread commit before this time keep nothing. expires: rows expire without a commit.
    """
    held = LAST
    for checkpoint in checkpoints:
        cut = checkpoint.cut
        since = cut.time if expires else min((c.completed for c in unread(completions, cut)), default=None)
        if since is not None and since >= oldest:
            held = min(held, cut.time)
    return held
