"""How a command ends that does not end well: what is said, in which form, and the exit code.

What went wrong goes to stderr in either form, as `gh` and `aws` do it: stdout has data or nothing. Text is one line.
With `--output json` it is one JSON document on a line of its own, `{"error": {"type", "message", "facts"}}`.
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
from typing import TYPE_CHECKING, Final

import crdt_mor as mor
from crdt_mor.cli import interrupted, render
from crdt_mor.cli.wording import FIRST_FACT, in_options
from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
else:
    pl = Late("polars")
    pa = Late("pyarrow")

REFUSED: Final = 1
"""What was asked could not be done; the message says why and what to do."""

USAGE: Final = 2
"""The command line was wrong; nothing was looked at."""

BROKEN: Final = 3
"""`laws` found a law that the payload breaks, `simulate` a promise that a run breaks, `verify` damage, `diff` other
rows in the other table, `check-store` a store that no table can be in, or `doctor` something to mend."""

INTERRUPTED: Final = 130
"""Ctrl-C; what a shell shows for a program that SIGINT ended."""

PIPE_CLOSED: Final = 141
"""The program that read our stdout has ended, as `head` does; what a shell shows for a program that SIGPIPE ended."""

_FACT: Final = re.compile(r"(?:^| )([a-z_]\w*)=")


def report(error: BaseException, command: str, parameters: Collection[str] = (), *, json: bool, debug: bool) -> int:
    """Print an error on stderr, and return the exit code.

    command: the command that failed, such as `drop-savepoint`. parameters: its Python parameters, named like its
    options. debug: print the traceback first.
    """
    if isinstance(error, BrokenPipeError):
        discard_output()
        return PIPE_CLOSED
    if debug:
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        say("KeyboardInterrupt", interrupted.left(command), json=json)
        return INTERRUPTED
    say(type(error).__name__, in_options(describe(error), parameters), json=json)
    return REFUSED


def say(kind: str, text: str, *, json: bool) -> None:
    """One error on stderr. kind: the name of its class. text: its message, with its facts at the end."""
    if json:
        render.note_document({"error": {"type": kind, "message": text, "facts": facts(text)}})
    else:
        render.note(f"error: {text}")


@contextmanager
def warnings_told(*, json: bool) -> Iterator[None]:
    """Tell warnings of Python, and waits for a store: a line each, or `{"warning": {"type", "message", "facts"}}`."""

    def say_warning(kind: str, message: str) -> None:
        text = " ".join(message.split())
        if json:
            render.note_document({"warning": {"type": kind, "message": text, "facts": facts(text)}})
        else:
            render.note(f"warning: {text}")

    def tell(message: Warning | str, category: type[Warning], *_: object) -> None:
        say_warning(category.__name__, str(message))

    def tell_of_wait(event: mor.Event) -> None:
        if isinstance(event, mor.WaitEvent):
            say_warning(type(event).__name__, event.message)

    with warnings.catch_warnings(), mor.observe(tell_of_wait):
        warnings.showwarning = tell  # type: ignore[assignment]
        yield


def describe(error: BaseException) -> str:
    """The message of an error on one line; of one that nobody expected, with its type and where to go with it."""
    text = " ".join(str(error).split())
    if isinstance(error, mor.CrdtMorError):
        return text
    if isinstance(error, UnicodeError):
        return f"this is not UTF-8 text: {text}"
    if isinstance(error, OSError):
        name = errno.errorcode.get(error.errno or 0, "unknown")
        place = "" if error.filename is None else f" file={error.filename}"
        return f"the machine refused: {error.strerror or text}.{place} errno={name}"
    if isinstance(error, pa.ArrowException | pl.exceptions.PolarsError):
        first, _, _ = str(error).partition("\n\n")  # polars adds a plan after it, which is its own affair
        return f"these rows cannot be handled: {' '.join(first.split())}"
    if isinstance(error, MemoryError):
        return "there is not enough memory: read fewer columns or fewer rows, or split the input into several commits"
    return f"crdt-mor did not expect this; please report it with what --debug shows: {type(error).__name__}: {text}"


def facts(text: str) -> dict[str, object]:
    """The `name=value` facts at the end of a message. Lists and quoted texts are read as such, all else is text."""
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
    """Write out what is in stdout's buffer, while somebody can still be told if that fails."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
        raise


def discard_output() -> None:
    """Let what is left in stdout's buffer go nowhere: Python would try to write it at the end, and complain."""
    with suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
