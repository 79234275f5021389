"""`crdt-mor doctor`: check this machine and the place of a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.model.policies import plural

_SIGNS = {"fine": ("✓", "green"), "note": ("!", "yellow"), "wrong": ("✗", "red")}


def doctor(
    uri: Annotated[
        str | None,
        typer.Argument(metavar="[URI]", help="The table's place; default: check only this machine."),
    ] = None,
) -> None:
    """Check packages, store, clock and permissions; exit code 3 means a problem.

    Nothing is changed. Objects of the check are deleted.

    Example: crdt-mor doctor s3://lake/events
    """
    found = mor.doctor(uri, storage_options=inputs.storage() if uri is not None else None)
    if render.is_json():
        render.lines(map(asdict, found))
    else:
        for one in found:
            sign, style = _SIGNS[one.state]
            line = Text.assemble((sign, style), " ", (f"{one.check}: ", "bold"), one.result)
            render.stdout().print(line, soft_wrap=True)
            if one.advice:
                render.stdout().print(Text(f"    {one.advice}"), soft_wrap=True)
    wrong = sum(one.state == "wrong" for one in found)
    if wrong:
        render.note(f"{plural(wrong, 'problem')} to fix")
        raise typer.Exit(BROKEN)
