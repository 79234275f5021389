"""Which tier a case of a test runs in: each in one, whatever marks the test has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tiers import spread, thin_out


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
