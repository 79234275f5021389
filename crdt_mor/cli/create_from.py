"""`crdt-mor create-from`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import Reading, read_schema
from crdt_mor.cli.options import (
    SETTINGS,
    Codec,
    Compression,
    Delimiter,
    Encoding,
    Info,
    Key,
    Message,
    Rename,
    Settings,
    Uri,
    commit_info,
)
from crdt_mor.model.policies import words_of_bytes

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files or a pattern; a folder of Parquet, with columns from paths like day=2026-01-31; the folder of a "
        "Delta Lake or Iceberg table.",
        show_default=False,
    ),
]


def create_from(
    uri: Uri,
    sources: Sources,
    key: Key,
    schema: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    delimiter: Delimiter = ",",
    encoding: Encoding = "utf-8",
    settings: Settings = SETTINGS,
    compression: Compression = Codec.zstd,
    rename: Rename = None,
    message: Message = None,
    info: Info = None,
) -> None:
    """Create a table with all rows of files or of another table, atomically.

    Example: crdt-mor create-from events "landing/*.parquet" --key id

    Args:
        schema: Types of the columns: a .json with {"column": "type"}, or a data file.
    """
    how = Reading(delimiter=delimiter, encoding=encoding).csv
    source: object = sources if len(sources) > 1 else sources[0]
    if how != Reading().csv:
        source = mor.read_files(
            sources, delimiter=how.delimiter, encoding=how.encoding, storage_options=inputs.storage()
        )
    with render.bar("reading") as move:

        def show(now: mor.results.LoadProgress) -> None:
            of_all = "" if now.total is None else f" of {now.total:,}"
            doing = "reading" if now.phase == "read" else "writing"
            move(description=doing, total=now.total, completed=now.rows, said=f"{now.rows:,}{of_all} rows")

        table = mor.Table.create_from(
            uri, source, key=inputs.split_names(key) or [],
            schema=None if schema is None else read_schema(schema), rename=inputs.renames(rename), **settings.arguments,
            compression=compression.value, commit_info=commit_info(message, info), on_progress=show,
            storage_options=inputs.storage(),
        )  # fmt: skip
    files = table.inspect.files()
    rows, size = sum(files["rows"].to_pylist()), sum(files["bytes"].to_pylist())
    made = {"uri": table.uri, "version": table.version, "merge": table.config.merge}
    what = f"{rows:,} rows in {len(files):,} files, {words_of_bytes(size)}"
    text = f"created {uri}: {what}, {len(table.schema)} columns, key {key}, merge {table.config.merge}"
    render.result(made | {"rows": rows, "files": len(files), "bytes": size}, text)
