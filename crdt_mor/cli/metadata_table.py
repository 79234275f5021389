"""`crdt-mor drop-metadata-table`: make a table with Hudi's metadata table writable."""

from __future__ import annotations

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri


def drop_metadata_table(uri: Uri) -> None:
    """Remove Hudi's metadata table, which hides our commits from Hudi's readers.

    Example: crdt-mor drop-metadata-table events
    """
    removed = inputs.opened(uri).maintenance.drop_metadata_table()
    text = f"removed {removed:,} files: Hudi's readers list the table's folders from now on"
    render.result({"files": removed}, text)
