"""`clean`: history that is too old is given up, and the files go that nothing needs any more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import FormOfUpkeep, Uri
from crdt_mor.cli.render import Output


def clean(
    uri: Uri,
    keep: Annotated[
        str | None, typer.Option(metavar="TIME", help="How much history to keep: 7d, 12h; else what the table says.")
    ] = None,
    commits: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Keep snapshots as of each of the last N commits.")
    ] = None,
    readers: Annotated[
        str | None, typer.Option(metavar="TIME", help="Spare readers that began less than this long ago: 1h.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    output: FormOfUpkeep = Output.text,
) -> None:
    """Give up old history and remove the files that nothing needs any more; safe beside writers and readers.

    Example: crdt-mor clean events --keep 7d --dry-run
    """
    done = inputs.opened(uri).maintenance.clean(
        None if keep is None else inputs.duration(keep, "--keep"),
        commits=commits,
        readers=None if readers is None else inputs.duration(readers, "--readers"),
        dry_run=dry_run,
    )
    if output is Output.json:
        render.document(asdict(done))
        return
    render.note(str(done))
