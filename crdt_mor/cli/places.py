"""`crdt-mor copy`, `drop`, `check-store` and `doctor`: tables and places for them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.cli.options import Uri
from crdt_mor.model.policies import plural


def copy(uri: Uri, to: Annotated[str, typer.Argument(metavar="TO")], update: bool = False, verify: bool = True) -> None:
    """Copy a table as it is now, beside its writers.

    Run it again if it was stopped. With --update, an earlier copy catches up.

    Example: crdt-mor copy events backup/events --update

    Args:
        to: The copy's place: empty, or with --update an earlier copy.
        update: Update an earlier copy to the table's current rows.
        verify: Verify the copy afterwards.
    """
    with render.bar("copying", "Download") as move:

        def tell(now: mor.results.CopyProgress) -> None:
            objects = f"{now.objects:,} of {now.of_objects:,} objects"
            move(total=now.of_bytes, completed=now.bytes, said=objects)

        done = inputs.opened(uri, to).copy(
            to, update=update, verify=verify, on_progress=tell, storage_options=inputs.storage_of(to, uri)
        )
    render.result(done)


def drop(
    address: Annotated[str, typer.Argument(metavar="URI", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y")] = False,
    dry_run: bool = False,
) -> None:
    """Remove a table with all rows and history, for good. Asks first.

    Readers and writers then get an error. Run it again to finish an interrupted drop.

    Example: crdt-mor drop events --yes

    Args:
        address: The table.
        yes: Do not ask.
        dry_run: Only count the objects.
    """
    if not (yes or dry_run):
        if render.is_json():
            raise typer.BadParameter("this command cannot ask with --output json: add --yes or --dry-run")
        render.note(str(mor.drop_table(address, dry_run=True, storage_options=inputs.storage())))
        if not typer.confirm("This cannot be undone. Drop the table?", err=True):
            render.note("nothing was removed")
            raise typer.Exit(1)
    render.result(mor.drop_table(address, dry_run=dry_run, storage_options=inputs.storage()))


def check_store(
    address: Annotated[str, typer.Argument(metavar="URI", show_default=False)],
    keys: Annotated[int, typer.Option(metavar="N", min=1)] = 150,
) -> None:
    """Check that exactly one of several conditional puts wins in a store.

    Commits depend on that. Exit code 3 means an unsafe store. The check deletes its objects and changes no others.

    Example: crdt-mor check-store s3://lake/events --keys 1000

    Args:
        address: A place for a table: s3://bucket/path, a folder, …
        keys: Number of contested objects.
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


_SIGNS = {"fine": ("✓", "green"), "note": ("!", "yellow"), "wrong": ("✗", "red")}


def doctor(uri: Annotated[str | None, typer.Argument(metavar="[URI]")] = None) -> None:
    """Check packages, store, clock and permissions; exit code 3 means a problem.

    Nothing is changed. Objects of the check are deleted.

    Example: crdt-mor doctor s3://lake/events

    Args:
        uri: The table's place; default: check only this machine.
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
