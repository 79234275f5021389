"""`crdt-mor check-store URI`: whether a store lets one of many puts win, before a table is put there."""

from __future__ import annotations

from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.cli.options import Form
from crdt_mor.cli.render import Output


def check_store(
    address: Annotated[
        str,
        typer.Argument(metavar="URI", help="Where a table may come: s3://bucket/path, a folder, …", show_default=False),
    ],
    keys: Annotated[int, typer.Option(metavar="N", min=1, help="How many objects are raced for.")] = 150,
    output: Form = Output.text,
) -> None:
    """Try whether a store lets one of many puts of an object win, on which commits rest; exit code 3 where it does not.

    What is at the address stays as it is; the objects of the check are deleted.

    Example: crdt-mor check-store s3://lake/events --keys 1000
    """
    check = mor.check_store(address, keys=keys, storage_options=inputs.storage())
    if output is Output.json:
        render.document(
            {
                "store": check.store, "keys": check.keys, "puts": check.puts,
                "winners": {str(number): names for number, names in check.winners.items()},
                "wrong": check.wrong, "safe": check.is_safe, "reason": check.reason or None,
            }
        )  # fmt: skip
    else:
        render.facts({"objects": check.keys, "puts of each at once": check.puts} | _told(check))
        render.note(check.reason or "each object was made by one put, which was told so: no fault was found")
    if not check.is_safe:
        raise typer.Exit(BROKEN)


def _told(check: mor.StoreCheck) -> dict[str, object]:
    """How many objects had so many winners, as facts."""
    return {f"made by {number} put{'' if number == 1 else 's'}": names for number, names in check.winners.items()}
