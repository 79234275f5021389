"""`crdt-mor properties`: print, set and remove a table's properties."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri


def properties(
    uri: Uri,
    assignments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Properties to set.", show_default=False)
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove this property. May be repeated.")
    ] = None,
) -> None:
    """Set and remove properties in one event, then print them all.

    Example: crdt-mor properties events crdt_mor.cluster_by=country,day
    """
    changes: dict[str, str | None] = dict.fromkeys(unset or ())
    for assignment in assignments or ():
        name, found, value = assignment.partition("=")
        if not found:
            raise typer.BadParameter(f"use NAME=VALUE to set a property, --unset NAME to remove it. got={assignment!r}")
        if name in changes:
            raise typer.BadParameter(f"set or remove each property once. got={name!r}")
        changes[name] = value
    table = inputs.opened(uri)
    if changes:
        table.set_properties(changes)
    found_now = dict(table.properties)
    if render.is_json():
        render.document({"properties": found_now})
    elif found_now:
        render.facts(found_now)
    else:
        render.note("no properties")
