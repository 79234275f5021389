"""`crdt-mor ui`: a page about a table, served on this machine or as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri
from crdt_mor.cli.stopping import until_stopped
from crdt_mor.cli.whole_files import put_whole


def ui(
    uri: Uri,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE")] = None,
    key: Annotated[list[str] | None, typer.Option(metavar="KEY")] = None,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535)] = 0,
) -> None:
    """Show a table in a browser: health, writers, overlaps, read costs and rows.

    It is served on 127.0.0.1 until Ctrl-C, and rebuilt at each load. Rows and files do not change.

    With --output json, the page's data are printed instead.

    Example: crdt-mor ui events --html events.html --key user-17

    Args:
        html: Write the page to a file instead of serving it.
        key: With --html: add the history of this key, besides ten conflicts. May be repeated.
        port: Default: a free port.
    """
    from crdt_mor.cli.ui.page import html as page_of
    from crdt_mor.cli.ui.page import plotly_js
    from crdt_mor.cli.ui.report import lives, report_of
    from crdt_mor.cli.ui.server import HOST, ServedTable, server

    if key and html is None:
        raise typer.BadParameter("--key needs --html FILE", param_hint="--key")
    uri = uri if "://" in uri else os.path.abspath(uri)  # also shown in commands
    if render.is_json():
        if html is not None:
            raise typer.BadParameter("--html and --output json exclude each other", param_hint="--html")
        render.document(report_of(inputs.opened(uri), uri))
        return
    plotly_js()  # raises before the table is read
    table = inputs.opened(uri)
    if html is not None:
        report = report_of(table, uri)
        page = page_of({**report, "live": False, "lives": lives(table, key or [], report["conflicts"])})
        put_whole(html, page.encode("utf-8", "replace"))
        render.note(f"wrote {html}")
        return
    try:
        served = server(ServedTable(table, uri), port)
    except OSError as error:
        raise mor.InvalidInputError(f"cannot serve the page on this port: {error.strerror}. port={port}") from error
    render.note(f"http://{HOST}:{served.server_port}/ shows {uri} until Ctrl-C")
    try:
        with until_stopped("stopped"):
            served.serve_forever()
    finally:
        served.server_close()
