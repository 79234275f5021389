"""Modules are compiled once for all processes of the tests, also where Python is asked to leave nothing beside them.

A process that compiles polars, pyarrow and this package anew takes a second longer to start, and the tests start many.
Containers often set PYTHONDONTWRITEBYTECODE; what is compiled then goes to pytest's cache, and the folders of sources
stay as they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"


def keep() -> None:
    """From now on, in this process and those that it starts."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(FOLDER)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(FOLDER)
