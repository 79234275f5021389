"""The `crdt-mor` command: `crdt-mor COMMAND URI [options]`.

Data goes to stdout, everything else to stderr. An error is one line that says what to do, `--verbose` adds the
traceback. Exit: 0 fine, 1 failed, 2 wrong usage. Commands are a few lines each over the public `crdt_mor`.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, get_type_hints

import polars as pl
import pyarrow as pa
import typer

import crdt_mor as mor
from crdt_mor.cli import commands, render
from crdt_mor.cli.changes import changes, diff
from crdt_mor.cli.demo.command import demo
from crdt_mor.cli.laws import laws

EXPECTED = (mor.CrdtMorError, OSError, pa.ArrowException, pl.exceptions.PolarsError)
"""What a user's files, arguments and disks can do to us; anything else is our mistake and keeps its traceback."""

Verbose = Annotated[bool, typer.Option("--verbose", help="Show the traceback of an error.")]

app = typer.Typer(
    name="crdt-mor",
    help="Lock-free merge-on-read tables on Apache Hudi's format: create, write, read and look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _told(function: Callable[..., None]) -> Callable[..., None]:
    """A command with `--verbose`, whose expected errors are one line on stderr and exit code 1."""

    @functools.wraps(function)
    def command(*args: object, verbose: bool = False, **options: object) -> None:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # as `python -m` does: payloads next to where one works are found
        try:
            function(*args, **options)
        except BrokenPipeError:
            raise  # `| head` is no error; typer ends quietly
        except EXPECTED as error:
            if verbose:
                traceback.print_exc()
            render.note(f"error: {' '.join(str(error).split())}")
            raise typer.Exit(1) from error

    hints = {**get_type_hints(function, include_extras=True), "verbose": Verbose}
    own = [p.replace(annotation=hints[p.name]) for p in inspect.signature(function).parameters.values()]
    option = inspect.Parameter("verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Verbose)
    command.__signature__ = inspect.Signature([*own, option])  # type: ignore[attr-defined]
    command.__annotations__ = hints
    return command


for _command in (
    commands.create,
    commands.write,
    commands.cat,
    changes,
    diff,
    commands.show,
    commands.timeline,
    commands.files,
    commands.compact,
    laws,
    demo,
):
    app.command()(_told(_command))


if __name__ == "__main__":
    app()
