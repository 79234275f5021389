"""Choose the way of a write, and when a publisher takes posts along.

    alone    one event begins and completes the write
    post     the write lies among the posts until a publisher takes it along
    begin    an event begins the write, another completes it

*Bounded bypass.* A post waits for a publisher. Events that are not groups could pass it for ever: begins and ends of
blocks, commits of one writer, plans. So whoever publishes after version t first lists the posts, and takes all open
posts along once two versions have passed one of them. The version in a post's name is its age; no clock is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PASSED_MAX: Final = 2
"""Versions that may pass a post before a publisher takes it along. With fewer, owners of posts had no time to commit
them together; with more, they wait longer."""


def is_passed(posts: Iterable[int], version: int) -> bool:
    """Return True if the publisher of the version after `version` must take the posts along.

    posts: the versions in their names.
    """
    return any(version - post >= PASSED_MAX for post in posts)
