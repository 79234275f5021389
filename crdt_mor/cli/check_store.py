"""`crdt-mor check-store`: check a store's conditional puts before it holds a table."""

from __future__ import annotations

from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.failures import BROKEN


def check_store(
    address: Annotated[
        str,
        typer.Argument(metavar="URI", help="A place for a table: s3://bucket/path, a folder, …", show_default=False),
    ],
    keys: Annotated[int, typer.Option(metavar="N", min=1, help="Number of contested objects.")] = 150,
) -> None:
    """Check that exactly one of several conditional puts wins in a store.

    Commits depend on that. Exit code 3 means an unsafe store. The check deletes its objects and changes no others.

    Example: crdt-mor check-store s3://lake/events --keys 1000
    """
    check = mor.check_store(address, keys=keys, storage_options=inputs.storage())
    if render.is_json():
        render.document(
            {
                "store": check.store, "keys": check.keys, "puts": check.puts,
                "winners": {str(number): names for number, names in check.winners.items()},
                "wrong": check.wrong, "safe": check.is_safe, "reason": check.reason or None,
            }
        )  # fmt: skip
    else:
        render.facts({"objects": check.keys, "puts of each at once": check.puts} | _told(check))
        render.note(check.reason or "exactly one put of each object succeeded: no fault was found")
    if not check.is_safe:
        raise typer.Exit(BROKEN)


def _told(check: mor.results.StoreCheck) -> dict[str, object]:
    return {f"made by {number} put{'' if number == 1 else 's'}": names for number, names in check.winners.items()}
