"""Which cases of a test run before every commit, and which in the slow and the long tier.

    fast    make test          a case of each kind: three to eight minutes on two cores
    slow    make check-slow    more seeds, sizes and combinations of the same tests: part of CI
    long    make check-long    what takes a minute or more by itself, and seeds beyond those of CI

CONTRIBUTING.md says how long each takes. Nothing runs in two tiers: a long seed of a slow case is long. Of the slow
cases of a test the slow tier runs every third, beginning with the first, and the long tier the others (`thin_out`).
A test that takes more than half a second of a processor is marked `slow`; one whose cases take that together is marked
`costly`, and the slow tier runs all of its cases but the first (`spread`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import groupby
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case of the slow tier."""
    return pytest.param(*values, marks=pytest.mark.slow)


def long(*values: Any) -> Any:
    """A case of the long tier."""
    return pytest.param(*values, marks=pytest.mark.long)


def one_in(number: int, cases: Iterable[Any]) -> list[Any]:
    """Every so many of the cases in the fast tier, and all others in the slow one: each is the values of a test."""
    return [
        case if index % number == 0 else slow(*case) if isinstance(case, tuple) else slow(case)
        for index, case in enumerate(cases)
    ]


def only(fast: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """These of the cases in the fast tier, and all others in the slow one."""
    return [case if case in fast else slow(*case) if isinstance(case, tuple) else slow(case) for case in cases]


def seeds(fast: Iterable[int], more: Iterable[int], most: Iterable[int] = ()) -> list[Any]:
    """Seeds of the fast tier, more of them in the slow one, and most of all in the long one."""
    return [*fast, *map(slow, more), *map(long, most)]


def thin_out(items: Iterable[pytest.Item]) -> None:
    """Of the slow cases of each test every third stays, beginning with the first, and the others are long."""
    cases = [item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("long")]
    for _, of_test in groupby(cases, lambda item: item.nodeid.partition("[")[0]):
        for number, item in enumerate(of_test):
            if number % 3:
                item.add_marker(pytest.mark.long)


def spread(items: Iterable[pytest.Item]) -> None:
    """Of the cases of a costly test the first stays in the fast tier, and the others are slow."""
    met: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if not item.get_closest_marker("costly") or item.get_closest_marker("slow") or item.get_closest_marker("long"):
            continue
        if test in met:
            item.add_marker(pytest.mark.slow)
        met.add(test)


def left_out(items: list[pytest.Item], one_in: int) -> list[pytest.Item]:
    """What a sample of one in so many tests leaves out; the sample is what stays in the list."""
    out = [item for number, item in enumerate(items) if number % one_in]
    items[:] = items[::one_in]
    return out
