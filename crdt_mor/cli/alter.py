"""`crdt-mor alter`: rename, hide, widen and comment on columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Form, Info, Message, Uri, commit_info
from crdt_mor.cli.render import Output
from crdt_mor.cli.type_names import type_of

if TYPE_CHECKING:
    import pyarrow as pa


def alter(
    uri: Uri,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="A column and its new name. May be repeated.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A column to hide. May be repeated.")] = None,
    comment: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="A column's comment; an empty text removes it. May be repeated."),
    ] = None,
    widen: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TYPE", help="A column and its wider type. May be repeated.")
    ] = None,
    message: Message = None,
    info: Info = None,
    output: Form = Output.text,
) -> None:
    """Rename, drop, widen or comment on columns in one event, without changing files.

    Example: crdt-mor alter events --rename "views=page views" --drop note --widen "price=decimal(12, 2)"
    """
    if not (rename or drop or comment or widen):
        raise typer.BadParameter("pass --rename, --drop, --comment or --widen")
    table = inputs.opened(uri)
    table.alter(
        rename=inputs.renames(rename),
        drop=drop or (),
        comment=dict(_comment(text) for text in comment or ()),
        widen=dict(_wider(text) for text in widen or ()),
        commit_info=commit_info(message, info),
    )
    columns = {field.name: str(field.type) for field in table.schema}
    shown = {"version": table.version, "columns": columns, "comments": dict(table.comments)}
    render.result(output, shown, f"the columns are {', '.join(columns)}: version {table.version}")


def _comment(text: str) -> tuple[str, str | None]:
    found = inputs.name_and_value(text)
    if found is None:
        raise typer.BadParameter(f"pass a column and its comment: price=in euro. got={text!r}", param_hint="--comment")
    return found[0], found[1] or None


def _wider(text: str) -> tuple[str, pa.DataType]:
    name, kind = inputs.name_and_value(text) or ("", "")
    if (found := type_of(kind)) is None:
        raise typer.BadParameter(
            f"pass a column and a type as crdt-mor schema prints it: price=decimal(12, 2). got={text!r}",
            param_hint="--widen",
        )
    return name, found
