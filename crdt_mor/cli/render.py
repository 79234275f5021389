"""What the commands print: text for people, JSON for programs. Knows consoles; reads no table.

Text is as wide as the terminal; where stdout is a pipe nothing is cut or wrapped.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import StrEnum

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

PIPE_COLUMNS = 10_000


class Output(StrEnum):
    """The form of a command's result."""

    text = "text"
    json = "json"


def stdout() -> Console:
    """The console of data."""
    return _console(stderr=False)


def stderr() -> Console:
    """The console of everything else."""
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PIPE_COLUMNS)


def note(message: str) -> None:
    """A line on stderr."""
    stderr().print(Text(message))


def document(value: object) -> None:
    """One JSON document."""
    sys.stdout.write(as_json(value, indent=2) + "\n")


def note_document(value: object) -> None:
    """One JSON document on one line of stderr."""
    sys.stderr.write(as_json(value) + "\n")


def lines(rows: Iterable[Mapping[str, object]]) -> None:
    """One JSON object a line."""
    for row in rows:
        sys.stdout.write(as_json(row) + "\n")


def facts(pairs: Mapping[str, object]) -> None:
    """Names and values, one a line."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        grid.add_row(name, Text(str(value)))
    _print(grid)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[str] = ()) -> None:
    """Rows under a header; `numbers` are set to the right."""
    right = set(numbers)
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        grid.add_column(Text(column), justify="right" if column in right else "left", overflow="ellipsis", no_wrap=True)
    for row in rows:
        grid.add_row(*(cell(value) for value in row))
    _print(grid)


def cell(value: object) -> Text:
    """One value of a table; a null is told from the text `null` by its shade, an empty text is empty."""
    return Text("null", style="dim") if value is None else Text(plain(value))


def plain(value: object) -> str:
    """A value as people read it, with all of its characters, of which a console leaves out those that control it."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def _print(grid: Grid) -> None:
    """Without the padding that rich puts at the end of a line, which is noise in a pipe."""
    console = stdout()
    if console.is_terminal:
        console.print(grid)
        return
    with console.capture() as capture:
        console.print(grid)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def as_json(value: object, indent: int | None = None) -> str:
    """A value as JSON, which has no numbers for NaN and the infinities: they become the texts that Spark writes."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_with_texts(value), default=_plain, ensure_ascii=False, indent=indent)


def _with_texts(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _with_texts(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(item) for item in value]
    return value


def _plain(value: object) -> object:
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
