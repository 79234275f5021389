"""Find the line of the user's program for a warning."""

from __future__ import annotations

import inspect


def callers_level() -> int:
    """Return the `stacklevel` of the first frame outside this package, seen from the caller."""
    level, frame = 1, inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "crdt_mor":
        level, frame = level + 1, frame.f_back
    return level
