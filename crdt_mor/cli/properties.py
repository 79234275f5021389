"""`properties`: what is noted of a table, its policies and the order of its rows among it; set it, take it away."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Form, Uri
from crdt_mor.cli.render import Output


def properties(
    uri: Uri,
    assignments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Properties to set.", show_default=False)
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Take this property away. May be repeated.")
    ] = None,
    output: Form = Output.text,
) -> None:
    """Print a table's properties, after setting some of them or taking some away, all of it in one event.

    Example: crdt-mor properties events crdt_mor.cluster_by=country,day
    """
    changes: dict[str, str | None] = dict.fromkeys(unset or ())
    for assignment in assignments or ():
        name, found, value = assignment.partition("=")
        if not found:
            raise typer.BadParameter(f"a property is set by NAME=VALUE, and taken away by --unset NAME: {assignment!r}")
        if name in changes:
            raise typer.BadParameter(f"say once what becomes of a property: {name!r}")
        changes[name] = value
    table = inputs.opened(uri)
    if changes:
        table.set_properties(changes)
    found_now = dict(table.properties)
    if output is Output.json:
        render.document({"properties": found_now})
    elif found_now:
        render.facts(found_now)
    else:
        render.note("no properties")
