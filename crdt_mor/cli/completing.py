"""Complete names of savepoints, columns and partitions of the table on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from copy import copy
from typing import Annotated, Final, get_args

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs

Complete = Callable[[typer.Context, str], list[str]]


def _named(names: Callable[[mor.Table], Iterable[str]], *, listed: bool = False) -> Complete:
    """listed: the option takes `a,b`."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",") if listed else ("", "", incomplete)
        try:
            inputs.use_storage(ctx.params.get("storage") or ())
            uri = ctx.params.get("uri") or ctx.args[0]  # click leaves words before an option without a value here
            found = names(inputs.opened(uri))
        except Exception:  # noqa: BLE001  nothing may stand between the words of a command line
            return []
        return [f"{before}{comma}{name}" for name in found if name.startswith(begun)]

    return complete


def _partitions(table: mor.Table) -> list[str]:
    """Return paths, and of a single partition column the values."""
    paths = dict.fromkeys(table.inspect.files()["partition"].to_pylist())
    values = [path.partition("=")[2] for path in paths if len(table.config.partition_by) == 1]
    return [*filter(None, values), *paths]


_COLUMNS: Final = _named(lambda table: table.schema.names)
_LISTED_COLUMNS: Final = _named(lambda table: table.schema.names, listed=True)
_SAVEPOINTS: Final = _named(lambda table: [savepoint.name for savepoint in table.maintenance.savepoints()])
_READERS: Final = _named(lambda table: table.inspect.readers()["reader"].to_pylist())

_VALUES: Final[dict[str, Complete]] = {
    **dict.fromkeys(("columns", "nulls"), _LISTED_COLUMNS),
    "column": _COLUMNS,
    **dict.fromkeys(("partition", "partitions"), _named(_partitions)),
    **dict.fromkeys(("as_of", "since", "until", "before", "after"), _SAVEPOINTS),
    "drop-savepoint name": _SAVEPOINTS,
    "restore to": _SAVEPOINTS,
    **dict.fromkeys(("reader", "forget-reader name"), _READERS),
    "alter drop": _COLUMNS,
}
"""By parameter, or by command and parameter."""


def completed(parameter: inspect.Parameter, command: str) -> inspect.Parameter:
    """Return a command's parameter, with the completion of its values."""
    complete = _VALUES.get(f"{command} {parameter.name}") or _VALUES.get(parameter.name)
    if complete is None:
        return parameter
    kind, option = get_args(parameter.annotation)
    option = copy(option)
    option.autocompletion = complete
    return parameter.replace(annotation=Annotated[kind, option])
