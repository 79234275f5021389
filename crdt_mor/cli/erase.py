"""`crdt-mor erase`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import STDIN, check_inputs
from crdt_mor.cli.keys import key_rows
from crdt_mor.cli.options import Uri


def erase(
    uri: Uri,
    keys: Annotated[list[str] | None, typer.Option("--keys", metavar="A,B|@FILE|-")] = None,
    where: Annotated[str | None, typer.Option("--where", metavar="SQL")] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B")] = None,
    wait: Annotated[str | None, typer.Option(metavar="10m")] = None,
    dry_run: bool = False,
    yes: bool = False,
) -> None:
    """Erase rows, or values of --columns, from a table and its history. Asks first.

    No file keeps a byte of them. If pending writes may bring rows back, the command reports it: run it again.

    Example: crdt-mor erase events --keys ada@example.org --wait 10m

    Args:
        keys: Keys in every partition: values; @FILE or - with one key per line. May be repeated.
        where: Rows that match, and all older rows of their keys.
        columns: Only the values of these columns: the rows stay, with nulls.
        wait: Wait this long for pending writes: 30s, 10m, 2h.
        dry_run: Only print what would be erased.
        yes: Do not ask.
    """
    if (where is None) == (not keys):
        raise typer.BadParameter("pass exactly one of --keys and --where")
    patience = timedelta(0) if wait is None else inputs.duration(wait, "--wait")
    from_stdin = [text for text in keys or () if text in ("-", "@-")]
    if not (yes or dry_run) and (from_stdin or render.is_json()):
        raise typer.BadParameter(
            "this command cannot ask with --output json or keys from stdin: add --yes or --dry-run"
        )
    if from_stdin:
        check_inputs([STDIN] * len(from_stdin))
    table = inputs.opened(uri)
    given = key_rows(keys, table) if keys else None
    rows = None if given is None else list(zip(*given.to_pydict().values(), strict=True))
    named = inputs.split_names(columns)
    if not (yes or dry_run):
        _ask(table, where, 0 if rows is None else len(rows), named)
    erased = table.maintenance.erase(keys=rows, where=where, columns=named, wait=patience, dry_run=dry_run)
    render.result(erased)


def _ask(table: mor.Table, where: str | None, keys: int, columns: list[str] | None) -> None:
    what = f"{keys:,} keys"
    if where is not None:
        what = f"{table.scan(filter=where).count():,} rows, with the history of their keys,"
    if columns is not None:
        what = f"{', '.join(columns)} of {what}"
    render.note(f"{what} will be erased from {table.uri}, together with the history of their file groups.")
    if not typer.confirm("This cannot be undone. Erase?", err=True):
        render.note("nothing was erased")
        raise typer.Exit(1)
