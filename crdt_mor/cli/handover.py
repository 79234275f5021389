"""`crdt-mor handover` and `takeback`: lend a table to Hudi's writers."""

from __future__ import annotations

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri
from crdt_mor.model.policies import plural


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


def handed_over_text(table: mor.Table) -> str | None:
    since = table.inspect.handed_over()
    if since is None:
        return None
    return (
        f"to Hudi's writers since {since:%Y-%m-%d %H:%M:%S} UTC: writes and maintenance here are refused until "
        "crdt-mor takeback URI"
    )
