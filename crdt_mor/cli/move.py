"""`move`: rows, by their keys, come to another partition."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import STDIN, check_inputs
from crdt_mor.cli.history import Info, Message, commit_info
from crdt_mor.cli.keys import key_rows
from crdt_mor.cli.options import Form, Uri, Wait
from crdt_mor.cli.python_values import records
from crdt_mor.cli.render import Output
from crdt_mor.cli.writes import Token


def move(
    uri: Uri,
    keys: Annotated[
        list[str],
        typer.Option(
            "--keys",
            metavar="A,B|@FILE|-",
            help="Rows by key, in whatever partition: values; @FILE or - has one key a line. May be repeated.",
            show_default=False,
        ),
    ],
    partition: Annotated[
        list[str],
        typer.Option(
            metavar="A=VALUE",
            help='Where they come to; A= is null, A="" an empty text. May be repeated.',
            show_default=False,
        ),
    ],
    wait: Wait = "60s",
    token: Token = None,
    message: Message = None,
    info: Info = None,
    output: Form = Output.text,
) -> None:
    """Move rows to another partition: each is deleted where it is and written there, in one commit.

    Example: crdt-mor move people --keys ada,bob --partition country=FR
    """
    check_inputs([STDIN] * sum(text in ("-", "@-") for text in keys))
    table = inputs.opened(uri)
    rows = [tuple(row.values()) for row in records(key_rows(keys, table))]
    to = {name: _value(text) for name, text in inputs.named(partition, "--partition").items()}
    done = table.move(
        rows, partition=to, wait=inputs.duration(wait, "--wait"), token=inputs.token(token),
        commit_info=commit_info(message, info),
    )  # fmt: skip
    if output is Output.json:
        render.document({"version": done.version, "moved": done.updated, "repeated": done.repeated})
    elif done.repeated:
        render.note("was there already, by its token")
    else:
        render.note(f"version {done.version}: moved {done.updated:,} {'row' if done.updated == 1 else 'rows'}")


def _value(text: str) -> str | None:
    """The value of a partition column: as in CSV, nothing is null, and two double quotes are an empty text."""
    return None if not text else "" if text == '""' else text
