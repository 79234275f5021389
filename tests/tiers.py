"""Which cases of a test run before every commit, and which in the slow and the long tier.

    fast    make test          a case of each kind: three to eight minutes on two cores
    slow    make check-slow    more seeds, sizes and combinations of the same tests: part of CI
    long    make check-long    what takes a minute or more by itself, and seeds beyond those of CI

CONTRIBUTING.md says how long each takes. Nothing runs in two tiers: a long seed of a slow case is long. Of the slow
cases of a test the slow tier runs every third, beginning with the first, and the long tier the others (`thin_out`).
A test that takes more than half a second of a processor is marked `slow`; one whose cases take that together is marked
`costly`, and the slow tier runs all of its cases but the first (`spread`).

CI runs a sample of some tiers, `--one-in N`. Its first test depends on the commit (`turn_of`), so N successive commits
run every test. The header names the sample; `--turn` repeats it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Container, Iterable
from itertools import groupby
from pathlib import Path
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


def turn_of(repository: Path) -> int:
    """Return the number of commits up to HEAD. A shallow clone returns a number from HEAD's hash, no repository 0."""
    head, depth, shallow = (
        _git(repository, *arguments)
        for arguments in (
            ("rev-parse", "HEAD"),
            ("rev-list", "--count", "HEAD"),
            ("rev-parse", "--is-shallow-repository"),
        )
    )
    return int(head[:8] or "0", 16) if shallow == "true" else int(depth or 0)


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of a command of git; "" if it fails or git is missing."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def left_out(items: list[pytest.Item], one_in: int, turn: int) -> list[pytest.Item]:
    """Keep every `one_in`-th test in the list, from number `turn % one_in` on, and return the others."""
    first = turn % one_in
    out = [item for number, item in enumerate(items) if number % one_in != first]
    items[:] = items[first::one_in]
    return out


def said_sample(one_in: int, turn: int) -> list[str]:
    """Return the line of a report that repeats a sample."""
    return [f"sample: --one-in {one_in} --turn {turn % one_in}"] if one_in > 1 else []
