"""Which blocks of a file slice count, after log compactions of Hudi's, and at which place.

A log compaction writes one log file for each file group, whose blocks stand for those of the instants that their header
names. Those stay in their files, and the block takes the place of the newest of them:

    instants 1 2 3 4, and 5 that stands for 1, 2 and 3      ->    5 4

A later log compaction may name an earlier one among others, and then stands for all that the earlier one stood for.
What a block stands for may be missing, as of an earlier moment; a block of which all is missing does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_mor.format.log import LogBlock
from crdt_mor.model.instant import InstantTime


def places(blocks: Sequence[LogBlock]) -> list[InstantTime | None]:
    """For each block of a slice the instant at whose place it counts; None where it does not count."""
    stands_for = {block.instant: block.stands_for for block in blocks if block.stands_for}
    if not stands_for:
        return [block.instant for block in blocks]
    replaced_by: dict[InstantTime, InstantTime] = {}
    for instant in sorted(stands_for, reverse=True):  # a log compaction is later than what it stands for
        last = replaced_by.get(instant, instant)
        replaced_by.update(dict.fromkeys(stands_for[instant], last))
    place: dict[InstantTime, InstantTime] = {}
    for instant in sorted({block.instant for block in blocks} - stands_for.keys()):
        place[replaced_by.get(instant, instant)] = instant
    return [place.get(block.instant) for block in blocks]
