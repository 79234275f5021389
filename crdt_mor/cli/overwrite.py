"""`crdt-mor overwrite`, `delete-partitions` and `truncate`."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import READING, Reading, check_files, rows_of
from crdt_mor.cli.options import A_PARTITION, UNNAMED, Named, Uri
from crdt_mor.cli.writes import Files, Mode, SchemaMode, say
from crdt_mor.ground.late_imports import pa

Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partition",
        metavar="P|dynamic",
        help=f"Replace only this partition: {A_PARTITION}; dynamic: all with new rows. May be repeated.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def overwrite(
    uri: Uri,
    files: Files,
    partitions: Partitions = None,
    schema_mode: Mode = SchemaMode.strict,
    how: Reading = READING,
    named: Named = UNNAMED,
) -> None:
    """Replace all rows, or the rows of some partitions, by files in one commit.

    Example: crdt-mor overwrite events monday.parquet --partition dynamic
    """
    check_files(files)
    table = inputs.opened(uri)
    data = [pa.table(rows_of(file, table.schema, how)) for file in files]
    if partitions and "dynamic" in partitions and len(partitions) > 1:
        raise typer.BadParameter("--partition dynamic must be alone, for all partitions with new rows")
    commit = table.overwrite(
        pa.concat_tables(data, promote_options="permissive"),
        partitions="dynamic" if partitions == ["dynamic"] else partitions or None,
        schema_mode=schema_mode.value,
        **named.arguments,
    )
    say(commit, len(files))


def delete_partitions(
    uri: Uri,
    partitions: Annotated[
        list[str], typer.Argument(metavar="PARTITION", help=f"Each is {A_PARTITION}.", show_default=False)
    ],
    yes: Yes = False,
    named: Named = UNNAMED,
) -> None:
    """Delete all rows of some partitions in one commit. Asks first.

    Example: crdt-mor delete-partitions events day=2026-01-31 --yes
    """
    table = inputs.opened(uri)
    _ask(f"all rows of {len(partitions)} partitions will be deleted from {table.uri}", yes)
    say(table.delete_partitions(partitions, **named.arguments))


def truncate(uri: Uri, yes: Yes = False, named: Named = UNNAMED) -> None:
    """Delete all rows of a table in one commit. Asks first.

    Example: crdt-mor truncate events --yes
    """
    table = inputs.opened(uri)
    if not yes:
        _ask(f"all {table.count():,} rows will be deleted from {table.uri}", yes)
    say(table.truncate(**named.arguments))


def _ask(what: str, yes: bool) -> None:
    if yes:
        return
    if render.is_json():
        raise typer.BadParameter("this command cannot ask with --output json: add --yes")
    render.note(f"{what}; earlier snapshots still show them.")
    if not typer.confirm("Delete?", err=True):
        render.note("nothing was deleted")
        raise typer.Exit(1)
