"""`crdt-mor mirror`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri


class Format(StrEnum):
    delta = "delta"
    iceberg = "iceberg"


class Deletes(StrEnum):
    vectors = "vectors"
    positions = "positions"
    rewrite = "rewrite"


def mirror(
    uri: Uri,
    format: Annotated[Format, typer.Option("--as", help="The format of the mirror.")],
    deletes: Annotated[
        Deletes | None,
        typer.Option(
            help="How deleted rows are shown. Delta: vectors (default) or rewrite, which writes changed file slices "
            "whole. Iceberg: positions (default) or vectors, which needs readers of format version 3."
        ),
    ] = None,
) -> None:
    """Make a table's newest rows readable for Delta Lake or Iceberg engines.

    Run it again after commits: only changed file slices are written.

    Example: crdt-mor mirror events --as delta
    """
    done = inputs.opened(uri).mirror(format.value, deletes=None if deletes is None else deletes.value)
    render.result(done)
