"""`crdt-mor drop`."""

from __future__ import annotations

from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render


def drop(
    address: Annotated[str, typer.Argument(metavar="URI", help="The table.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the objects.")] = False,
) -> None:
    """Remove a table with all rows and history, for good. Asks first.

    Readers and writers then get an error. Run it again to finish an interrupted drop.

    Example: crdt-mor drop events --yes
    """
    if not (yes or dry_run):
        if render.is_json():
            raise typer.BadParameter("this command cannot ask with --output json: add --yes or --dry-run")
        render.note(str(mor.drop_table(address, dry_run=True, storage_options=inputs.storage())))
        if not typer.confirm("This cannot be undone. Drop the table?", err=True):
            render.note("nothing was removed")
            raise typer.Exit(1)
    render.result(mor.drop_table(address, dry_run=dry_run, storage_options=inputs.storage()))
