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
from crdt_mor.cli import render
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
        say("KeyboardInterrupt", left(command))
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
        warn(category.__name__, in_options(str(message), []))

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


# --- the state after Ctrl-C, and what a rerun does --------------------------------------------------------------------

_READS: Final = "The command only reads, and changed nothing. Run it again to start over"
_WRITES: Final = (
    "The write is rolled back, unless it was committed a moment before: see crdt-mor history. A rerun with "
    "the same --token is counted once"
)
_SETS: Final = "The change is either made or not: look at crdt-mor show, then run the command again if it is missing"
_CONTINUES: Final = "Readers and writers are not affected. Run the same command again to finish the work"

LEFT: Final = {
    **dict.fromkeys(
        (
            "cat", "sql", "count", "diff", "why", "ui", "list", "show", "schema", "history", "timeline", "files",
            "savepoints", "readers", "laws", "simulate", "verify", "metrics", "check-store", "doctor",
        ),
        _READS,
    ),
    "changes": (
        "The command only reads. With --checkpoint or --reader, a rerun continues after the last window that was "
        "printed"
    ),
    **dict.fromkeys(
        (
            "append", "upsert", "update", "delete", "move", "overwrite", "delete-partitions", "truncate",
        ),
        _WRITES,
    ),
    **dict.fromkeys(
        ("create", "alter", "properties", "rules", "savepoint", "drop-savepoint", "forget-reader"), _SETS
    ),
    **dict.fromkeys(
        ("compact", "clean", "archive", "maintain", "drop-metadata-table", "repair", "rollback", "cancel-migration"),
        _CONTINUES,
    ),
    "add-columns": (
        "The columns are there, or not: see crdt-mor schema. Existing rows may lack a default; crdt-mor update sets it"
    ),
    "demo": "Delete its folder or address, which is named above. A rerun starts over elsewhere",
    "create-from": "There is no table, unless the load had just ended. Run the same command again to start over",
    "cdc": "All printed commits stay. Run the same command again to continue after the last commit",
    "copy": (
        "The copy cannot be read yet, or still shows its earlier moment. Run the same command again to copy the "
        "missing objects"
    ),
    "migrate": (
        "The migration is still under way, and writers may be turned away until it ends. Run the same command again to "
        "continue, or crdt-mor cancel-migration"
    ),
    "mirror": "The mirror shows its earlier version, or already the newest. Run the same command again",
    "register": "The catalog's entry shows its earlier version, or already the newest. Run the same command again",
    "restore": "The table may be restored already: crdt-mor history shows it. Run the same command again to finish",
    "drop": "The table is whole, or nobody can read it any more. Run the same command again to finish the removal",
    "erase": "The erasure is unfinished: files may still hold the values. Run the same command again to finish it",
    **dict.fromkeys(
        ("handover", "takeback"), "It may be half done. Run the same command again before Hudi or others write"
    ),
}  # fmt: skip
"""By command."""


def left(command: str) -> str:
    """Return the message for an interrupted command."""
    return f"{command} was interrupted. {LEFT[command]}"
