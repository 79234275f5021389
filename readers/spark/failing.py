"""Show crdt_mor's errors in Spark: the message in the first line, not after a traceback.

    [PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: crdt_mor.errors.InvalidInputError: …

Spark calls a data source in separate processes, which send the text of an error and end. A traceback there passes only
through pyspark and this package, and the message would be its last line (`message_first`). Functions here that wait for
a Spark job parse this text and raise the original error (`own_errors`).
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

_OURS: Final = re.compile(
    rf"\b{re.escape(mor.CrdtMorError.__module__)}\.(\w+): (.*?)(?=\n *SQLSTATE|\n\s+at |\n\n|\s*\Z)", re.DOTALL
)
"""A crdt_mor error in Spark's text: its class and message."""

_VIOLATION: Final = re.compile(
    r"\. constraint=(['\"])(?P<rule>.*?)(?:: .*?)?\1 key=(?P<key>\{.*?\}) values=.* rows=(?P<rows>\d+)"
)


def message_first(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that Spark calls in a separate process, so that its errors show their message."""

    @wraps(function)
    def wrapped(*arguments: P.args, **named: P.kwargs) -> R:
        with _without_traceback(), _listed_once():
            return function(*arguments, **named)

    return wrapped


def rows_message_first(generator: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Wrap a generator of rows as `message_first` wraps a function; its errors occur during iteration."""

    @wraps(generator)
    def wrapped(*arguments: P.args, **named: P.kwargs) -> Iterator[R]:
        with _without_traceback(), _listed_once():
            yield from generator(*arguments, **named)

    return wrapped


@contextmanager
def _without_traceback() -> Iterator[None]:
    try:
        yield
    except mor.CrdtMorError:
        if _is_sparks_process():
            os.environ[_WITHOUT_TRACEBACK] = "1"  # the process ends with this error
        raise


@contextmanager
def _listed_once() -> Iterator[None]:
    """After the block, forget the import finders of archives that Spark put into PYTHONPATH.

    Spark 4.0 refreshes all finders before each call of a worker. A finder of an archive then lists it again: its Python
    code and its largest jar take a tenth of a second. A new finder uses the first listing.
    """
    try:
        yield
    finally:
        if _is_sparks_process():
            given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            archives = tuple(path for path in given if path.endswith((".zip", ".jar")))
            for path in list(sys.path_importer_cache):
                if path.startswith(archives):
                    sys.path_importer_cache.pop(path, None)


def _is_sparks_process() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


@contextmanager
def own_errors() -> Iterator[None]:
    """In the block, raise a Spark error about a crdt_mor error, of a task or the commit, as that error."""
    try:
        yield
    except PySparkException as error:
        own = error_in(str(error))
        if own is None:
            raise
        raise own from error


def error_in(text: str) -> mor.CrdtMorError | None:
    """Return the crdt_mor error in Spark's text, or None."""
    for name, message in reversed(_OURS.findall(text)):
        kind = getattr(mor.errors, name, None)
        if isinstance(kind, type) and issubclass(kind, mor.CrdtMorError):
            return _made(kind, message)
    return None


def _made(kind: type[mor.CrdtMorError], message: str) -> mor.CrdtMorError:
    """Make an error from class and message. A broken rule's key is omitted unless it is texts and numbers."""
    if kind is mor.errors.LawError:
        return mor.errors.LawError(message, ())
    facts = _VIOLATION.search(message) if kind is mor.errors.ConstraintViolationError else None
    if facts is None:
        return kind(message)
    key: dict[str, object] = {}
    with suppress(ValueError, SyntaxError):
        key = ast.literal_eval(facts["key"])
    return mor.errors.ConstraintViolationError(message, facts["rule"], key, int(facts["rows"]))
