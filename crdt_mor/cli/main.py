"""The `crdt-mor` command: `crdt-mor COMMAND URI [options]`.

Data goes to stdout, everything else to stderr. `failures.py` handles errors.
"""

from __future__ import annotations

import functools
import gc
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy as copied
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

import crdt_mor as mor
from crdt_mor.cli import failures, inputs, near_commands, render
from crdt_mor.cli.cdc import kafka, postgres
from crdt_mor.cli.changes import changes, diff, forget_reader, readers
from crdt_mor.cli.commands import compact, files, schema, show, timeline
from crdt_mor.cli.completing import completed
from crdt_mor.cli.create import create, create_from
from crdt_mor.cli.demo.command import demo
from crdt_mor.cli.engines import mirror, register
from crdt_mor.cli.erase import erase
from crdt_mor.cli.history import history
from crdt_mor.cli.laws import laws, simulate
from crdt_mor.cli.list import list as list_
from crdt_mor.cli.logs import Level, LogFormat, LogLevel, logged
from crdt_mor.cli.maintain import maintain
from crdt_mor.cli.metrics import metrics
from crdt_mor.cli.migrate import cancel_migration, migrate
from crdt_mor.cli.places import check_store, copy, doctor, drop
from crdt_mor.cli.reads import cat, count, sql
from crdt_mor.cli.render import Output
from crdt_mor.cli.restore import drop_savepoint, restore, savepoint, savepoints
from crdt_mor.cli.settings import add_columns, alter, properties, rules
from crdt_mor.cli.ui.command import ui
from crdt_mor.cli.upkeep import archive, clean, drop_metadata_table, handover, rollback, takeback
from crdt_mor.cli.verify import repair, verify
from crdt_mor.cli.why import why
from crdt_mor.cli.writes import append, delete, delete_partitions, move, overwrite, truncate, update, upsert

Payloads = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE",
        help="Allow your own payloads in the table: acme.payloads, or acme.payloads:Longest. May be repeated.",
    ),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of the object store: aws_region=eu-west-1. May be repeated. Secrets belong in the environment.",
    ),
]
_FORM: Final = "Text for people, JSON for programs."
Form = Annotated[Output, typer.Option("--output", help=_FORM)]
FormOrFormat = Annotated[Output, typer.Option("--output", "--format", help=_FORM)]
_WITH_FORMAT: Final = {"archive", "clean", "drop-metadata-table", "maintain", "ui"}
"""Commands that print no rows, so `--format` is unambiguous."""

Json = Annotated[bool, typer.Option("--json", help="The same as --output json.")]
Debug = Annotated[bool, typer.Option("--debug", "--verbose", help="Show the traceback of an error.")]

WRONG_USAGE: type[Exception] = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")


class Commands(TyperGroup):
    """All commands. With `--output json`, errors of the command line are JSON too."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if not _wants_json(words):
            return super().main(args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except WRONG_USAGE as error:
            message = error.format_message()  # type: ignore[attr-defined]
            render.use(Output.json)
            failures.say("UsageError", " ".join(message.split()))
            code = failures.USAGE
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(near_commands.unknown(args[0], self.commands))
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command that suggests the right option for another system's option. Its help has no markup."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        described: list[Any] = [self, *self.params]
        for one in described:
            one.help = escape(one.help or "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except WRONG_USAGE as error:
            instead = near_commands.OPTIONS.get(getattr(error, "option_name", ""))
            if instead in {name for option in self.params for name in option.opts}:
                ctx.fail(f"{error}: use {instead}.")
            raise


def _wants_json(words: Sequence[str]) -> bool:
    return not {"--json", "--output=json"}.isdisjoint(words) or ("--output", "json") in pairwise(words)


app = typer.Typer(
    name="crdt-mor",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",  # typer 0.20 shows help that rests on its default without markup, so escapes stay
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"crdt-mor {mor.__version__}")
        raise typer.Exit


@app.callback()
def _of_all_commands(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Lock-free merge-on-read tables in Apache Hudi's format: create, write, read and inspect."""
    gc.set_threshold(*gc.get_threshold()[:2], 1_000)  # a command's objects live to its end; a full search is slow


def _reporting(function: Callable[..., None], group: str | None = None) -> Callable[..., None]:
    """Turn a function into a command that reports errors and sets the exit code."""

    name = group or function.__name__.replace("_", "-")
    text, helps = _documentation(function)
    own, groups = _options(function, helps)

    @functools.wraps(function)
    def command(
        *args: object,
        output: Output = Output.text,
        json: bool = False,
        debug: bool = False,
        log_level: Level | None = None,
        log_format: Output | None = None,
        payloads: list[str] | None = None,
        storage: list[str] | None = None,
        **options: object,
    ) -> None:
        render.use(Output.json if json else output)
        try:
            with failures.warnings_told(), logged(log_level, log_format):
                inputs.allow(payloads or ())
                inputs.use_storage(storage or ())
                made = {
                    group: kind(**{one.name: options.pop(one.name) for one in fields(kind)}) for group, kind in groups
                }
                function(*args, **made, **options)
                failures.finish_output()
        except (typer.Exit, typer.Abort, WRONG_USAGE, SystemExit):
            raise
        except BaseException as error:  # a polars panic is not an `Exception`
            parameters = [option.name for option in own]
            raise typer.Exit(failures.report(error, name, parameters, debug=debug)) from error

    own = [completed(option, name) for option in own]
    names = {option.name for option in own}
    form = FormOrFormat if name in _WITH_FORMAT else Form
    more: dict[str, tuple[Any, object]] = {"output": (form, Output.text), "json": (Json, False)}
    if "uri" in names:
        more["payloads"] = Payloads, None
    if {"uri", "address"} & names:
        more["storage"] = Storage, None
    more |= {"log_level": (LogLevel, None), "log_format": (LogFormat, None), "debug": (Debug, False)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in more.items()
    ]
    command.__doc__ = text
    command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in (*own, *added)}
    return command


def _documentation(documented: object) -> tuple[str, dict[str, str]]:
    """Return the help of a command, and of its parameters, or of a group's: the entries after `Args:`."""
    text, arguments = (*re.split(r"\n\n(?:Args|Attributes):\n", inspect.getdoc(documented) or ""), "")[:2]
    entries = re.split(r"^    (\w+): ", arguments, flags=re.MULTILINE)[1:]
    return text, {name: " ".join(words.split()) for name, words in zip(entries[::2], entries[1::2], strict=True)}


def _options(
    function: Callable[..., None], helps: Mapping[str, str]
) -> tuple[list[inspect.Parameter], list[tuple[str, type]]]:
    """Return a command's options, and its parameters that stand for a group of options: a dataclass."""
    hints = get_type_hints(function, include_extras=True)
    own: list[inspect.Parameter] = []
    groups: list[tuple[str, type]] = []
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if not is_dataclass(kind):
            own.append(parameter.replace(annotation=_option(parameter, kind, helps.get(parameter.name))))
            continue
        groups.append((parameter.name, kind))  # type: ignore[arg-type]
        inner, helps_inside = get_type_hints(kind, include_extras=True), _documentation(kind)[1]
        for one in fields(kind):
            field = parameter.replace(name=one.name, default=one.default)
            own.append(field.replace(annotation=_option(field, inner[one.name], helps_inside.get(one.name))))
    return own, groups


def _option(parameter: inspect.Parameter, kind: Any, words: str | None) -> Any:
    """Return a parameter's type with its option and help. A switch has no negative form."""
    if get_origin(kind) is Annotated:
        kind, option = get_args(kind)
    else:
        is_switch = kind is bool and parameter.default is False
        option = typer.Option(*([f"--{parameter.name.replace('_', '-')}"] if is_switch else ()))
    option = copied(option)
    option.help = words or option.help
    return Annotated[kind, option]


_COMMANDS: Final = (
    create, create_from,
    append, upsert, update, delete, move, overwrite, delete_partitions, truncate,
    cat, sql, count, changes, readers, forget_reader, diff, why, ui,
    list_, show, schema, add_columns, alter, history, timeline, files,
    compact, properties, rules, clean, archive, drop_metadata_table, maintain, metrics, rollback,
    savepoint, savepoints, drop_savepoint, restore, erase,
    handover, takeback, copy, mirror, register, migrate, cancel_migration, drop,
    laws, simulate, verify, repair, check_store, doctor, demo,
)  # fmt: skip
for _command in _COMMANDS:
    app.command(cls=Command)(_reporting(_command))

cdc = typer.Typer(
    cls=Commands, no_args_is_help=True, rich_markup_mode="rich", help="Apply change feeds of databases to tables."
)
cdc.command(cls=Command)(_reporting(postgres, "cdc"))
cdc.command(cls=Command)(_reporting(kafka, "cdc"))
app.add_typer(cdc, name="cdc")


if __name__ == "__main__":
    app(prog_name="crdt-mor")
