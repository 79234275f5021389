"""`crdt-mor rollback`: roll back a pending write or cancel an open plan."""

from __future__ import annotations

from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.history import writer_text, writers
from crdt_mor.cli.options import Uri


def rollback(
    uri: Uri,
    instant: Annotated[str, typer.Argument(metavar="INSTANT", help="17 digits, from `show` or `timeline --pending`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Roll back a pending write or cancel an open plan, and remove its files.

    It asks, unless --yes is given. If the writer is alive after all, its commit fails and it must write again.

    Example: crdt-mor rollback events 20260131120000000 --yes
    """
    table = inputs.opened(uri)
    found = None if yes else _what_is_open(table, instant)
    if found is not None:
        typer.confirm(f"{found}\nRoll it back?", abort=True, err=True)
    done = table.maintenance.roll_back(instant)
    render.result(done)


def _what_is_open(table: mor.Table, instant: str) -> str | None:
    for writer in writers(table):
        if writer["requested_at"] == instant:
            return f"a pending write: {writer_text(writer)}"
    for row in table.inspect.timeline().to_pylist():
        if row["requested_at"] == instant and row["state"] == "planned":
            return f"an open plan: {row['action']} {instant}"
    return None
