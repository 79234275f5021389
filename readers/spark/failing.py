"""What Spark shows of an error of ours: its message in the first line, not behind a traceback.

    [PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: crdt_mor.errors.InvalidInputError: …

Spark asks a data source in processes of its own, and runs tasks in others, which send the text of an error and end. A
traceback there leads through pyspark and this package alone. It would begin the text, and the message would be its last
line: `message_first`. Functions of this package that wait for a job of Spark's know that text, and raise the error that
it tells of: `own_errors`.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from pyspark.errors import PySparkException

import crdt_mor as mor

P = ParamSpec("P")
R = TypeVar("R")

_WITHOUT_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable that pyspark looks at when an error has come."""

_OURS: Final = re.compile(
    rf"\b{re.escape(mor.CrdtMorError.__module__)}\.(\w+): (.*?)(?=\n *SQLSTATE|\n\s+at |\n\n|\s*\Z)", re.DOTALL
)
"""An error of ours in what Spark says: its class and its message."""

_VIOLATION: Final = re.compile(
    r"\. constraint=(['\"])(?P<rule>.*?)(?:: .*?)?\1 key=(?P<key>\{.*?\}) values=.* rows=(?P<rows>\d+)"
)
"""The facts at the end of the message of a broken rule."""


def message_first(answer: Callable[P, R]) -> Callable[P, R]:
    """A function that Spark calls in a process of its own, an error of which is shown by its message."""

    @wraps(answer)
    def answered(*arguments: P.args, **named: P.kwargs) -> R:
        with _without_traceback():
            return answer(*arguments, **named)

    return answered


def rows_message_first(answer: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """The same of a function that yields rows, an error of which comes while they are taken."""

    @wraps(answer)
    def answered(*arguments: P.args, **named: P.kwargs) -> Iterator[R]:
        with _without_traceback():
            yield from answer(*arguments, **named)

    return answered


@contextmanager
def _without_traceback() -> Iterator[None]:
    try:
        yield
    except mor.CrdtMorError:
        if _is_sparks_process():
            os.environ[_WITHOUT_TRACEBACK] = "1"  # the process ends with this error
        raise


def _is_sparks_process() -> bool:
    """Whether this process is one that Spark has started, and no program of a user's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


@contextmanager
def own_errors() -> Iterator[None]:
    """Within the block, an error of Spark that tells of one of ours, from a task or the commit, is raised as ours."""
    try:
        yield
    except PySparkException as error:
        own = told_by(str(error))
        if own is None:
            raise
        raise own from error


def told_by(text: str) -> mor.CrdtMorError | None:
    """The error of ours that Spark tells of; None where there is none. The last one is what came of those before it."""
    for name, message in reversed(_OURS.findall(text)):
        kind = getattr(mor, name, None)
        if isinstance(kind, type) and issubclass(kind, mor.CrdtMorError):
            return _made(kind, message)
    return None


def _made(kind: type[mor.CrdtMorError], message: str) -> mor.CrdtMorError:
    """An error of a class and a message. A broken rule's key is left out where it has more than texts and numbers."""
    if kind is mor.LawError:
        return mor.LawError(message, ())
    facts = _VIOLATION.search(message) if kind is mor.ConstraintViolationError else None
    if facts is None:
        return kind(message)
    key: dict[str, object] = {}
    with suppress(ValueError, SyntaxError):
        key = ast.literal_eval(facts["key"])
    return mor.ConstraintViolationError(message, facts["rule"], key, int(facts["rows"]))
