"""Print text for people and JSON for programs. In a pipe nothing is cut or wrapped."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    from rich.progress import Progress

    from crdt_mor.columns import kinds
else:
    kinds = Late("crdt_mor.columns.kinds")

PIPE_COLUMNS = 10_000

TEXT_MIN: Final = 12
"""Characters of text shown even on a narrow terminal: a date, or a message's first words."""

GAP: Final = 3
"""Characters between columns."""

EDGES: Final = 2
"""Characters that rich before 14.3 adds to the first and the last column."""

LEFT_OUT_NAMED: Final = 5


class Output(StrEnum):
    text = "text"
    json = "json"


_form = Output.text


def use(form: Output) -> None:
    """Store `--output json` for this command."""
    global _form  # noqa: PLW0603  one command runs in a process
    _form = form


def is_json() -> bool:
    return _form is Output.json


def stdout() -> Console:
    return _console(stderr=False)


def stderr() -> Console:
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PIPE_COLUMNS)


def note(message: str) -> None:
    """Print a line on stderr."""
    stderr().print(Text(message))


def document(value: object) -> None:
    sys.stdout.write(as_json(value, indent=2) + "\n")


def result(done: Any, text: str | None = None) -> None:
    """Print a command's result: a document for programs, a note for people. A dataclass brings its own text."""
    if is_json():
        document(done if isinstance(done, Mapping) else asdict(done))
    else:
        note(str(done) if text is None else text)


def note_document(value: object) -> None:
    sys.stderr.write(as_json(value) + "\n")


def lines(rows: Iterable[Mapping[str, object]]) -> None:
    for row in rows:
        sys.stdout.write(as_json(row) + "\n")


Amount = Literal["MofNComplete", "Download"]
"""A column of rich with the amount done: of parts, or of bytes."""


@contextmanager
def bar(doing: str, *amount: Amount) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal. Yields the function that moves the bar: total, completed, and `said` behind."""
    console = stderr()
    if not console.is_terminal:
        yield lambda **_: None
        return
    with bars(console, *amount) as shown:
        yield partial(shown.update, shown.add_task(doing, total=None, said=""))


def bars(console: Console, *amount: Amount) -> Progress:
    from rich import progress

    columns = [getattr(progress, f"{name}Column")() for name in amount]
    begin, end = progress.TextColumn("{task.description}"), progress.TextColumn("{task.fields[said]}")
    every = begin, progress.BarColumn(), *columns, end, progress.TimeElapsedColumn()
    return progress.Progress(*every, console=console, transient=True)


def facts(pairs: Mapping[str, object]) -> None:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        grid.add_row(name, Text(str(value)))
    _print(grid, PIPE_COLUMNS)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[str] = (), kept: Iterable[str] = ()
) -> None:
    """Print a table. A note on stderr names columns that do not fit.

    numbers: right-aligned columns, never cut. kept: columns that are always complete, such as keys.
    """
    right, always = set(numbers), set(kept)
    cells = [[cell(value) for value in row] for row in rows]
    natural = [
        max([cell_len(name), *(cell_len(line) for row in cells for line in row[at].plain.splitlines())])
        for at, name in enumerate(columns)
    ]
    console = stdout()
    room = console.width - EDGES if console.is_terminal else sum(natural) + GAP * len(natural)
    least = [
        width if name in right | always else min(width, TEXT_MIN) for name, width in zip(columns, natural, strict=True)
    ]
    widths = fitted(natural, least, [name in always for name in columns], room)
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, width in zip(columns, widths, strict=True):
        if width is not None:
            folded = name in always
            grid.add_column(
                Text(name), justify="right" if name in right else "left", width=None if folded else width,
                overflow="fold" if folded else "ellipsis", no_wrap=not folded,
            )  # fmt: skip
    for row in cells:
        grid.add_row(*(one for one, width in zip(row, widths, strict=True) if width is not None))
    _print(grid, room)
    if left := [name for name, width in zip(columns, widths, strict=True) if width is None]:
        names = ", ".join(left[:LEFT_OUT_NAMED]) + (", …" if len(left) > LEFT_OUT_NAMED else "")
        note(
            f"{len(left)} more column{'s' * (len(left) > 1)} did not fit: {names}. Widen the terminal, or use "
            "--output json"
        )


def fitted(natural: Sequence[int], least: Sequence[int], kept: Sequence[bool], room: int) -> list[int | None]:
    """Return each column's width in characters, or None if it does not fit.

    natural: full widths. least: smallest useful widths. kept: columns that must fit.
    """
    widths: list[int | None] = [width if keep else None for width, keep in zip(least, kept, strict=True)]
    spare = room + GAP - sum(width + GAP for width in widths if width is not None)
    for at, width in enumerate(least):
        if widths[at] is None and width + GAP <= spare:
            widths[at] = width
            spare -= width + GAP
    growing = sorted(
        (at for at, width in enumerate(widths) if width is not None), key=lambda at: natural[at] - least[at]
    )
    for done, at in enumerate(growing):
        more = min(natural[at] - least[at], max(spare, 0) // (len(growing) - done))
        widths[at] = least[at] + more
        spare -= more
    return widths


def cell(value: object) -> Text:
    """Format a value. A null is dimmed, unlike the text `null`."""
    return Text("null", style="dim") if value is None else Text(plain(value))


def plain(value: object) -> str:
    """Format a value with all characters; the console drops control characters."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def plain_or_none(value: object) -> str | None:
    return None if value is None else plain(value)


def _print(grid: Grid, pipe_columns: int) -> None:
    console = stdout()
    if console.is_terminal:
        console.print(grid)
        return
    console.width = pipe_columns
    with console.capture() as capture:
        console.print(grid)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def as_json(value: object, indent: int | None = None) -> str:
    """Format a value as JSON. NaN and infinities become text, as in Spark."""
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


def _plain(value: object) -> str:
    return kinds.json_text(value)
