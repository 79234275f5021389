"""`crdt-mor archive`: move finished instants to Hudi's history."""

from __future__ import annotations

from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri


def archive(
    uri: Uri,
    keep_commits: Annotated[
        int, typer.Option(metavar="N", min=1, help="Keep at least N commits in the directory.")
    ] = 20,
) -> None:
    """Move finished instants from Hudi's timeline directory to its history.

    No reader sees a difference.

    Example: crdt-mor archive events
    """
    done = inputs.opened(uri).maintenance.archive(keep_commits=keep_commits)
    until = f", up to {done.until}" if done.until else ""
    left = f"; {done.left:,} files could not be removed, and the next sweep tries again" if done.left else ""
    render.result(done, f"archived {done.instants:,} instants{until}; then: {done.held_by}{left}")
