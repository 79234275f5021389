"""Invariants of taken and voided posts, see `model.posts`."""

from __future__ import annotations

from crdt_mor.model.posts import Decided, is_open, still_kept
from crdt_mor.model.timeline import Timeline


def a_post_is_taken_once_and_in_time(previous: Timeline, following: Timeline) -> bool:
    """A taken post was open, was neither taken nor voided before, and is noted from now on.

    Otherwise a write would commit twice, or after its caller saw it fail.
    """
    new = [c for c in following.completions if c.version == following.version]
    taken = [m.post for c in new for m in c.members if m.post is not None]
    noted = Decided.of(following.posts)
    kept = all(post in noted for post in taken if is_open(post, following.version))
    return kept and len(taken) == len(set(taken)) and all(map(previous.may_take, taken))


def posts_are_noted_while_they_are_open(previous: Timeline, following: Timeline) -> bool:
    """A taken or voided post stays noted while a later version could take it."""
    if previous.posts == following.posts:
        return True
    return Decided.of(following.posts).includes(Decided.of(still_kept(previous.posts, following.version)))
