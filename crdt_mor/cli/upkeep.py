"""`crdt-mor archive`, `clean`, `drop-metadata-table`, `rollback`, `handover` and `takeback`."""

from __future__ import annotations

from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.history import writer_text, writers
from crdt_mor.cli.options import Uri
from crdt_mor.model.policies import plural


def archive(uri: Uri, keep_commits: Annotated[int, typer.Option(metavar="N", min=1)] = 20) -> None:
    """Move finished instants from Hudi's timeline directory to its history.

    No reader sees a difference.

    Example: crdt-mor archive events

    Args:
        keep_commits: Keep at least N commits in the directory.
    """
    done = inputs.opened(uri).maintenance.archive(keep_commits=keep_commits)
    until = f", up to {done.until}" if done.until else ""
    left = f"; {done.left:,} files could not be removed, and the next sweep tries again" if done.left else ""
    render.result(done, f"archived {done.instants:,} instants{until}; then: {done.held_by}{left}")


def clean(
    uri: Uri,
    keep: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    commits: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    readers: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    dry_run: bool = False,
) -> None:
    """Give up old history and remove unneeded files, beside writers and readers.

    Example: crdt-mor clean events --keep 7d --dry-run

    Args:
        keep: Keep this much history: 7d, 12h; default: the table's policy.
        commits: Keep snapshots as of each of the last N commits.
        readers: Spare readers that began less than this long ago: 1h.
        dry_run: Only print the files to remove.
    """
    done = inputs.opened(uri).maintenance.clean(
        None if keep is None else inputs.duration(keep, "--keep"),
        commits=commits,
        readers=None if readers is None else inputs.duration(readers, "--readers"),
        dry_run=dry_run,
    )
    render.result(done)


def drop_metadata_table(uri: Uri) -> None:
    """Remove Hudi's metadata table, which hides our commits from Hudi's readers.

    Example: crdt-mor drop-metadata-table events
    """
    removed = inputs.opened(uri).maintenance.drop_metadata_table()
    text = f"removed {removed:,} files: Hudi's readers list the table's folders from now on"
    render.result({"files": removed}, text)


def rollback(
    uri: Uri,
    instant: Annotated[str, typer.Argument(metavar="INSTANT")],
    yes: Annotated[bool, typer.Option("--yes", "-y")] = False,
) -> None:
    """Roll back a pending write or cancel an open plan, and remove its files.

    It asks, unless --yes is given. If the writer is alive after all, its commit fails and it must write again.

    Example: crdt-mor rollback events 20260131120000000 --yes

    Args:
        instant: 17 digits, from `show` or `timeline --pending`.
        yes: Do not ask.
    """
    table = inputs.opened(uri)
    found = None if yes else _what_is_open(table, instant)
    if found is not None:
        typer.confirm(f"{found}\nRoll it back?", abort=True, err=True)
    done = table.maintenance.roll_back(instant)
    render.result(done)


def _what_is_open(table: mor.Table, instant: str) -> str | None:
    for writer in writers(table):
        if writer["requested_at"] == instant:
            return f"a pending write: {writer_text(writer)}"
    for row in table.inspect.timeline().to_pylist():
        if row["requested_at"] == instant and row["state"] == "planned":
            return f"an open plan: {row['action']} {instant}"
    return None


def handover(uri: Uri) -> None:
    """Hand a table over to Hudi's writers, and stop writes from here.

    The table is compacted and declares Hudi's plain merge rule.

    Example: crdt-mor handover events
    """
    inputs.opened(uri).maintenance.handover()
    text = "handed over: Hudi's writers may write the table, until crdt-mor takeback"
    render.result({"handed_over": True}, text)


def takeback(uri: Uri) -> None:
    """Take a table back from Hudi's stopped writers, with their commits.

    Example: crdt-mor takeback events
    """
    table = inputs.opened(uri)
    is_theirs = table.inspect.handed_over() is not None
    commits = table.maintenance.takeback()
    text = f"taken back, with {plural(commits, 'commit', ',')} of Hudi's"
    if not is_theirs:
        text = "nothing to take back: the table is not handed over"
    render.result({"handed_over": False, "commits": commits}, text)
