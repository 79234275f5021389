"""Which tier a case of a test runs in: each in one, whatever marks the test has."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import left_out, said_sample, spread, thin_out, turn_of


class Case:
    """A case of a test, as far as the tiers ask it."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid = nodeid
        self.marks = set(marks)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.add(mark.name)

    @property
    def tier(self) -> str:
        """The last of its marks that is a tier's; a case that is slow and long is left to the long tier."""
        return "long" if "long" in self.marks else "slow" if "slow" in self.marks else "fast"


def tiers(*cases: Case) -> list[str]:
    """The tier of each case, as pytest's hook decides it."""
    items: list[Any] = list(cases)
    thin_out(items)
    spread(items)
    return [case.tier for case in cases]


def test_of_the_slow_cases_of_a_test_every_third_is_slow_and_the_others_are_long() -> None:
    assert tiers(*(Case(f"t.py::test[{n}]", "slow") for n in range(5))) == ["slow", "long", "long", "slow", "long"]


def test_of_a_costly_test_the_first_case_is_fast_and_the_others_are_slow() -> None:
    cases = [Case(f"t.py::test[{n}]", "costly") for n in range(3)]
    assert tiers(*cases, Case("t.py::other", "costly")) == ["fast", "slow", "slow", "fast"]


def test_what_a_costly_test_says_of_a_case_itself_stays() -> None:
    cases = [
        Case("t.py::test[a]", "costly", "slow"),
        Case("t.py::test[b]", "costly"),
        Case("t.py::test[c]", "costly", "long"),
    ]
    assert tiers(*cases) == ["slow", "fast", "long"]


def sample(tests: list[str], one_in: int, turn: int) -> list[str]:
    """The tests of a sample; `left_out` returns the others."""
    items: list[Any] = list(tests)
    out = left_out(items, one_in, turn)
    assert sorted([*items, *out]) == tests
    return items


@pytest.mark.parametrize("first", [0, 3, 1_000_001])
def test_left_out_of_successive_commits_covers_every_test_once(first: int) -> None:
    tests = [f"t{n:02}" for n in range(23)]
    runs = [sample(tests, 5, first + commit) for commit in range(5)]
    assert sorted(test for run in runs for test in run) == tests
    assert sample(tests, 5, first + 5) == runs[0]


def test_left_out_of_one_in_one_keeps_all() -> None:
    assert sample(["a", "b", "c"], 1, 7) == ["a", "b", "c"]


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=t", "-c", "user.email=t", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def test_turn_of_a_repository_counts_its_commits(tmp_path: Path) -> None:
    """A shallow clone counts one commit each time, so its turn comes from the hash."""
    assert turn_of(tmp_path) == 0
    whole = tmp_path / "whole"
    whole.mkdir()
    git(whole, "init", "-q")
    for number in (1, 2):
        git(whole, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
        assert turn_of(whole) == number
    git(tmp_path, "clone", "-q", "--depth", "1", whole.as_uri(), "shallow")
    assert turn_of(tmp_path / "shallow") > 2


def test_said_sample_names_the_options_that_repeat_it() -> None:
    assert said_sample(5, 13) == ["sample: --one-in 5 --turn 3"]
    assert said_sample(1, 13) == []
