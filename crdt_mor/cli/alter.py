"""`crdt-mor alter` and `crdt-mor add-columns`: add, rename, hide, widen and comment on columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Info, Message, Uri, Wait, commit_info
from crdt_mor.cli.type_names import type_of

if TYPE_CHECKING:
    import pyarrow as pa

Comments = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=TEXT", help="A column's comment; an empty text removes it. May be repeated."),
]


def add_columns(
    uri: Uri,
    columns: Annotated[list[str], typer.Argument(metavar="NAME=TYPE…", help="New columns.", show_default=False)],
    default: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="The value of existing rows and of writes that omit the column."),
    ] = None,
    comment: Comments = None,
    wait: Wait = "60s",
    message: Message = None,
    info: Info = None,
) -> None:
    """Add columns, which are null in existing rows, or have a default.

    A default is a rule for later writes, and an update writes it to all existing rows.

    Example: crdt-mor add-columns events "country=string" "visits=int64" --default visits=0
    """
    types = dict(_typed(text, "NAME=TYPE") for text in columns)
    table = inputs.opened(uri)
    table.add_columns(
        types,
        default=inputs.by_name(default, "--default"),
        comment=inputs.by_name(comment, "--comment"),
        wait=inputs.duration(wait, "--wait"),
        commit_info=commit_info(message, info),
    )
    _show(table)


def alter(
    uri: Uri,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="A column and its new name. May be repeated.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A column to hide. May be repeated.")] = None,
    comment: Comments = None,
    widen: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TYPE", help="A column and its wider type. May be repeated.")
    ] = None,
    message: Message = None,
    info: Info = None,
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
        widen=dict(_typed(text, "--widen") for text in widen or ()),
        commit_info=commit_info(message, info),
    )
    _show(table)


def _show(table: mor.Table) -> None:
    columns = {field.name: str(field.type) for field in table.schema}
    shown = {"version": table.version, "columns": columns, "comments": dict(table.comments)}
    render.result(shown, f"the columns are {', '.join(columns)}: version {table.version}")


def _comment(text: str) -> tuple[str, str | None]:
    found = inputs.name_and_value(text)
    if found is None:
        raise typer.BadParameter(f"pass a column and its comment: price=in euro. got={text!r}", param_hint="--comment")
    return found[0], found[1] or None


def _typed(text: str, name: str) -> tuple[str, pa.DataType]:
    column, kind = inputs.name_and_value(text) or ("", "")
    if (found := type_of(kind)) is None:
        raise typer.BadParameter(
            f"pass a column and a type as crdt-mor schema prints it: price=decimal(12, 2). got={text!r}",
            param_hint=name,
        )
    return column, found
