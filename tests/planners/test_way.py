"""The way of a write: a table of cases, and the laws that hold for all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from crdt_mor.planners.way import (
    ALONE_BYTES_MAX,
    FILE_GROUPS_MAX,
    PASSED_MAX,
    POST_BYTES_MAX,
    RACES_MAX,
    Seen,
    Step,
    Write,
    is_passed,
    way,
)

QUIET = Seen()
CROWDED = Seen(is_crowded=True)
ROWS = Write()
COMPUTED = Write(is_computed=True, is_postable=False)

CASES: list[tuple[Seen, Write, Step, str]] = [
    (QUIET, ROWS, "alone", "no other writer"),
    (Seen(is_far=True), ROWS, "alone", "no other writer"),
    (QUIET, replace(ROWS, lost=1), "post", "others are in the way"),
    (CROWDED, ROWS, "post", "others are in the way"),
    (CROWDED, replace(ROWS, bytes=POST_BYTES_MAX), "post", "others are in the way"),
    (CROWDED, replace(ROWS, bytes=POST_BYTES_MAX + 1), "begin", "too many bytes for a post"),
    (QUIET, replace(ROWS, bytes=POST_BYTES_MAX + 1), "alone", "no other writer"),
    (QUIET, replace(ROWS, bytes=POST_BYTES_MAX + 1, lost=1), "begin", "too many bytes for a post"),
    (QUIET, replace(ROWS, bytes=ALONE_BYTES_MAX), "alone", "no other writer"),
    (QUIET, replace(ROWS, bytes=ALONE_BYTES_MAX + 1), "begin", "too many bytes for one event"),
    (QUIET, replace(ROWS, bytes=None), "begin", "too many bytes for one event"),
    (QUIET, replace(ROWS, file_groups=FILE_GROUPS_MAX), "alone", "no other writer"),
    (QUIET, replace(ROWS, file_groups=FILE_GROUPS_MAX + 1), "begin", "file groups"),
    (QUIET, replace(ROWS, file_groups=0), "begin", "no rows"),
    (QUIET, replace(ROWS, adds_columns=True), "begin", "add columns"),
    (QUIET, replace(ROWS, is_postable=False), "alone", "no other writer"),
    (CROWDED, replace(ROWS, is_postable=False), "begin", "cannot be posted"),
    (QUIET, replace(ROWS, is_postable=False, lost=1), "begin", "cannot be posted"),
    (Seen(is_open=False), ROWS, "begin", "may not follow"),
    (Seen(is_pending_earlier=True), ROWS, "alone", "no other writer"),
    (QUIET, COMPUTED, "alone", "no earlier write is pending"),
    (CROWDED, COMPUTED, "alone", "no earlier write is pending"),
    (Seen(is_pending_earlier=True), COMPUTED, "begin", "an earlier write is pending"),
    (QUIET, replace(COMPUTED, lost=1), "alone", "no earlier write is pending"),
    (QUIET, replace(COMPUTED, lost=RACES_MAX), "begin", "others were faster"),
    (Seen(is_far=True), replace(COMPUTED, lost=1), "begin", "others were faster"),
    (Seen(is_far=True), replace(COMPUTED, refused=1), "alone", "no earlier write is pending"),
    (Seen(is_far=True), replace(COMPUTED, refused=RACES_MAX), "begin", "others were faster"),
    (QUIET, replace(COMPUTED, lost=1, refused=1), "begin", "others were faster"),
    (QUIET, replace(COMPUTED, bytes=ALONE_BYTES_MAX + 1), "begin", "too many bytes for one event"),
    (QUIET, replace(COMPUTED, file_groups=0), "begin", "no rows"),
]


@pytest.mark.parametrize(("seen", "write", "step", "reason"), CASES)
def test_way_of_each_case_is_this_step_for_this_reason(seen: Seen, write: Write, step: Step, reason: str) -> None:
    chosen = way(seen, write)
    assert chosen.step == step
    assert reason in chosen.reason


LATER: dict[str, list[object]] = {
    "bytes": [0, POST_BYTES_MAX + 1, ALONE_BYTES_MAX + 1, None],
    "file_groups": [1, FILE_GROUPS_MAX + 1],
    "adds_columns": [False, True],
    "is_postable": [True, False],
    "lost": [0, 1, RACES_MAX],
    "refused": [0, 1, RACES_MAX],
}
"""Facts that become known later: each default first, then values that make the way longer."""

SEEN = [Seen(*flags) for flags in product([True, False], repeat=4)]


@pytest.mark.parametrize("is_computed", [False, True])
def test_way_of_facts_known_later_is_never_shorter(is_computed: bool) -> None:
    """So a writer may ask before it knows its file groups, and trust the answer `begin`."""
    order: list[Step] = ["alone", "post", "begin"]
    for seen, values in product(SEEN, product(*LATER.values())):
        write = Write(is_computed=is_computed, **dict(zip(LATER, values, strict=True)))  # type: ignore[arg-type]
        step = order.index(way(seen, write).step)
        for name, known in LATER.items():
            for more in known[known.index(getattr(write, name)) :]:
                longer = way(seen, replace(write, **{name: more}))  # type: ignore[arg-type]
                assert order.index(longer.step) >= step, (seen, write, name, more)


def test_computed_write_is_never_posted() -> None:
    for seen, values in product(SEEN, product(*LATER.values())):
        write = Write(is_computed=True, **dict(zip(LATER, values, strict=True)))  # type: ignore[arg-type]
        assert way(seen, write).step != "post"


def test_write_that_goes_on_losing_races_comes_to_an_end() -> None:
    """Each loss leads to a post, which others take along, or to a begin: no write is tried for ever."""
    for seen, write in product(SEEN, [ROWS, COMPUTED, replace(ROWS, is_postable=False)]):
        steps = [way(seen, replace(write, lost=lost)).step for lost in range(RACES_MAX + 1)]
        assert steps[-1] != "alone", (seen, write)


@pytest.mark.parametrize(
    ("posts", "version", "passed"),
    [
        ((), 9, False),
        ((9,), 9, False),
        ((9 - PASSED_MAX + 1,), 9, False),
        ((9 - PASSED_MAX,), 9, True),
        ((9, 3), 9, True),
    ],
)
def test_post_is_passed_once_two_versions_have_followed_its_own(
    posts: tuple[int, ...], version: int, passed: bool
) -> None:
    assert is_passed(posts, version) == passed
