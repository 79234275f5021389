"""Choose the way of a small write, and when a publisher takes posts along.

    alone    one event begins and completes the write
    post     the write lies among the posts until a publisher takes it along
    begin    an event begins the write, another completes it

*Bounded bypass.* A post waits for a publisher. Events that are not groups could pass it for ever: begins and ends of
blocks, commits of one writer, plans. So whoever publishes after version t first lists the posts, and takes all open
posts along once two versions have passed one of them. The version in a post's name is its age; no clock is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

PASSED_MAX: Final = 2
"""Versions that may pass a post before a publisher takes it along. With fewer, owners had no time to commit posts
together; with more, they wait longer."""

RACES_MAX: Final = 2
"""Lost tries of a computed write before it begins. Each repeats its read; a begin fixes the write's place."""

EVENT_RACES_MAX: Final = 1
"""Lost races before an event of a long write is posted: one is chance, two are a crowd."""

FILE_GROUPS_MAX: Final = 64
"""Most file groups of a write in one event. After a lost race, all their files are made again."""

ALONE_BYTES_MAX: Final = 8 << 20
"""Most bytes of rows in one event. They are held in memory, and written again after a lost race."""

POST_BYTES_MAX: Final = 1 << 18
"""Most bytes of a posted write. Another process reads the post and writes its rows."""

BUSY_MS: Final = 1_000
"""Age of the newest version below which a process that opens the table expects to race."""

STALE_MS: Final = 1_000
"""How long a look counts as news. Then a process looks again: in a bucket beside its claim, on a disk before a
post."""

SLOW_MS: Final = 10
"""If the rows took longer to arrive, the writer looks for the newest version again."""

Step = Literal["alone", "post", "begin"]


@dataclass(frozen=True, slots=True)
class Way:
    step: Step
    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A writer's knowledge of the version to follow.

    is_open: no token, format, handover or writer of Hudi's forbids that one event follows. is_crowded: other writers
    were in the way recently. is_pending_earlier: a pending write may change rows that this write reads. is_far: the
    store is a bucket.
    """

    is_open: bool = True
    is_crowded: bool = False
    is_pending_earlier: bool = False
    is_far: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """The known facts of a write. The defaults leave every way open, so `way` can be called early.

    is_computed: its rows depend on the table's, so no other process can commit it. bytes: of its rows; None: unknown,
    and maybe many. file_groups: at most so many; 0: no rows. is_postable: its merge and the table's format allow a
    post. lost: number of lost races. refused: number of refusals by a version that was not the newest.
    """

    is_computed: bool = False
    bytes: int | None = 0
    file_groups: int = 1
    adds_columns: bool = False
    is_postable: bool = True
    lost: int = 0
    refused: int = 0


CLOSED: Final = Way("begin", "one event may not follow this version")
BLOCK: Final = Way("begin", "a block has several statements")
OVERWRITE: Final = Way("begin", "an overwrite stages base files, which needs a begin")
HUDI: Final = Way("begin", "Hudi has a write under way")
CHANGED: Final = Way("begin", "the table's properties have changed")
REFUSED: Final = Way("begin", "the followed version refused the rows")
UNPOSTED: Final = Way("begin", "others are in the way, and this write cannot be posted")
UNTAKEN: Final = Way("begin", "no version took the post")


def way(seen: Seen, write: Write) -> Way:
    """Return the way of a write after a version. A fact that becomes known later can only make it longer."""
    if not seen.is_open:
        return CLOSED
    if write.bytes is None or write.bytes > ALONE_BYTES_MAX:
        return Way("begin", "the rows are too many bytes for one event")
    if write.file_groups > FILE_GROUPS_MAX:
        return Way("begin", "the rows are in too many file groups for one event")
    if write.file_groups == 0:
        return Way("begin", "there are no rows")
    if write.adds_columns:
        return Way("begin", "the rows add columns")
    if write.is_computed:
        return _of_computed(seen, write)
    if not seen.is_crowded and not write.lost:
        return Way("alone", "no other writer is in the way")
    if not write.is_postable:
        return UNPOSTED
    if write.bytes > POST_BYTES_MAX:
        return Way("begin", "others are in the way, and the rows are too many bytes for a post")
    return Way("post", "others are in the way")


def _of_computed(seen: Seen, write: Write) -> Way:
    if seen.is_pending_earlier:
        return Way("begin", "an earlier write is pending, and a begin fixes this write's place behind it")
    if write.lost + write.refused >= RACES_MAX or (seen.is_far and write.lost):
        return Way("begin", "others were faster, and a begin fixes this write's place")
    return Way("alone", "no earlier write is pending")


def is_passed(posts: Iterable[int], version: int) -> bool:
    """Return True if the publisher after `version` must take the posts along. posts: the versions in their names."""
    return any(version - post >= PASSED_MAX for post in posts)
