"""`crdt-mor move`: move rows to another partition by key."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import STDIN, check_inputs
from crdt_mor.cli.keys import key_rows
from crdt_mor.cli.options import UNNAMED, Named, Uri, Wait
from crdt_mor.cli.python_values import records
from crdt_mor.model.policies import plural


def move(
    uri: Uri,
    keys: Annotated[
        list[str],
        typer.Option(
            "--keys",
            metavar="A,B|@FILE|-",
            help="Keys in any partition: values; @FILE or - with one key per line. May be repeated.",
            show_default=False,
        ),
    ],
    partition: Annotated[
        list[str],
        typer.Option(
            metavar="A=VALUE",
            help='The new partition; A= is null, A="" an empty string. May be repeated.',
            show_default=False,
        ),
    ],
    wait: Wait = "60s",
    named: Named = UNNAMED,
) -> None:
    """Move rows to another partition by key, in one commit.

    Example: crdt-mor move people --keys ada,bob --partition country=FR
    """
    check_inputs([STDIN] * sum(text in ("-", "@-") for text in keys))
    table = inputs.opened(uri)
    rows = [tuple(row.values()) for row in records(key_rows(keys, table))]
    to = {name: _value(text) for name, text in inputs.by_name(partition, "--partition").items()}
    done = table.move(rows, partition=to, wait=inputs.duration(wait, "--wait"), **named.arguments)
    text = f"version {done.version}: moved {plural(done.updated, 'row', ',')}"
    if done.repeated:
        text = "nothing was written: this token was used before"
    render.result({"version": done.version, "moved": done.updated, "repeated": done.repeated}, text)


def _value(text: str) -> str | None:
    """Parse a partition value as in CSV: nothing is null, two double quotes are an empty string."""
    return None if not text else "" if text == '""' else text
