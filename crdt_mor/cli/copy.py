"""`crdt-mor copy`."""

from __future__ import annotations

from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri


def copy(
    uri: Uri,
    to: Annotated[
        str,
        typer.Argument(metavar="TO", help="The copy's place: empty, or with --update an earlier copy."),
    ],
    update: Annotated[
        bool, typer.Option("--update", help="Update an earlier copy to the table's current rows.")
    ] = False,
    verify: Annotated[bool, typer.Option(help="Verify the copy afterwards.")] = True,
) -> None:
    """Copy a table as it is now, beside its writers.

    Run it again if it was stopped. With --update, an earlier copy catches up.

    Example: crdt-mor copy events backup/events --update
    """
    with render.bar("copying", "Download") as move:

        def tell(now: mor.results.CopyProgress) -> None:
            objects = f"{now.objects:,} of {now.of_objects:,} objects"
            move(total=now.of_bytes, completed=now.bytes, said=objects)

        done = inputs.opened(uri, to).copy(
            to, update=update, verify=verify, on_progress=tell, storage_options=inputs.storage_of(to, uri)
        )
    render.result(done)
