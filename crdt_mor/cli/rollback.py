"""`rollback`: give up one write that is pending, or one plan that is open, by its instant."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.history import writer_text, writers
from crdt_mor.cli.options import Form, Uri
from crdt_mor.cli.render import Output


def rollback(
    uri: Uri,
    instant: Annotated[
        str, typer.Argument(metavar="INSTANT", help="17 digits, as `show` and `timeline --pending` print them.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: Form = Output.text,
) -> None:
    """Give up a pending write or an open plan, and remove its files; what is committed stays.

    It says what it is about to give up and asks, unless --yes is given. A writer that is alive after all fails when it
    commits, and has to write again.

    Example: crdt-mor rollback events 20260131120000000 --yes
    """
    table = inputs.opened(uri)
    found = None if yes else _what_is_open(table, instant)
    if found is not None:
        typer.confirm(f"{found}\nGive it up?", abort=True, err=True)
    done = table.maintenance.roll_back(instant)
    render.document(asdict(done)) if output is Output.json else render.note(str(done))


def _what_is_open(table: mor.Table, instant: str) -> str | None:
    """What a user is about to give up; None where it is nothing that could be."""
    for writer in writers(table):
        if writer["requested_at"] == instant:
            return f"a pending write: {writer_text(writer)}"
    for row in table.inspect.timeline().to_pylist():
        if row["requested_at"] == instant and row["state"] == "planned":
            return f"an open plan: {row['action']} {instant}"
    return None
