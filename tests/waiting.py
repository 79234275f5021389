"""How a test waits for a process that it does not run itself: it looks until something holds, and never just sleeps.

This is the one module of the tests that lets real time pass (`test_architecture` holds them to it). Whatever runs in
the test's own process has a simulated clock instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.005


def wait_for(
    what: str,
    condition: Callable[[], object],
    patience_s: float = PATIENCE_S,
    where: Callable[[], str] = str,
    every_s: float = LOOK_EVERY_S,
) -> None:
    """Look until the condition holds; `where` describes the state of things if it never does."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {patience_s} s\n{where()}"
        time.sleep(every_s)


def let_run(seconds: float) -> None:
    """Real processes go on for a while that a test has drawn by lot: for moments that nothing announces."""
    time.sleep(seconds)
