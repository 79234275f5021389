"""`crdt-mor savepoint`, `savepoints`, `drop-savepoint` and `restore`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.history import others
from crdt_mor.cli.options import Uri

Name = Annotated[str, typer.Argument(metavar="NAME", help="The savepoint's name; --as-of and `restore` take it.")]


def savepoint(uri: Uri, name: Name, comment: Annotated[str | None, typer.Option(metavar="TEXT")] = None) -> None:
    """Name the table's current rows, so they stay readable and restorable.

    Example: crdt-mor savepoint events before-backfill --comment "prices of May"

    Args:
        comment: The savepoint's purpose.
    """
    made = inputs.opened(uri).maintenance.savepoint(name, comment=comment)
    render.result(made, f"{made.name}: all commits by {made.at}")


def savepoints(uri: Uri) -> None:
    """List the savepoints of a table, oldest first.

    Example: crdt-mor savepoints events
    """
    found = inputs.opened(uri).maintenance.savepoints()
    if render.is_json():
        render.document([asdict(one) for one in found])
        return
    columns = ["name", "as of", "created", "by", "comment"]
    rows = [[s.name, s.at, f"{s.created:%Y-%m-%d %H:%M:%S} UTC", s.application or "", s.comment] for s in found]
    render.table(columns, rows, kept=["name", "as of"])


def drop_savepoint(uri: Uri, name: Name) -> None:
    """Drop a savepoint. Later cleans remove files that only it needs.

    Example: crdt-mor drop-savepoint events before-backfill
    """
    inputs.opened(uri).maintenance.drop_savepoint(name)
    render.result({"dropped": name}, f"the savepoint {name} is dropped")


def restore(
    uri: Uri,
    to: Annotated[str, typer.Option(metavar="NAME|VERSION|TIME")],
    dry_run: bool = False,
    yes: Annotated[bool, typer.Option("--yes", "-y")] = False,
) -> None:
    """Restore a table to an earlier moment, and drop later commits for good.

    It lists the commits to drop and asks, unless --yes is given. Pending writes are rolled back.

    Example: crdt-mor restore events --to before-backfill --dry-run

    Args:
        to: A savepoint, a version from history, or a time as in --as-of.
        dry_run: Only print the commits to drop.
        yes: Do not ask.
    """
    if not (yes or dry_run) and render.is_json():
        raise typer.BadParameter("this command cannot ask with --output json: add --yes or --dry-run")
    table = inputs.opened(uri)
    point = inputs.point(to, "--to")
    assert point is not None
    if not yes or dry_run:
        would = table.maintenance.restore(point, dry_run=True)
        if dry_run:
            render.document(asdict(would)) if render.is_json() else _say(table, would)
            return
        _say(table, would)
        if not would.drops:
            return
        if not typer.confirm("This cannot be undone. Restore?", err=True):
            render.note("nothing was restored")
            raise typer.Exit(1)
    done = table.maintenance.restore(point)
    render.result(done)


def _say(table: mor.Table, would: mor.results.Restored) -> None:
    render.note(str(would))
    commits = {row["requested_at"]: row for row in table.history().to_pylist()}
    for instant in would.instants:
        row = commits.get(instant)
        if row is not None:
            said = f": {row['message']}" if row["message"] else ""
            by = f" by {row['application']}{others(row)}" if row["application"] else ""
            moment = f"{row['completed']:%Y-%m-%d %H:%M:%S} UTC"
            render.note(f"  {row['kind']} of {moment}{by}, in version {row['version']}{said}")
