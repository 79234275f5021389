"""What is true of the posts that a version of the timeline takes or voids: see `model.posts`."""

from __future__ import annotations

from crdt_mor.model.posts import Decided, is_open, still_kept
from crdt_mor.model.timeline import Timeline


def a_post_is_taken_once_and_in_time(previous: Timeline, following: Timeline) -> bool:
    """What this version takes was open, was neither taken nor voided before, and is noted from here on.

    A write would be committed twice otherwise, or after its caller was told that it failed.
    """
    new = [c for c in following.completions if c.version == following.version]
    taken = [m.post for c in new for m in c.members if m.post is not None]
    noted = Decided.of(following.posts)
    kept = all(post in noted for post in taken if is_open(post, following.version))
    return kept and len(taken) == len(set(taken)) and all(map(previous.may_take, taken))


def posts_are_noted_while_they_are_open(previous: Timeline, following: Timeline) -> bool:
    """The name of a post that was taken or voided stays as long as a later version could take the post."""
    if previous.posts == following.posts:
        return True
    return Decided.of(following.posts).includes(Decided.of(still_kept(previous.posts, following.version)))
