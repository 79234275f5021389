"""Find the blocks of a file slice that count, and their positions, after Hudi's log compactions.

A log compaction's blocks replace the blocks of the instants in their header, which stay in their files. The new block
takes the position of the newest of them:

    instants 1 2 3 4, and 5 that replaces 1, 2 and 3      ->    5 4

A log compaction that names an earlier log compaction replaces its instants too. In an earlier view replaced blocks may
be missing; if all are, the block does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.format.log import LogBlock
from crdt_mor.model.instant import InstantTime


def places(blocks: Sequence[LogBlock]) -> list[InstantTime | None]:
    """Return for each block the instant of its position; None if the block does not count."""
    stands_for = {block.instant: block.stands_for for block in blocks if block.stands_for}
    if not stands_for:
        return [block.instant for block in blocks]
    replaced_by: dict[InstantTime, InstantTime] = {}
    for instant in sorted(stands_for, reverse=True):  # a log compaction is later than its instants
        last = replaced_by.get(instant, instant)
        replaced_by.update(dict.fromkeys(stands_for[instant], last))
    place: dict[InstantTime, InstantTime] = {}
    for instant in sorted({block.instant for block in blocks} - stands_for.keys()):
        place[replaced_by.get(instant, instant)] = instant
    return [place.get(block.instant) for block in blocks]
