"""`crdt-mor clean`: give up old history and remove its files."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri


def clean(
    uri: Uri,
    keep: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep this much history: 7d, 12h; default: the table's policy.")
    ] = None,
    commits: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Keep snapshots as of each of the last N commits.")
    ] = None,
    readers: Annotated[
        str | None, typer.Option(metavar="TIME", help="Spare readers that began less than this long ago: 1h.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the files to remove.")] = False,
) -> None:
    """Give up old history and remove unneeded files, beside writers and readers.

    Example: crdt-mor clean events --keep 7d --dry-run
    """
    done = inputs.opened(uri).maintenance.clean(
        None if keep is None else inputs.duration(keep, "--keep"),
        commits=commits,
        readers=None if readers is None else inputs.duration(readers, "--readers"),
        dry_run=dry_run,
    )
    render.result(done)
