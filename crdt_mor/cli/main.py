"""The `crdt-mor` command: `crdt-mor COMMAND URI [options]`.

Data goes to stdout, everything else to stderr. An error is one line that says what to do, `--verbose` adds the
traceback. Exit: 0 fine, 1 failed, 2 wrong usage. Commands are a few lines each over the public `crdt_mor`.
"""

from __future__ import annotations

import traceback
from typing import Any

import polars as pl
import pyarrow as pa
import typer
from typer.core import TyperCommand

import crdt_mor as mor
from crdt_mor.cli import commands, render
from crdt_mor.cli.demo import command as demo

EXPECTED = (mor.CrdtMorError, OSError, pa.ArrowException, pl.exceptions.PolarsError)
"""What a user's files, arguments and disks can do to us; anything else is our mistake and keeps its traceback."""

app = typer.Typer(
    name="crdt-mor",
    help="Lock-free merge-on-read tables on Apache Hudi's format: create, write, read and look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Command(TyperCommand):
    """A command whose expected errors are one line on stderr and exit code 1."""

    def invoke(self, ctx: Any) -> object:  # the context's class is typer's own business
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # `| head` is not an error; typer ends quietly
        except EXPECTED as error:
            if ctx.params.get("verbose"):
                traceback.print_exc()
            render.note(f"error: {' '.join(str(error).split())}")
            raise typer.Exit(1) from error


for _function in (
    commands.create, commands.write, commands.cat, commands.show, commands.timeline, commands.files, commands.compact,
    demo.demo,
):  # fmt: skip
    app.command(cls=Command)(_function)


if __name__ == "__main__":
    app()
