"""Report the error of a command and choose its exit code.

Errors go to stderr; stdout contains data or nothing. Text is one line. With `--output json`, an error is one line of
JSON: `{"error": {"type", "message", "facts"}}`.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import crdt_mor as mor
from crdt_mor.cli import interrupted, render
from crdt_mor.cli.wording import FIRST_FACT, in_options
from crdt_mor.ground.late_imports import pa, pl

REFUSED: Final = 1
"""The request failed."""

USAGE: Final = 2
"""The command line was wrong. Nothing was read."""

BROKEN: Final = 3
"""A check found something: `laws`, `simulate`, `verify`, `repair`, `diff`, `check-store` or `doctor`."""

INTERRUPTED: Final = 130
"""Ctrl-C; a shell's code for SIGINT."""

PIPE_CLOSED: Final = 141
"""The reader of stdout ended, like `head`; a shell's code for SIGPIPE."""

_FACT: Final = re.compile(r"(?:^| )([a-z_]\w*)=")


def report(error: BaseException, command: str, parameters: Collection[str] = (), *, debug: bool = False) -> int:
    if isinstance(error, BrokenPipeError):
        discard_output()
        return PIPE_CLOSED
    if debug:
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        say("KeyboardInterrupt", interrupted.left(command))
        return INTERRUPTED
    say(type(error).__name__, in_options(describe(error), parameters))
    return REFUSED


def say(kind: str, text: str) -> None:
    if render.is_json():
        render.note_document({"error": {"type": kind, "message": text, "facts": facts(text)}})
    else:
        render.note(f"error: {text}")


def warn(kind: str, message: str) -> None:
    text = " ".join(message.split())
    if render.is_json():
        render.note_document({"warning": {"type": kind, "message": text, "facts": facts(text)}})
    else:
        render.note(f"warning: {text}")


@contextmanager
def warnings_told() -> Iterator[None]:
    def tell(message: Warning | str, category: type[Warning], *_: object) -> None:
        warn(category.__name__, str(message))

    def tell_of_wait(event: mor.observing.Event) -> None:
        if isinstance(event, mor.observing.WaitEvent):
            warn(type(event).__name__, event.message)

    with warnings.catch_warnings(), mor.observe(tell_of_wait):
        warnings.showwarning = tell  # type: ignore[assignment]
        yield


def describe(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, mor.CrdtMorError):
        return text
    if isinstance(error, UnicodeError):
        return f"the text is not UTF-8: {text}"
    if isinstance(error, OSError):
        name = errno.errorcode.get(error.errno or 0, "unknown")
        place = "" if error.filename is None else f" file={error.filename}"
        return f"the operating system refused: {error.strerror or text}.{place} errno={name}"
    if isinstance(error, pa.ArrowException | pl.exceptions.PolarsError):
        first, _, _ = str(error).partition("\n\n")  # polars appends a query plan
        return f"these rows cannot be handled: {' '.join(first.split())}"
    if isinstance(error, MemoryError):
        return "not enough memory: read fewer columns or rows, or split the input into several commits"
    return f"unexpected error; please report it with the output of --debug: {type(error).__name__}: {text}"


def facts(text: str) -> dict[str, object]:
    """Return the `name=value` facts at the end of a message; lists and quoted strings are parsed."""
    parts = FIRST_FACT.split(text, maxsplit=1)
    if len(parts) == 1:
        return {}
    found = list(_FACT.finditer(parts[1]))
    ends = [match.start() for match in found[1:]] + [len(parts[1])]
    return {match[1]: _value(parts[1][match.end() : end]) for match, end in zip(found, ends, strict=True)}


def _value(text: str) -> object:
    if text[:1] in ("'", '"', "[", "("):
        with suppress(ValueError, SyntaxError):
            return ast.literal_eval(text)
    return text


def finish_output() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
        raise


def discard_output() -> None:
    """Discard stdout's buffer; otherwise Python would write it at exit, and complain."""
    with suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
