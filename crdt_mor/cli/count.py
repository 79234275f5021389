"""`crdt-mor count`."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import AsOf, Names, NamesOf, Uri
from crdt_mor.model.policies import plural


def count(
    uri: Uri,
    where: Annotated[str | None, typer.Option(metavar="SQL", help='Only these rows: "views > 10".')] = None,
    as_of: AsOf = None,
    names: Names = NamesOf.now,
) -> None:
    """Count the rows of a snapshot.

    Example: crdt-mor count events --where "views > 10"
    """
    scan = inputs.opened(uri).scan(filter=where, as_of=inputs.point(as_of, "--as-of"), names=names.value)
    unopened, rows = scan.unopened, scan.count()
    if render.is_json():
        render.document({"rows": rows, **({"unopened": unopened} if unopened else {})})
        return
    typer.echo(rows)
    if unopened:
        render.note(unopened_text(unopened))


def unopened_text(file_groups: int) -> str:
    groups = plural(file_groups, "file group", ",")
    return f"{groups} counted from commits or hints, without opening files: crdt-mor verify reads them"
