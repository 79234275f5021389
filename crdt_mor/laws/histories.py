"""Build the histories of updates for the laws: every short one, and some longer ones.

A history is the writes of several commits to one key. If a payload's state depends on its dot, commits overlap: each
has seen the earlier commits, except pending ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

_NO_VALUE: Final = -1
_HISTORIES_MAX: Final = 200
"""Histories of three overlapping commits, at most; it limits the number of values in them."""


class Update(NamedTuple):
    """A value that a commit wrote to the key.

    written: index of the value in the trial.
    commit, place: the commit's number, from 1, and the update's position in it.
    pending: numbers of the commits that were pending when this one began.
    """

    written: int
    commit: int = 0
    place: int = 0
    pending: tuple[int, ...] = ()


History = tuple[Update, ...]


def contexts(commits: Sequence[int]) -> Iterator[list[Update]]:
    """Yield every overlap of commits as updates without values. commits: each update's commit, ascending from 1."""
    last = commits[-1]
    for ends in product(*(range(commit + 1, last + 2) for commit in range(1, last + 1))):
        yield placed(commits, ends)


def placed(commits: Sequence[int], ends: Sequence[int]) -> list[Update]:
    """Return updates without values. commits: as in `contexts`.

    Commit c is pending when the later commits below `ends[c - 1]` begin, and has ended for the others.
    """
    pending = {commit: tuple(c for c in range(1, commit) if ends[c - 1] > commit) for commit in commits}
    return [Update(_NO_VALUE, c, list(commits[:i]).count(c), pending[c]) for i, c in enumerate(commits)]


def histories_of(written: range, dot_fields: set[str]) -> list[History]:
    """Return all histories of three written values, and some longer ones. dot_fields: see `Trial.dot_fields`."""
    six_values = [[written[(i + k) % len(written)] for k in range(6)] for i in written]
    if not dot_fields:
        values = [*product(written, repeat=3), *product(written[:3], repeat=4), *map(tuple, six_values)]
        return [tuple(map(Update, row)) for row in values]
    two, three, four = (list(contexts(range(1, n + 1))) for n in (2, 3, 4))
    within_commits = [way for commits in ([1, 1], [1, 1, 2], [1, 2, 2], [1, 1, 1]) for way in contexts(commits)]
    six = [placed(range(1, 7), ends) for ends in (range(2, 8), [7] * 6)]
    if "pending" not in dot_fields:
        two, three, four, six = two[:1], three[:1], four[:1], six[:1]
        within_commits = [way for way in within_commits if not any(update.pending for update in way)]
    few = next(n for n in range(len(written), 0, -1) if n == 1 or n**3 * len(three) <= _HISTORIES_MAX)
    return [
        *_with_values(two, product(written, repeat=2)),
        *_with_values(three, product(written[:few], repeat=3)),
        *(h for row in product(written, repeat=3) for h in _with_values([three[sum(row) % len(three)]], [row])),
        *_with_values(within_commits, product(written[:2], repeat=3)),
        *_with_values(four, (row * 2 for row in product(written[:2], repeat=2))),
        *_with_values(six, six_values),
    ]


def _with_values(ways: Sequence[list[Update]], values: Iterable[Sequence[int]]) -> Iterator[History]:
    for row in values:
        for way in ways:
            yield tuple(update._replace(written=value) for update, value in zip(way, row, strict=False))


def some_histories(count: int, dot_fields: set[str]) -> list[History]:
    """Return every pair of `count` values followed by a third, with alternating overlaps."""
    ways = list(contexts([1, 2, 3])) if "pending" in dot_fields else [next(contexts([1, 2, 3]))]
    rows = [(i, j, (i + 2 * j + 1) % count) for i, j in product(range(count), repeat=2)]
    if not dot_fields:
        return [tuple(map(Update, row)) for row in rows]
    return [history for n, row in enumerate(rows) for history in _with_values([ways[n % len(ways)]], [row])]
