"""`move`: rows, by their keys, come to another partition."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import STDIN, check_inputs
from crdt_mor.cli.options import Form, Uri, Wait
from crdt_mor.cli.render import Output
from crdt_mor.cli.writes import key_rows


def move(
    uri: Uri,
    keys: Annotated[
        list[str],
        typer.Option(
            "--key",
            metavar="A,B|@FILE|-",
            help="Rows by key, in whatever partition: values; @FILE or - has one key a line. May be repeated.",
            show_default=False,
        ),
    ],
    partition: Annotated[
        list[str],
        typer.Option(metavar="A=VALUE", help="Where they come to. May be repeated.", show_default=False),
    ],
    wait: Wait = "60s",
    output: Form = Output.text,
) -> None:
    """Move rows to another partition: each is deleted where it is and written there, in one commit.

    Example: crdt-mor move people --key ada,bob --partition country=FR
    """
    check_inputs([STDIN] * sum(text in ("-", "@-") for text in keys))
    table = inputs.opened(uri)
    rows = list(zip(*key_rows(keys, table).to_pydict().values(), strict=True))
    to = inputs.named(partition, "--partition")
    done = table.move(rows, partition=to, wait=inputs.duration(wait, "--wait"))
    if output is Output.json:
        render.document({"version": done.version, "moved": done.updated})
    else:
        render.note(f"version {done.version}: moved {done.updated:,} {'row' if done.updated == 1 else 'rows'}")
