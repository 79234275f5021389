"""What Spark shows of an error that a data source raises: its message in the first line, not behind a traceback.

    [PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: crdt_mor.errors.InvalidInputError: …

Spark asks a data source in processes of its own, which send the text of an error and end. A traceback there leads
through pyspark and this package alone. It would begin the text, and the message would be its last line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from crdt_mor import CrdtMorError

P = ParamSpec("P")
R = TypeVar("R")

_WITHOUT_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable that pyspark looks at when an error has come."""


def message_first(answer: Callable[P, R]) -> Callable[P, R]:
    """A method that Spark calls in a process of its own, an error of which is shown by its message."""

    @wraps(answer)
    def answered(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return answer(*arguments, **named)
        except CrdtMorError:
            if _is_sparks_process():
                os.environ[_WITHOUT_TRACEBACK] = "1"  # the process ends with this error
            raise

    return answered


def _is_sparks_process() -> bool:
    """Whether this process is one that Spark has started, and no program of a user's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
