"""`handover` and `takeback`: Hudi's own writers have a table for a while."""

from __future__ import annotations

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Form, Uri
from crdt_mor.cli.render import Output
from crdt_mor.model.policies import plural


def handover(uri: Uri, output: Form = Output.text) -> None:
    """Hand a table over to Hudi's writers: it is compacted, takes no writes from here, and declares Hudi's plain rule.

    Example: crdt-mor handover events
    """
    inputs.opened(uri).maintenance.handover()
    if output is Output.json:
        render.document({"handed_over": True})
    else:
        render.note("handed over: Hudi's writers may write the table, until crdt-mor takeback")


def takeback(uri: Uri, output: Form = Output.text) -> None:
    """Take a table back from Hudi's writers, which were stopped: what they wrote becomes part of it.

    Example: crdt-mor takeback events
    """
    table = inputs.opened(uri)
    is_theirs = table.handed_over is not None
    commits = table.maintenance.takeback()
    if output is Output.json:
        render.document({"handed_over": False, "commits": commits})
    elif not is_theirs:
        render.note("nothing to take back: Hudi's writers do not have the table")
    else:
        render.note(f"taken back, with {plural(commits, 'commit', ',')} of Hudi's")


def handed_over_text(table: mor.Table) -> str | None:
    """What people are told of a table that Hudi's writers have, with the way back; None of others."""
    since = table.handed_over
    if since is None:
        return None
    return (
        f"to Hudi's writers since {since:%Y-%m-%d %H:%M:%S} UTC: it takes no writes and no upkeep from here until "
        "crdt-mor takeback URI"
    )
