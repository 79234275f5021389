"""`changes` and `diff`: what happened to a table."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Columns, Form, How, Uri
from crdt_mor.cli.render import Output
from crdt_mor.cli.rows import Format, chosen, send

Moment = Annotated[str, typer.Argument(metavar="T", help="A completion time, a version, or an ISO date and time.")]


def changes(
    uri: Uri,
    since: Annotated[
        str | None, typer.Option(metavar="C", help="A checkpoint, or a moment as in cat --as-of; else everything.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on from the checkpoint in FILE; note the new one there.")
    ] = None,
    images: Annotated[bool, typer.Option("--images", help="Commit by commit, rows before and after.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Commit by commit, rows as they were written.")] = False,
    stable: Annotated[bool, typer.Option("--stable", help="Stop before the oldest pending write.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, as tail -f does.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.01, help="How often --follow looks.")] = 1.0,
    columns: Columns = None,
    format: How = Format.table,
    output: Form = Output.text,
) -> None:
    """Print what commits changed: each changed key as it is now, or --images, or --raw.

    Example: crdt-mor changes events --checkpoint events.checkpoint --format jsonl
    """
    form = chosen(format, output)
    if follow and form is not Format.jsonl:
        raise typer.BadParameter("what never ends is printed line by line: say --format jsonl", param_hint="--follow")
    if checkpoint is not None and since is not None:
        raise typer.BadParameter("the file says where to begin: leave --since out", param_hint="--checkpoint")
    start = inputs.point(since, "--since", checkpoint=True)
    if checkpoint is not None and checkpoint.exists():
        start = checkpoint.read_text().strip()
    table = inputs.opened(uri)
    options: dict[str, Any] = {"columns": inputs.names(columns), "images": images, "raw": raw}
    options["consistency"] = "stable" if stable else "latest"
    pause = timedelta(seconds=every)
    if follow:
        from crdt_mor.readers.follow import follow as following

        windows = following(table, start, every=pause, **options)
    else:
        windows = iter([table.changes(start, **options)])
    for window in windows:
        send(window, None, form)
        sys.stdout.flush()
        if checkpoint is not None:
            _note(checkpoint, window.checkpoint)
        elif not follow:
            render.note(f"go on with --since {window.checkpoint}")


def diff(
    uri: Uri,
    before: Moment,
    after: Moment,
    columns: Columns = None,
    format: How = Format.table,
    output: Form = Output.text,
) -> None:
    """Print the rows in which two snapshots differ.

    Example: crdt-mor diff events 1 5
    """
    start, end = inputs.point(before, "BEFORE"), inputs.point(after, "AFTER")
    assert start is not None
    assert end is not None
    send(inputs.opened(uri).diff(start, end, columns=inputs.names(columns)), None, chosen(format, output))


def _note(path: Path, checkpoint: str) -> None:
    """Whole or not at all: a command that is killed here goes on from the checkpoint before."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(checkpoint + "\n")
    fresh.replace(path)
