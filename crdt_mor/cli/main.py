"""The `crdt-mor` command: `crdt-mor COMMAND URI [options]`.

Data goes to stdout, everything else to stderr. An error is one line that says what to do, `--verbose` adds the
traceback. Exit: 0 fine, 1 failed, 2 wrong usage. Commands are a few lines each over the public `crdt_mor`.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Annotated, get_type_hints

import polars as pl
import pyarrow as pa
import typer

import crdt_mor as mor
from crdt_mor.cli import commands, inputs, render
from crdt_mor.cli.changes import changes, diff
from crdt_mor.cli.demo.command import demo
from crdt_mor.cli.laws import laws

EXPECTED = (mor.CrdtMorError, OSError, pa.ArrowException, pl.exceptions.PolarsError)
"""What a user's files, arguments and disks can do to us; anything else is our mistake and keeps its traceback."""

Payloads = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE",
        help="Payloads of your own that the table may use: acme.payloads, or acme.payloads:Longest. May be repeated.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the traceback of an error.")]

app = typer.Typer(
    name="crdt-mor",
    help="Lock-free merge-on-read tables on Apache Hudi's format: create, write, read and look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _reporting(function: Callable[..., None]) -> Callable[..., None]:
    """The command of a function: its expected errors are reported in one line on stderr, with exit code 1.

    Every command has `--verbose`; one that opens a table has `--payloads` as well.
    """

    @functools.wraps(function)
    def command(*args: object, verbose: bool = False, payloads: list[str] | None = None, **options: object) -> None:
        try:
            inputs.allow(payloads or ())
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
    more = [inspect.Parameter("verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Verbose)]
    if "uri" in hints:
        hints["payloads"] = Payloads
        more.insert(0, inspect.Parameter("payloads", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Payloads))
    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
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
    app.command()(_reporting(_command))


if __name__ == "__main__":
    app()
