"""Which cases of a test run before every commit, and which in the slow tier (`make check-slow`).

The fast tier has a case of each kind; seeds, sizes and combinations beyond that are slow ones of the same test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case that runs in the slow tier only."""
    return pytest.param(*values, marks=pytest.mark.slow)


def seeds(fast: Iterable[int], more: Iterable[int]) -> list[Any]:
    """Seeds of the fast tier, and more of them in the slow one."""
    return [*fast, *map(slow, more)]
